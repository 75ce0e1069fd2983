"""The server of the explorer's page, built on Starlette. Items are requested by their ids, never by a path."""

import asyncio
import contextlib
import csv
import io
import json
from collections.abc import Callable
from functools import wraps
from importlib import resources
from typing import Any
from urllib.parse import unquote

import numpy as np
from PIL import Image
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from likewise.explorer.explorer import MOST_FOUND, Explorer
from likewise.explorer.files import TooLarge, TooMany, TooSlow, Uploads, original, received, uploaded
from likewise.explorer.guard import Guard
from likewise.explorer.scene import Scene
from likewise.report.page import plain
from likewise.report.pictures import magnified, of_items
from likewise.threads import use_one_core

PAGE = {  # the files of the page: media type and package
    "page.html": ("text/html", "explorer"),
    "explore.css": ("text/css", "explorer"),
    "points.js": ("text/javascript", "explorer"),
    "explore.js": ("text/javascript", "explorer"),
    "page.css": ("text/css", "report"),
    "parts.js": ("text/javascript", "report"),
    "charts.js": ("text/javascript", "report"),
}
LONGEST_WORDS = 1_000  # letters


class Refusal(Exception):  # noqa: N818 - its message is shown to users
    """An error response: a sentence, with its HTTP status."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def on_one_core(handler: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Run a handler in a server thread that uses one core only (see `likewise.threads`)."""

    @wraps(handler)
    def answered(request: Request) -> Response:
        use_one_core()
        return handler(request)

    return answered


