"""Consent to run the code that a recipe names.

An encoder may be any `module:callable`, and importing it runs code. Naming it on the command line is consent. A
recipe or a run, however, may have come from anyone, so it must either have been made under this account or be trusted
explicitly (`--trust`, or `trust=True` in Python).

A run that is made under this account is marked with an HMAC of its encoder's name, and the key is a random secret that
only this account can read. So nobody can forge the mark by handing over a folder, and a run that is moved keeps it.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import platformdirs
from filelock import FileLock

from likewise.bounded import read_bounded

MARK = "made_here"  # the file in a run's folder
SECRET_BYTES = 32


class TrustError(ValueError):
    """A recipe names code that the user has not consented to run."""


def check_trust(recipe: Path, name: str, trust: bool) -> None:
    """Refuse the encoder `name` of a recipe's file, unless it is built in, from a run made here, or trusted."""
    if ":" not in name or trust or _is_marked(recipe.parent, name):
        return
    raise TrustError(
        f"{recipe} names the encoder {name}, whose code would be run, and was not made under this account: "
        "use --trust (trust=True in Python) if you trust its author"
    )


def mark(folder: Path, name: str) -> str | None:
    """Mark the run in `folder` as made here, if its encoder is a module:callable; return a note if that failed."""
    if ":" in name:
        try:
            (folder / MARK).write_text(_mark(_make_secret(), name))
        except OSError as error:
            return f"other commands will ask for --trust, because this run could not be marked as made here: {error}"
    return None


def _is_marked(folder: Path, name: str) -> bool:
    try:
        secret, stored_mark = _secret_path().read_bytes(), read_bounded(folder / MARK, 1000)
    except OSError:
        return False
    # An empty secret would let anybody make the mark.
    return len(secret) == SECRET_BYTES and hmac.compare_digest(_mark(secret, name).encode(), stored_mark)


def _mark(secret: bytes, name: str) -> str:
    return hmac.new(secret, f"encoder {name}".encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def _make_secret() -> bytes:
    """Return this account's secret; the first call creates it."""
    path = _secret_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists() or path.stat().st_size != SECRET_BYTES:
            path.unlink(missing_ok=True)  # an existing file would keep its permissions
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(SECRET_BYTES))
        return path.read_bytes()


def _secret_path() -> Path:
    folder = os.environ.get("LIKEWISE_CONFIG") or platformdirs.user_config_dir("likewise")
    return Path(folder).expanduser() / "secret"
