"""The page's server: answers about one run, by ids of its items; Starlette underneath."""

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

PAGE = {  # what the page is made of: its kind and the package that has it
    "page.html": ("text/html", "explorer"),
    "explore.css": ("text/css", "explorer"),
    "points.js": ("text/javascript", "explorer"),
    "explore.js": ("text/javascript", "explorer"),
    "page.css": ("text/css", "report"),
    "parts.js": ("text/javascript", "report"),
    "charts.js": ("text/javascript", "report"),
}
LONGEST_WORDS = 1_000  # letters


class Refusal(Exception):  # noqa: N818 - said to people
    """An answer in one sentence, with its status."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def on_one_core(handler: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Answer in a thread of the server without an OpenMP team of its own (see `likewise.threads`)."""

    @wraps(handler)
    def answered(request: Request) -> Response:
        use_one_core()
        return handler(request)

    return answered


class Answers:
    """What is asked of an explorer, and its answers: a method for each route."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer, self.uploads = explorer, Uploads()

    def scene(self) -> Scene:
        if self.explorer.scene is None:
            raise Refusal(409, self.explorer.said)
        return self.explorer.scene

    def item(self, request: Request) -> int:
        found: int = request.path_params["item"]
        if found >= len(self.scene().searcher.items):
            raise Refusal(404, f"an id must be below {len(self.scene().searcher.items):,}, got {found}")
        return found

    def wanted(self, request: Request) -> int:
        text = request.query_params.get("k", "12")
        if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MOST_FOUND):
            raise Refusal(400, f"k must be a whole number of 1 to {MOST_FOUND}, got {text[:20]}")
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
        """(m, 2) float32, little-endian."""
        return Response(np.ascontiguousarray(self.scene().points, dtype="<f4").tobytes(), media_type=BYTES)

    def ids(self, request: Request) -> Response:
        """(m,) int32: the items on the map."""
        return Response(self.scene().drawn.astype("<i4").tobytes(), media_type=BYTES)

    def column(self, request: Request) -> Response:
        """(m,) of a column: int32 classes, or float32."""
        place: int = request.path_params["place"]
        if place >= len(self.scene().columns):
            raise Refusal(404, f"a column must be below {len(self.scene().columns)}, got {place}")
        found = list(self.scene().columns.values())[place]
        kind = "<f4" if found.classes is None else "<i4"
        return Response(found.values[self.scene().drawn].astype(kind).tobytes(), media_type=BYTES)

    def told(self, request: Request) -> Response:
        return answer(self.explorer.told(self.scene(), self.item(request)))

    def picture(self, request: Request) -> Response:
        """An item's picture as PNG."""
        (tile,) = magnified(of_items(self.scene().searcher.items, np.array([self.item(request)])))
        file = io.BytesIO()
        Image.fromarray(tile).save(file, "png")
        return Response(file.getvalue(), media_type="image/png")

    def heard(self, request: Request) -> Response:
        """The beginning of a recording as WAV."""
        searcher, chosen = self.scene().searcher, self.item(request)
        sound = searcher.encoder.modality.sound(searcher.items.main, chosen)
        if sound is None:
            raise Refusal(404, "only recordings can be heard")
        return Response(sound, media_type="audio/wav")

    def file(self, request: Request) -> Response:
        """The original of an item, which is asked for by its id: no path comes from outside."""
        items, chosen = self.scene().searcher.items, self.item(request)
        found = original(self.scene().root, items.paths[chosen] if items.paths is not None else None)
        if found is None:
            raise Refusal(404, f"item {chosen} has no file in the data")
        return FileResponse(found[0], media_type=found[1])

    def like(self, request: Request) -> Response:
        return answer(self.scene().searcher.like(self.item(request), self.wanted(request)))

    def find(self, request: Request) -> Response:
        """By an id, by words where the encoder knows them, else by name."""
        words, searcher = request.query_params.get("words", "").strip(), self.scene().searcher
        if not words or len(words) > LONGEST_WORDS:
            raise Refusal(400, f"words must be 1 to {LONGEST_WORDS:,} letters, got {len(words):,}")
        if not searcher.knows_words:
            found, count = self.explorer.called(self.scene(), words)
            return answer({"by": "name", "found": found, "count": count})
        with self.explorer.one_at_a_time:
            found = searcher.like_words(words, self.wanted(request))
        return answer({"by": "words", "found": found, "note": searcher.note_on_words(words)})

    async def upload(self, request: Request) -> Response:
        searcher, k = self.scene().searcher, self.wanted(request)
        name = unquote(request.headers.get("x-name", "the file"))[:200]

        def found(content: bytearray) -> list[dict[str, Any]]:
            use_one_core()
            with self.explorer.one_at_a_time, uploaded(content, searcher, name) as path:
                return searcher.like_file(path, k, name=name)

        with self.uploads.one_of(client(request)):
            content = await received(request.stream(), request.headers.get("content-length"))
            return answer(await asyncio.to_thread(found, content))

    async def export(self, request: Request) -> Response:
        """The chosen items with all that is known of them, as CSV."""
        most = 12 * len(self.scene().searcher.items) + 1000  # bytes: every id once, with a comma and a space
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
        Route("/item/{item:int}", answers.told),
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


def answer(found: Any) -> Response:
    """JSON in ASCII: names of files need not be text."""
    content = json.dumps(plain(found), allow_nan=False)
    return Response(content, media_type="application/json", headers={"Cache-Control": "no-store"})


def refused(request: Request, error: Exception) -> Response:
    """What went wrong, in one sentence."""
    if isinstance(error, Refusal):
        status, words = error.status, str(error)
    elif isinstance(error, HTTPException):
        status, words = error.status_code, error.detail
    else:
        known: dict[type[Exception], int] = {TooLarge: 413, TooMany: 429, TooSlow: 408}
        status, words = known.get(type(error), 500 if isinstance(error, OSError) else 400), str(error)
    # Whoever still sends a body that nobody reads is cut off.
    headers = {"Connection": "close"} if isinstance(error, TooLarge | TooMany | TooSlow) else None
    return Response(json.dumps({"error": " ".join(words.split())}), status, headers, "application/json")


def client(request: Request) -> str:
    """Who asks: an address, as a browser's tabs each have a port of their own."""
    return request.client.host if request.client is not None else ""


def part_of_page(name: str) -> Response:
    kind, package = PAGE[name]
    content = (resources.files(f"likewise.{package}") / name).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def as_csv(scene: Scene, content: bytearray) -> bytes:
    """Ids, paths and columns of the items in a JSON list of ids."""
    items, file = scene.searcher.items, io.StringIO()
    try:
        chosen = json.loads(content)
    except (ValueError, RecursionError):
        chosen = None
    if not isinstance(chosen, list) or not all(type(i) is int and 0 <= i < len(items) for i in chosen):
        raise Refusal(400, f"a list of ids below {len(items):,} is expected")
    if len(set(chosen)) < len(chosen):
        raise Refusal(400, "each id is expected once")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", *(["path"] if items.paths is not None else []), *map(_harmless, scene.columns)])
    for item in chosen:
        path = [items.paths[item]] if items.paths is not None else []
        values = [column.told(item) for column in scene.columns.values()]
        writer.writerow([item, *(_harmless(cell) for cell in (*path, *values))])
    return file.getvalue().encode(errors="backslashreplace")


def _harmless(cell: Any) -> Any:
    """The same, but for what a spreadsheet would take for a formula."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    with contextlib.suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}"
