"""A figure that a kind of pairs measures while training, with the words and the chart that go with it.

It travels to the progress line, the report and the model card, none of which knows it by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_HELD_OUT = 1000  # items not trained on that are looked at while training, at most


@dataclass(frozen=True)
class Chart:
    """A chart of the report: curves over the steps of the run, or points of its own."""

    title: str
    note: str
    curves: Mapping[str, str] = field(default_factory=dict)  # names in metrics.jsonl, and what each curve is called
    points: Mapping[str, list[list[float | None]]] = field(default_factory=dict)  # where it is not over steps
    x: str = "step"


@dataclass(frozen=True)
class Metric:
    """A figure of the last logged row."""

    name: str  # in metrics.jsonl
    value: Any
    text: str  # the value, for a table
    note: str  # what the value means and depends on
    progress: str = ""  # words for the progress line; empty: it is not shown there
    is_kept: bool = False  # measured now and then only, so that the progress line goes on showing the last value
    chart: Chart | None = None
