"""The state of the explorer: a run's curves from its first step on, and its scene once it has an encoder."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from likewise.data.parts import spread
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.explorer.files import MOST_BYTES, original
from likewise.explorer.scene import Scene
from likewise.report.contents import charts, name_of
from likewise.training.run import Run

WATCHED = 0.5  # seconds between checks whether the run has finished
MOST_FOUND = 100  # results of a search
MOST_POINTS = 1_000  # of a curve: more than the chart has pixels


class Explorer:
    """A run, and the scene that a thread builds once the run has an encoder."""

    def __init__(
        self,
        run: Path,
        make_scene: Callable[[Callable[[str, float], None]], Scene],
        warn: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.run = Run(run)
        self.warn = warn
        self.make_scene = make_scene
        self.scene: Scene | None = None
        self.failed = False
        self.message = "The map will appear when the run is finished."
        self.share: float | None = None  # how much of the current task is done
        self.id = secrets.token_hex(8)  # by which a page notices that the server was restarted, and reloads
        self.one_at_a_time = threading.Lock()  # for decoding and encoding, to limit the memory that they take
        self._curves: tuple[Any, dict[str, Any]] = (None, {})  # the state of the file, and what was read from it
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not (self.run.folder / "encoder.safetensors").exists():
            time.sleep(WATCHED)
        try:
            scene = self.make_scene(self._say)
            self.scene = scene
            if scene.doubt:
                self.warn(f"note: {scene.doubt}")
        except Exception as error:  # shown on the page, because an exception in a thread would go unnoticed
            kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
            self.failed, self.message, self.share = True, kind + " ".join(str(error).split()), None
            self.warn(f"no map: {self.message}")

    def _say(self, words: str, share: float) -> None:
        self.message, self.share = words, share

    def status(self) -> dict[str, Any]:
        """Return whether the map is ready, and if not, what is being done, and the share of it that is done, 0 to 1."""
        return {
            "id": self.id,
            "ready": self.scene is not None,
            "failed": self.failed,
            "said": self.message,
            "share": self.share,
        }

    def about(self, scene: Scene) -> dict[str, Any]:
        """Return what the page has to know before it draws the map."""
        searcher = scene.searcher
        count, drawn = len(searcher.items), len(scene.drawn)
        which = f"{count:,} items" if drawn == count else f"{drawn:,} of {count:,} items"
        return {
            "items": count,
            "note": f"{which}, {searcher.layer} of {searcher.encoder.recipe.encoder.name}, {scene.how}.",
            "doubt": scene.doubt,
            "columns": [{"name": column.name, "classes": column.classes} for column in scene.columns.values()],
            "words": searcher.knows_words,
            "takes": searcher.takes,
            "most_bytes": MOST_BYTES,
            "heard": searcher.encoder.modality.can_be_heard,
        }

    def curves(self) -> dict[str, Any]:
        """Return the charts and the last values of the meters; the file is only read again if it has changed."""
        path = self.run.folder / "metrics.jsonl"
        finished = (self.run.folder / "encoder.safetensors").exists()
        status = path.stat() if path.exists() else None
        state = finished, status and (status.st_mtime_ns, status.st_size)
        if self._curves[0] != state:
            self._curves = state, self._read_curves(finished)
        return self._curves[1] | {"ago": None if status is None else round(max(0, time.time() - status.st_mtime))}

    def _read_curves(self, finished: bool) -> dict[str, Any]:
        rows, recipe = self.run.metrics, self.run.recipe
        last: Mapping[str, Any] = rows[-1] if rows else {}
        drawn, dictionary = charts(rows, recipe), DICTIONARIES[recipe.dictionary.kind]
        for series in (series for chart in drawn for series in chart["series"]):
            points = series["points"]
            series["points"] = [points[i] for i in spread(np.arange(len(points)), MOST_POINTS)]
        return {
            "id": self.id,
            "title": f"{recipe.method} on {recipe.data.source or 'arrays'}",
            "rows": len(rows),
            "finished": finished,
            "step": last.get("step", 0),
            "charts": drawn,
            "meters": meters(last) if dictionary.stores else [],
            "dictionary": dictionary.title,
            "warnings": [f"step {row['step']:,}: {text}" for row in rows for text in row.get("health", [])][-20:],
        }

    def describe(self, scene: Scene, item: int) -> dict[str, Any]:
        """Return the name, captions and column values of an item."""
        items = scene.searcher.items
        values = {name: column.shown(item) for name, column in scene.columns.items()}
        path = items.paths[item] if items.paths is not None else None
        return {
            "id": item,
            "name": name_of(items, item),
            "file": original(scene.root, path) is not None,
            "captions": items.texts_of(item),
            "columns": values,
        }

    def search_names(self, scene: Scene, part: str) -> tuple[list[dict[str, Any]], int]:
        """Return the first items with `part` in their name, captions or label, and how many there are."""
        items, part, found, count = scene.searcher.items, part.casefold(), [], 0
        labels = items.labels.tolist() if items.labels is not None else None
        for item in range(len(items)):
            label = items.classes[labels[item]] if labels is not None and labels[item] >= 0 else ""
            texts = (items.paths[item] if items.paths is not None else "", label, *items.texts_of(item))
            if any(part in text.casefold() for text in texts):
                count += 1
                if count <= MOST_FOUND:
                    found.append(scene.searcher.describe(item))
        return found, count


def meters(last: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the dictionary's figures at the last step; `most` is 1 for shares, which are drawn as bars."""
    known = [
        ("keys", last.get("size"), None),
        ("filled", last.get("fill"), 1),
        ("mean age, steps", last.get("age"), None),
        ("oldest, steps", last.get("oldest"), None),
        ("consistency", last.get("consistency"), 1),
    ]
    return [{"name": name, "value": value, "most": most} for name, value, most in known if value is not None]
