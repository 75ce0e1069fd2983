"""What users see during training: the plan, a progress bar in a terminal or plain lines elsewhere, and notes."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from likewise.pairs.metric import Metric
from likewise.printing import printable

SECONDS_BETWEEN_LINES = 15.0


class Observer:
    """Receives the progress of a run; this base class ignores it."""

    def plan(self, lines: list[str]) -> None: ...
    def start(self, step: int, total: int) -> None: ...
    def row(self, row: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> None: ...
    def say(self, sentence: str) -> None: ...
    def stop(self) -> None: ...

    def waiting_for(self, what: str) -> AbstractContextManager[None]:
        """Show what is being waited for, until the block ends."""
        return nullcontext()


class Screen(Observer):
    """Prints the progress of a run to standard error."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False, emoji=False)  # file names may contain `:cat:`
        self._bar: Progress | None = None
        self._total, self._last = 0, 0.0
        self._evaluated: dict[str, str] = {}  # the latest values of figures that are not in every row

    def plan(self, lines: list[str]) -> None:
        for text in lines:
            name, _, rest = text.partition("\t")
            line = f"[bold]{name:<11}[/bold]{plain(rest)}" if rest else plain(text)
            self.console.print(line, soft_wrap=True)

    def start(self, step: int, total: int) -> None:
        self._total, self._last = total, time.monotonic()
        if self.console.is_terminal:
            self._bar = Progress(
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(compact=True),
                console=self.console,
            )
            self._bar.start()
            self._bar.add_task("", total=total, completed=step)

    def row(self, row: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> None:
        self._evaluated |= held_out_figures(row, metrics)
        description = words(row, self._evaluated, metrics)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=row["step"], description=description)
        elif time.monotonic() - self._last > SECONDS_BETWEEN_LINES or row["step"] == self._total:
            self._last = time.monotonic()
            left = f"{duration(row['seconds_left'])} left" if row["seconds_left"] else "done"
            self.console.print(f"{row['step']}/{self._total}  {description}  {left}", soft_wrap=True)

    def say(self, sentence: str) -> None:
        self.console.print(f"[yellow]note[/yellow]  {plain(sentence)}", soft_wrap=True)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Show what is being waited for: in a terminal as a status that disappears, elsewhere as a line."""
        if self.console.is_terminal:
            with self.console.status(f"{plain(what)} …"):
                yield
        else:
            self.console.print(f"{plain(what)} …", soft_wrap=True)
            yield


def plain(text: str) -> str:
    """Escape text so that neither rich nor the terminal interprets it."""
    return escape(printable(text))


def held_out_figures(row: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> dict[str, str]:
    """Return a row's figures of held-out items as text, by name."""
    figures = {}
    if row.get("knn") is not None:
        # The report and `evaluate` may use more items, so the number of items is part of the figure.
        figures["knn"] = f"k-NN of {row['knn_items']:,} items {row['knn']:.3f}"
    return figures | {metric.name: metric.progress for metric in metrics if metric.is_kept}


def words(row: Mapping[str, Any], evaluated: Mapping[str, str], metrics: Sequence[Metric] = ()) -> str:
    """Return a row as text: loss and chance, information, the latest evaluation, speed."""
    parts = [f"loss {row['loss']:.3f}"]
    if row.get("chance") is not None:
        parts[0] += f" (chance {row['chance']:.2f})"
    for name, sign in (("bound", "≥"), ("estimate", "≈")):
        if row.get(name) is not None:
            parts.append(f"information {sign} {row[name]:.2f} nats")
    parts += [metric.progress for metric in metrics if metric.progress and not metric.is_kept]
    parts += evaluated.values()
    if row.get("consistency") is not None and row.get("oldest"):
        parts.append(f"consistency {row['consistency']:.3f}")
    parts.append(f"{row['items_per_second']:,.0f} items/s")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Format a duration, as in `45 s`, `3 min 10 s` or `2 h 5 min`."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
