"""The metrics of a run: `metrics.jsonl`, one JSON object for each logged step, and TensorBoard if it is installed."""

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

LARGEST = 1e300  # a larger number cannot be a measurement


class Metrics:
    """Appends rows to metrics.jsonl and TensorBoard. A resumed run keeps the rows up to `step`."""

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
        """On an error, say once that TensorBoard cannot be written, and stop writing to it."""
        try:
            yield
        except Exception as error:  # a problem with TensorBoard must not end the run
            board, self._board = self._board, None
            if board is not None:
                with contextlib.suppress(Exception):
                    board.close()
            why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            self._say(f"TensorBoard's curves end here: {why}; metrics.jsonl still has everything")


class Board:
    """An event file for TensorBoard.

    TensorBoard's own writer works in a thread, and raises that thread's errors at a later write.
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
        # Tell TensorBoard to drop later steps in earlier files: the run has gone back before them.
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
    """Return the numbers of a row by name; those of a list are named `name/1`, `name/2`, …"""
    values = {}
    for name, value in row.items():
        if name != "step" and isinstance(value, int | float):
            values[name] = value
        elif isinstance(value, list):
            values |= {f"{name}/{place}": part for place, part in enumerate(value, 1) if isinstance(part, float)}
    return values


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically: if the process is killed or the disk is full, the old file remains."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics file; lines that are incomplete or not what a run writes are skipped."""
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
    """Return whether a value is a row as a run writes it: a step, notes on health as text, and numbers."""
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
    """Return a row as a line of JSON; NaN and infinity become null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    return json.dumps(plain, ensure_ascii=False) + "\n"
