"""Files that come and go: originals of items, nothing else; uploads, bounded before they are decoded."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from likewise.data import DataError, images
from likewise.search.searcher import Searcher, reason

MOST_BYTES = 32 << 20  # of an upload
MOST_UPLOADS, MOST_OF_CLIENT = 8, 4  # at once, in all and from one address: so many bodies are in memory at most
SECONDS = 60.0  # until an upload must have arrived
KINDS = {
    **{ending: f"image/{ending}" for ending in ("png", "webp", "bmp", "gif", "avif", "heic", "heif")},
    **dict.fromkeys(("jpg", "jpeg"), "image/jpeg"),
    **dict.fromkeys(("tif", "tiff"), "image/tiff"),
    **{ending: f"audio/{ending}" for ending in ("wav", "flac", "ogg")},
    **{"opus": "audio/ogg", "mp3": "audio/mpeg"},
}


class TooLarge(ValueError):  # noqa: N818 - said to people
    """More than this server takes, in one sentence."""


def original(root: Path | None, name: str | None) -> tuple[Path, str] | None:
    """The file of an item and its kind, if its path leads nowhere out of the folder."""
    kind = KINDS.get(images.extension(name or ""))
    if root is None or name is None or kind is None:
        return None
    path, folder = (root / name).resolve(), root.resolve()
    return (path, kind) if path.is_relative_to(folder) and path.is_file() else None


class TooMany(ValueError):  # noqa: N818 - said to people
    """Another upload while enough are under way, in one sentence."""


class TooSlow(ValueError):  # noqa: N818 - said to people
    """An upload that did not arrive in time, in one sentence."""


class Uploads:
    """The bodies that are being received or worked on: so many in all, and fewer from one client.

    A body that does not arrive ends after `SECONDS`, so that clients which stall cannot keep others out for long.
    """

    def __init__(self) -> None:
        self.under_way: Counter[str] = Counter()  # by the client's address; only the event loop's thread counts

    @contextmanager
    def one_of(self, client: str) -> Iterator[None]:
        """Count an upload of a client until the block ends, or refuse it."""
        if self.under_way[client] >= MOST_OF_CLIENT or self.under_way.total() >= MOST_UPLOADS:
            most = f"at most {MOST_OF_CLIENT} uploads of one client are taken at once, and {MOST_UPLOADS} of all"
            raise TooMany(f"{most}: try again when one of them has ended")
        self.under_way[client] += 1
        try:
            yield
        finally:
            self.under_way[client] -= 1
            if not self.under_way[client]:
                del self.under_way[client]


async def received(stream: AsyncIterator[bytes], announced: str | None, most: int = MOST_BYTES) -> bytearray:
    """A body, read no further than it may be long, and waited for no longer than `SECONDS`."""
    if announced is not None and announced.isdigit() and int(announced) > most:
        raise TooLarge(f"at most {most / 2**20:,.3g} MiB are taken, got {int(announced) / 2**20:,.3g} MiB")
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for part in stream:
                body += part
                if len(body) > most:
                    raise TooLarge(f"at most {most / 2**20:,.3g} MiB are taken, got more")
    except TimeoutError:
        raise TooSlow(f"an upload must arrive within {SECONDS:g} seconds, got {len(body):,} bytes by then") from None
    return body


@contextmanager
def uploaded(content: bytearray, searcher: Searcher, name: str) -> Iterator[Path]:
    """A body as a file whose header has been seen to promise no more than is taken."""
    with tempfile.TemporaryDirectory(prefix="likewise-") as folder:
        path = Path(folder) / "upload"
        path.write_bytes(content)
        try:
            _check(path, searcher, name)
        except ValueError:
            raise
        except Exception as error:  # whatever a decoder says of a damaged header
            raise DataError(f"{name} cannot be read: {reason(error)}") from None
        yield path


def _check(path: Path, searcher: Searcher, name: str) -> None:
    if searcher.takes is None:
        raise DataError(f"{searcher.items.kind}s can only be searched by id, got the file {name}")
    for got, most, what in searcher.encoder.modality.measure_file(path, name):
        _bound(got, most, what, name)


def _bound(got: int, most: int, what: str, name: str) -> None:
    if got > most:
        raise TooLarge(f"at most {most:,} {what} are taken, got {got:,} in {name}")