class Answers:
    """The handlers of the server, one method for each route."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer, self.uploads = explorer, Uploads()

    def scene(self) -> Scene:
        if self.explorer.scene is None:
            raise Refusal(409, self.explorer.message)
        return self.explorer.scene

    def item(self, request: Request) -> int:
        item: int = request.path_params["item"]
        if item >= len(self.scene().searcher.items):
            raise Refusal(404, f"an id must be below {len(self.scene().searcher.items):,}, got {item}")
        return item

    def wanted(self, request: Request) -> int:
        text = request.query_params.get("k", "12")
        if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MOST_FOUND):
            raise Refusal(400, f"k must be a whole number from 1 to {MOST_FOUND}, got {text[:20]}")
        return int(text)

    def page(self, request: Request) -> Response:
        return part_of_page("page.html")

    def part(self, request: Request) -> Response:
        if request.path_params["name"] not in PAGE:
            raise Refusal(404, "there is no such page")
        return part_of_page(request.path_params["name"])

    def status(self, request: Request) -> Response:
        return answer(self.explorer.status())

    def curves(self, request: Request) -> Response:
        return answer(self.explorer.curves())

    def about(self, request: Request) -> Response:
        return answer(self.explorer.about(self.scene()))

    def points(self, request: Request) -> Response:
        """Send the points of the map: (m, 2) float32, little-endian."""
        return Response(np.ascontiguousarray(self.scene().points, dtype="<f4").tobytes(), media_type=BYTES)

    def ids(self, request: Request) -> Response:
        """Send the ids of the items on the map: (m,) int32, little-endian."""
        return Response(self.scene().drawn.astype("<i4").tobytes(), media_type=BYTES)

    def column(self, request: Request) -> Response:
        """Send a column for the items on the map: (m,) int32 classes or float32 numbers, little-endian."""
        place: int = request.path_params["place"]
        if place >= len(self.scene().columns):
            raise Refusal(404, f"a column must be below {len(self.scene().columns)}, got {place}")
        column = list(self.scene().columns.values())[place]
        dtype = "<f4" if column.classes is None else "<i4"
        return Response(column.values[self.scene().drawn].astype(dtype).tobytes(), media_type=BYTES)

    def item_in_words(self, request: Request) -> Response:
        return answer(self.explorer.describe(self.scene(), self.item(request)))

    def picture(self, request: Request) -> Response:
        """Send the picture of an item as PNG."""
        (tile,) = magnified(of_items(self.scene().searcher.items, np.array([self.item(request)])))
        file = io.BytesIO()
        Image.fromarray(tile).save(file, "png")
        return Response(file.getvalue(), media_type="image/png")

    def heard(self, request: Request) -> Response:
        """Send the beginning of a recording as WAV."""
        searcher, chosen = self.scene().searcher, self.item(request)
        sound = searcher.encoder.modality.sound(searcher.items.main, chosen)
        if sound is None:
            raise Refusal(404, "only recordings can be played")
        return Response(sound, media_type="audio/wav")

    def file(self, request: Request) -> Response:
        """Send the original file of an item, requested by its id, so that no path comes from outside."""
        items, chosen = self.scene().searcher.items, self.item(request)
        file = original(self.scene().root, items.paths[chosen] if items.paths is not None else None)
        if file is None:
            raise Refusal(404, f"item {chosen} has no file in the data")
        return FileResponse(file[0], media_type=file[1])

    def like(self, request: Request) -> Response:
        return answer(self.scene().searcher.like(self.item(request), self.wanted(request)))

    def find(self, request: Request) -> Response:
        """Search by text if there is a text encoder, else by name."""
        words, searcher = request.query_params.get("words", "").strip(), self.scene().searcher
        if not words or len(words) > LONGEST_WORDS:
            raise Refusal(400, f"words must be 1 to {LONGEST_WORDS:,} letters, got {len(words):,}")
        if not searcher.knows_words:
            found, count = self.explorer.search_names(self.scene(), words)
            return answer({"by": "name", "found": found, "count": count})
        with self.explorer.one_at_a_time:
            found = searcher.like_words(words, self.wanted(request))
        return answer({"by": "words", "found": found, "note": searcher.note_on_words(words)})

    async def upload(self, request: Request) -> Response:
        searcher, k = self.scene().searcher, self.wanted(request)
        name = unquote(request.headers.get("x-name", "the file"))[:200]

        def search_by_file(content: bytearray) -> list[dict[str, Any]]:
            use_one_core()
            with self.explorer.one_at_a_time, uploaded(content, searcher, name) as path:
                return searcher.like_file(path, k, name=name)

        with self.uploads.one_of(client(request)):
            content = await received(request.stream(), request.headers.get("content-length"))
            return answer(await asyncio.to_thread(search_by_file, content))

    async def export(self, request: Request) -> Response:
        """Send the selected items with all their columns as CSV."""
        most = 12 * len(self.scene().searcher.items) + 1000  # bytes: enough for every id once, with a comma and a space
        with self.uploads.one_of(client(request)):
            content = await received(request.stream(), request.headers.get("content-length"), most)
            text = await asyncio.to_thread(as_csv, self.scene(), content)
        return Response(
            text, media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="items.csv"'}
        )


def application(explorer: Explorer, host: str, port: int, token: str | None) -> Starlette:
    """Return the server of an explorer that listens at `host` and `port`."""
    answers = Answers(explorer)
    routes = [
        Route("/", answers.page),
        Route("/page/{name}", answers.part),
        Route("/status", answers.status),
        Route("/curves", answers.curves),
        Route("/about", answers.about),
        Route("/points", answers.points),
        Route("/ids", answers.ids),
        Route("/column/{place:int}", answers.column),
        Route("/item/{item:int}", answers.item_in_words),
        Route("/picture/{item:int}", on_one_core(answers.picture)),
        Route("/sound/{item:int}", answers.heard),
        Route("/file/{item:int}", answers.file),
        Route("/like/{item:int}", on_one_core(answers.like)),
        Route("/find", on_one_core(answers.find)),
        Route("/upload", answers.upload, methods=["POST"]),
        Route("/export", answers.export, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host, port=port, token=token)],
        exception_handlers=dict.fromkeys((Refusal, ValueError, OSError, HTTPException, ClientDisconnect), refused),
    )


BYTES = "application/octet-stream"


def answer(content: Any) -> Response:
    """Return a JSON response, in ASCII, because file names need not be valid UTF-8."""
    text = json.dumps(plain(content), allow_nan=False)
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})


def refused(request: Request, error: Exception) -> Response:
    """Return an error response with one sentence that says what went wrong."""
    if isinstance(error, Refusal):
        status, words = error.status, str(error)
    elif isinstance(error, HTTPException):
        status, words = error.status_code, error.detail
    else:
        known: dict[type[Exception], int] = {TooLarge: 413, TooMany: 429, TooSlow: 408}
        status, words = known.get(type(error), 500 if isinstance(error, OSError) else 400), str(error)
    # Close the connection if the client may still be sending a body that will not be read.
    headers = {"Connection": "close"} if isinstance(error, TooLarge | TooMany | TooSlow) else None
    return Response(json.dumps({"error": " ".join(words.split())}), status, headers, "application/json")


def client(request: Request) -> str:
    """Return the address of the client, without the port, which differs between connections of one browser."""
    return request.client.host if request.client is not None else ""


def part_of_page(name: str) -> Response:
    kind, package = PAGE[name]
    content = (resources.files(f"likewise.{package}") / name).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def as_csv(scene: Scene, content: bytearray) -> bytes:
    """Return the ids, paths and columns of the items in a JSON list of ids, as CSV."""
    items, file = scene.searcher.items, io.StringIO()
    try:
        chosen = json.loads(content)
    except (ValueError, RecursionError):
        chosen = None
    if not isinstance(chosen, list) or not all(type(i) is int and 0 <= i < len(items) for i in chosen):
        raise Refusal(400, f"the body must be a JSON list of ids below {len(items):,}")
    if len(set(chosen)) < len(chosen):
        raise Refusal(400, "each id must occur only once")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", *(["path"] if items.paths is not None else []), *map(_harmless, scene.columns)])
    for item in chosen:
        path = [items.paths[item]] if items.paths is not None else []
        values = [column.shown(item) for column in scene.columns.values()]
        writer.writerow([item, *(_harmless(cell) for cell in (*path, *values))])
    return file.getvalue().encode(errors="backslashreplace")


def _harmless(cell: Any) -> Any:
    """Return a cell unchanged, or with a leading ' if a spreadsheet would read it as a formula."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    with contextlib.suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}"
