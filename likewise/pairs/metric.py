"""A figure that a kind of pairs measures during training, with its text and its chart.

The progress line, the report and the model card show whatever metrics they are given, without knowing their names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_HELD_OUT = 1000  # held-out items that are evaluated during training, at most


@dataclass(frozen=True)
class Chart:
    """A chart of the report: curves over the steps of the run, or given points."""

    title: str
    note: str
    curves: Mapping[str, str] = field(default_factory=dict)  # titles of curves by their names in metrics.jsonl
    points: Mapping[str, list[list[float | None]]] = field(default_factory=dict)  # (x, y) by title, if not over steps
    x: str = "step"


@dataclass(frozen=True)
class Metric:
    """A figure of the last logged row."""

    name: str  # in metrics.jsonl
    value: Any
    text: str  # the value, for a table
    note: str  # what the value means and depends on
    progress: str = ""  # text for the progress line, or empty if it is not shown there
    is_kept: bool = False  # it is measured at few steps, so the progress line keeps showing the last value
    chart: Chart | None = None
