"""`likewise explore`: serve a page on this machine to explore a run: map, neighbours, search, curves."""

import secrets
import socket
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from likewise import methods, printing
from likewise.data.builtin import needed
from likewise.training.encoder import check_layer
from likewise.training.run import Run, RunError
from likewise.training.trust import check_trust

PORT = 8720  # the default, if it is free


def explore(
    run: str | Path,
    source: Any = None,
    *,
    layer: str | None = None,
    columns: Mapping[str, str] | None = None,
    table: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = False,
    trust: bool = False,
    say: Callable[[str], None] = printing.say,
) -> None:
    """Serve a page to explore a run, until interrupted. `source` is the data to show, by default the run's own.

    While the run is still training, the page shows its curves; the map appears when it has finished. `table` is a CSV
    or Parquet file with a column id or path, whose other columns items can be coloured by. If other machines can reach
    `host`, the printed address contains a token, and requests without it are refused. `trust` allows the run to name
    an encoder (`module:callable`) even if it was not made under this account.
    """
    uvicorn = needed("uvicorn", "explore", "explore")
    needed("starlette", "explore", "explore")
    from likewise.explorer.columns import Table
    from likewise.explorer.explorer import Explorer
    from likewise.explorer.guard import is_loopback
    from likewise.explorer.scene import Scene
    from likewise.explorer.server import application
    from likewise.threads import restored_thread_count

    folder = Path(run)
    if not (folder / "recipe.toml").is_file():
        raise RunError(f"RUN must be the folder of a run, with a recipe.toml, got {folder}")
    recipe = Run(folder).recipe
    methods.check_kinds(recipe)
    check_trust(folder / "recipe.toml", recipe.encoder.name, trust)
    if layer is not None:
        check_layer(layer, recipe)
    extra_columns = None if table is None else Table.read(Path(table))
    listener = _listen(host, port)
    actual_port = listener.getsockname()[1]
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    explorer = Explorer(
        folder,
        lambda notify: Scene.open(
            folder, source, layer=layer, roles=columns, table=extra_columns, trust=trust, say=notify
        ),
        warn=say,
    )
    url_host = f"[{host}]" if ":" in host else host
    url = f"http://{url_host}:{actual_port}/" + (f"?token={token}" if token else "")
    say(f"{folder} at {url} (Ctrl-C ends it)")
    config = uvicorn.Config(
        application(explorer, host, actual_port, token),
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    if open_browser:
        webbrowser.open(url)
    try:
        with restored_thread_count():
            uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:  # the normal way to stop
        pass
    finally:
        listener.close()


def _listen(host: str, port: int | None) -> socket.socket:
    """Open a socket at `port`; if it is None, at the default port or, if that is taken, at any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, tried), family=family)
        except (OSError, OverflowError) as error:
            last_error = error
    reason = getattr(last_error, "strerror", None) or last_error
    raise RunError(f"cannot listen at {host}, port {port or PORT}: {reason}")
