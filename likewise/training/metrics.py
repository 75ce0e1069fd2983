"""The curves of a run: `metrics.jsonl`, one object a logged step, and TensorBoard where it is installed."""

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LARGEST = 1e300  # of a number that was measured; infinity and NaN are none


class Metrics:
    """Appends rows, and mirrors their numbers to TensorBoard. After a resume it goes on behind `step`."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        self.rows = [row for row in read(self.path) if row["step"] <= step]
        write_whole(self.path, "".join(line(row) for row in self.rows))
        self._file = self.path.open("a", encoding="utf-8")
        self._board: Any = None
        if find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))
        self._file.write(line(row))
        self._file.flush()
        if self._board is not None:
            for name, value in numbers(row).items():
                self._board.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by name, those of a list as `name/1`, `name/2`, …"""
    found = {}
    for name, value in row.items():
        if name != "step" and isinstance(value, int | float):
            found[name] = value
        elif isinstance(value, list):
            found |= {f"{name}/{place}": part for place, part in enumerate(value, 1) if isinstance(part, float)}
    return found


def write_whole(path: Path, text: str) -> None:
    """Write a file that is the old one or the new one, whenever the process is killed or the disk is full."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics file, without lines that are no row: torn, without a step, or of other values."""
    rows = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if _is_row(row):
            rows.append(row)
    return rows


def _is_row(row: Any) -> bool:
    """Whether it is what a run writes: a step, notes on its health as text, and numbers."""
    if not isinstance(row, dict) or type(row.get("step")) is not int or row["step"] < 0:
        return False
    notes, shares = row.get("health", []), row.get("accuracy", [])
    if not isinstance(notes, list) or not isinstance(shares, list):
        return False
    measured = [*shares, *(value for name, value in row.items() if name not in ("health", "accuracy"))]
    return all(isinstance(note, str) for note in notes) and all(map(_is_number_or_none, measured))


def _is_number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and -LARGEST < value < LARGEST)


def line(row: Mapping[str, Any]) -> str:
    """A row as JSON; a number that is not one becomes null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    return json.dumps(plain, ensure_ascii=False) + "\n"
