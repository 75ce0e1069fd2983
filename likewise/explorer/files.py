"""Files that are sent and received: originals of items, and uploads, which are checked before they are decoded."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from likewise.data import DataError, images
from likewise.search.searcher import Searcher, reason

MOST_BYTES = 32 << 20  # of an upload
MOST_UPLOADS, MOST_OF_CLIENT = 8, 4  # at once, in total and from one address, to limit the memory that bodies take
SECONDS = 60.0  # in which an upload must arrive
KINDS = {
    **{ending: f"image/{ending}" for ending in ("png", "webp", "bmp", "gif", "avif", "heic", "heif")},
    **dict.fromkeys(("jpg", "jpeg"), "image/jpeg"),
    **dict.fromkeys(("tif", "tiff"), "image/tiff"),
    **{ending: f"audio/{ending}" for ending in ("wav", "flac", "ogg")},
    **{"opus": "audio/ogg", "mp3": "audio/mpeg"},
}


class TooLarge(ValueError):  # noqa: N818 - its message is shown to users
    """An upload that is larger than the server accepts."""


def original(root: Path | None, name: str | None) -> tuple[Path, str] | None:
    """Return the file of an item and its media type, or None if it is not an image or sound within the folder."""
    kind = KINDS.get(images.extension(name or ""))
    if root is None or name is None or kind is None:
        return None
    path, folder = (root / name).resolve(), root.resolve()
    return (path, kind) if path.is_relative_to(folder) and path.is_file() else None


class TooMany(ValueError):  # noqa: N818 - its message is shown to users
    """An upload while as many as allowed are already in progress."""


class TooSlow(ValueError):  # noqa: N818 - its message is shown to users
    """An upload that did not arrive in time."""


class Uploads:
    """Limits how many uploads are received or processed at once, in total and from one client.

    An upload that does not arrive is ended after `SECONDS`, so that a stalled client cannot block others for long.
    """

    def __init__(self) -> None:
        self.under_way: Counter[str] = Counter()  # by client address; only changed in the thread of the event loop

    @contextmanager
    def one_of(self, client: str) -> Iterator[None]:
        """Count an upload of a client until the block ends; raise TooMany if there are too many already."""
        if self.under_way[client] >= MOST_OF_CLIENT or self.under_way.total() >= MOST_UPLOADS:
            most = f"at most {MOST_OF_CLIENT} uploads per client, and {MOST_UPLOADS} in total, are accepted at once"
            raise TooMany(f"{most}: try again when one has finished")
        self.under_way[client] += 1
        try:
            yield
        finally:
            self.under_way[client] -= 1
            if not self.under_way[client]:
                del self.under_way[client]


async def received(stream: AsyncIterator[bytes], announced: str | None, most: int = MOST_BYTES) -> bytearray:
    """Receive a body of at most `most` bytes within `SECONDS`; `announced` is its Content-Length header."""
    if announced is not None and announced.isdigit() and int(announced) > most:
        raise TooLarge(f"at most {most / 2**20:,.3g} MiB are accepted, got {int(announced) / 2**20:,.3g} MiB")
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for part in stream:
                body += part
                if len(body) > most:
                    raise TooLarge(f"at most {most / 2**20:,.3g} MiB are accepted, got more")
    except TimeoutError:
        raise TooSlow(f"an upload must arrive within {SECONDS:g} seconds, got {len(body):,} bytes by then") from None
    return body


@contextmanager
def uploaded(content: bytearray, searcher: Searcher, name: str) -> Iterator[Path]:
    """Write an upload to a temporary file, after checking by its header that it is not too large to decode."""
    with tempfile.TemporaryDirectory(prefix="likewise-") as folder:
        path = Path(folder) / "upload"
        path.write_bytes(content)
        try:
            _check(path, searcher, name)
        except ValueError:
            raise
        except Exception as error:  # decoders raise nearly anything on a damaged header
            raise DataError(f"{name} cannot be read: {reason(error)}") from None
        yield path


def _check(path: Path, searcher: Searcher, name: str) -> None:
    if searcher.takes is None:
        raise DataError(f"{searcher.items.kind}s can only be searched by id, got the file {name}")
    for got, most, what in searcher.encoder.modality.measure_file(path, name):
        _bound(got, most, what, name)


def _bound(got: int, most: int, what: str, name: str) -> None:
    if got > most:
        raise TooLarge(f"at most {most:,} {what} are accepted, got {got:,} in {name}")
