"""`likewise explore`: a page on this machine to look into a run: map, neighbours, search, curves."""

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

PORT = 8720  # where none is asked for, and it is free


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
    """Serve the page of a run until it is interrupted; `source` is what is looked at, by default the run's own.

    A run that is going on shows its curves, and its map when it is done. `table` is a CSV or Parquet file with a
    column id or path, whose other columns items can be coloured by. Where other machines can reach `host`, the
    address has a token, and nothing is answered without it. `trust` allows the code of an encoder (`module:callable`)
    that a run from elsewhere names.
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
        raise RunError(f"RUN must be a run's folder, with a recipe.toml, got {folder}")
    recipe = Run(folder).recipe
    methods.check_kinds(recipe)
    check_trust(folder / "recipe.toml", recipe.encoder.name, trust)
    if layer is not None:
        check_layer(layer, recipe)
    beside = None if table is None else Table.read(Path(table))
    listening = _listening(host, port)
    at = listening.getsockname()[1]
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    explorer = Explorer(
        folder,
        lambda told: Scene.open(folder, source, layer=layer, roles=columns, table=beside, trust=trust, say=told),
        warn=say,
    )
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{at}/" + (f"?token={token}" if token else "")
    say(f"{folder} at {url} (Ctrl-C ends it)")
    config = uvicorn.Config(
        application(explorer, host, at, token),
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
            uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # that is how it ends
        pass
    finally:
        listening.close()


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket at the port that was asked for, or else at the usual one or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, tried), family=family)
        except (OSError, OverflowError) as error:
            failed = error
    raise RunError(f"cannot listen at {host}, port {port or PORT}: {getattr(failed, 'strerror', None) or failed}")
