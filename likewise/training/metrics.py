"""The curves of a run: `metrics.jsonl`, one object a logged step, and TensorBoard where it is installed."""

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LARGEST = 1e300  # of a number that was measured; infinity and NaN are none


class Metrics:
    """Appends rows, and mirrors their numbers to TensorBoard. After a resume it goes on behind `step`."""

    def __init__(self, folder: Path, step: int = 0, say: Callable[[str], None] = lambda sentence: None) -> None:
        self.path, self._say = folder / "metrics.jsonl", say
        self.rows = [row for row in read(self.path) if row["step"] <= step]
        write_whole(self.path, "".join(line(row) for row in self.rows))
        self._file = self.path.open("a", encoding="utf-8")
        self._board: Board | None = None
        if find_spec("tensorboard"):
            with self._dispensable():
                self._board = Board(folder / "tensorboard", step)

    def write(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))
        self._file.write(line(row))
        self._file.flush()
        if self._board is not None:
            with self._dispensable():
                self._board.write(row["step"], numbers(row))

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            with self._dispensable():
                self._board.close()

    @contextlib.contextmanager
    def _dispensable(self) -> Iterator[None]:
        """Say once that TensorBoard cannot be written, and do without it from then on."""
        try:
            yield
        except Exception as error:  # whatever goes wrong there, the run and metrics.jsonl go on
            board, self._board = self._board, None
            if board is not None:
                with contextlib.suppress(Exception):
                    board.close()
            why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            self._say(f"TensorBoard's curves end here: {why}; metrics.jsonl has them all")


class Board:
    """An event file for TensorBoard.

    TensorBoard's own writer does the same in a thread, whose failure it hands on to whoever writes next.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("ab")
        self._records = RecordWriter(self._file)
        self._append(file_version="brain.Event:2")
        # What earlier files have of later steps was given up when the run went back before them.
        self._append(step=step + 1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
        self._file.flush()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        summary = self._summary(
            value=[self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        )
        self._append(step=step, summary=summary)
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _append(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())


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
