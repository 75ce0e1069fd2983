"""Decide the role of each column of a table: as the user says, else by its name, its type and how its values change.

A clock or a row number would give the answer away, because it alone tells which frame comes next. So a column that
looks like one is not a channel unless the user names it as one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise.data.cells import DATES, HOURS
from likewise.data.items import DataError

CHANNELS = "channels"  # the role that several columns may play, as in ax+ay+az
# Names that give a column its role; if a table has several of them, the first one wins.
ROLES = {
    "sequence": ("sequence", "sequence_id", "series", "series_id", "recording", "session", "id"),
    "time": ("time", "timestamp", "t"),
    "y": ("label", "y", "class", "activity"),
    "group": ("group", "subject", "speaker"),
    "is_test": ("is_test", "test"),
    CHANNELS: (),
}
CALLED = {"sequence": "a sequence", "y": "a label", "group": "a group", "is_test": "a test part"}

# A name looks like a time if one of its words matches TIME, and all others match TIME or WITH_TIME.
TIME = re.compile(
    r"times?|timestamps?|ts|datetime|dates?|clock|elapsed|year|month|week|weekday|day|hour|minute|seconds?|millis|"
    r"milliseconds|microseconds|nanoseconds|dayofweek|dayofyear|timeofday|unixtime|"
    r"时间|时间戳|日期|年|年份|月|月份|日|小时|分钟|秒"
)
WITH_TIME = re.compile(
    r"s|secs?|ms|msec|us|usec|micros|ns|nsec|nanos|mins?|minutes|h|hrs?|hours|d|days|unix|epoch|utc|gmt|local|"
    r"rel|relative|abs|absolute|since|start|end|from|to|of|the|in|at|stamp|sample|sampling|log|logging|logged|"
    r"record|recorded|recording|event|measurement|measured|system|sensor|device|server|gps"
)
# A single t may also mean temperature, as in t_min and t1, but not in t_ms.
LONE_T = re.compile("t")
WITH_T = re.compile(r"secs?|seconds|ms|msec|millis|us|usec|micros|ns|nsec|nanos|unix|utc|epoch|elapsed")
TEMPERATURES = ("T", "Ts")
INDEX = re.compile(r"index|idx|unnamed|row|rowid|序号|索引|行号")
WITH_INDEX = re.compile(r"id|no|nr|num|number|level|old|original")
INDEX_NAMES = ("", "#", "level_0")  # pandas writes an index to CSV under an empty name

A_TIME, AN_INDEX = "looks like a time", "looks like an index"
NOT_NUMBERS = "not numbers"
MOST, LONGEST = 12, 40  # how many names are listed in a message, and how many letters of each
MOVES = 16  # so many steps all go up by chance in one of 65,536 columns


@dataclass(frozen=True)
class Moves:
    """How the values of a column change from row to row within its sequences."""

    up: int  # how often the value increases
    down: int  # how often it decreases
    low: float  # the smallest value; NaN if there are no numbers
    high: float  # the largest value
    expected: int  # changes that a counter makes at least: two per sequence, where a switch makes one

    def __add__(self, other: "Moves") -> "Moves":
        low, high = float(np.fmin(self.low, other.low)), float(np.fmax(self.high, other.high))
        return Moves(self.up + other.up, self.down + other.down, low, high, self.expected + other.expected)

    def why_not(self) -> str:
        """Return why a column that changes like this is not a channel, or an empty string if it may be one."""
        if np.isnan(self.low):
            return "empty"
        if not self.expected:  # all sequences have one row, so nothing is known
            return ""
        if self.low == self.high:
            return "constant"
        if not self.up and not self.down:
            return "constant within each sequence"
        if not (self.up and self.down) and self.up + self.down >= max(MOVES, self.expected):
            return f"only counts {'up' if self.up else 'down'} within sequences"
        return ""


def moves(values: NDArray[np.float64], lengths: NDArray[np.int64]) -> Moves:
    """Return how a column changes; values (rows,) are ordered by sequence, lengths (n,) are those of the sequences."""
    within_sequence = np.ones(max(0, len(values) - 1), dtype=np.bool_)
    ends = np.cumsum(lengths)[:-1]
    within_sequence[ends[(ends > 0) & (ends < len(values))] - 1] = False  # the step from one sequence to the next
    up = int(np.count_nonzero(within_sequence & (values[1:] > values[:-1])))
    down = int(np.count_nonzero(within_sequence & (values[1:] < values[:-1])))
    low, high = (float(reduce(values, initial=np.nan)) for reduce in (np.fmin.reduce, np.fmax.reduce))
    return Moves(up, down, low, high, int(np.minimum(np.maximum(lengths - 1, 0), 2).sum()))


def looks_like(name: str, kind: str) -> str:
    """Return whether a column looks like a time or an index by its name and Arrow type; empty if neither."""
    if kind.startswith((*DATES, *HOURS)):
        return A_TIME
    if name.lower() in INDEX_NAMES:
        return AN_INDEX
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)  # splits loggingTime into two words
    words = re.findall(r"[a-z]+|[一-鿿]+", parts.lower())
    if _made_of(words, LONE_T, WITH_T) or _made_of(words, TIME, WITH_TIME):
        return "" if name in TEMPERATURES or re.search(r"\d", name) else A_TIME
    return AN_INDEX if _made_of(words, INDEX, WITH_INDEX) else ""


def _made_of(words: Sequence[str], one: re.Pattern[str], others: re.Pattern[str]) -> bool:
    """Return whether at least one word matches the first pattern, and every word matches one of the two."""
    is_one = [one.fullmatch(word) is not None for word in words]
    return any(is_one) and all(hit or others.fullmatch(word) for hit, word in zip(is_one, words, strict=True))


def named_channels(columns: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the channels that the user names, as in `ax+ay+az`; empty if the user names none."""
    text = columns.get(CHANNELS)
    if text is None:
        return ()
    channels = (text,) if text in names else tuple(name.strip() for name in text.split("+"))
    if len(set(channels)) < len(channels):
        raise DataError(f"{CHANNELS} must differ from each other, got {text!r}")
    return channels


def roles_of(table: Any, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the column of each role except channels: the given one, or one with a usual name.

    A time is returned only if it is given.
    """
    column_of_role = {role: name for role, name in columns.items() if role != CHANNELS}
    taken = {*column_of_role.values(), *named_channels(columns, table.column_names)}
    lower: dict[str, str] = {}
    for name in table.column_names:
        if name not in taken:
            lower.setdefault(name.lower(), name)
    for name, role in named_like(table).items():
        if name in lower:
            column_of_role.setdefault(role, lower[name])
    return column_of_role


def named_like(table: Any) -> dict[str, str]:
    """Return the role that each usual name, in lower case, gives to a column of this table.

    A column y is a channel instead of the label if there is a column x, or if it holds fractions.
    """
    kinds = {name.lower(): str(kind) for name, kind in zip(table.column_names, table.schema.types, strict=True)}
    is_channel = "x" in kinds or kinds.get("y", "").startswith(("float", "double", "halffloat"))
    return {name: role for role in CALLED for name in ROLES[role] if not (name == "y" and is_channel)}


def list_reasons(left_out: Mapping[str, str]) -> str:
    """List columns with the reasons why they are not channels: `t_ms, year (looks like a time), id2 (constant)`."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        by_reason.setdefault(reason, []).append(name)
    return ", ".join(f"{shortened(names)} ({reason})" for reason, names in by_reason.items())


def shortened(names: Sequence[str]) -> str:
    """Join the names of columns with commas; if there are many, only the first few."""
    shown = [" ".join(name.split())[:LONGEST] or "a column without a name" for name in names[:MOST]]
    return ", ".join(shown) + (f" and {len(names) - MOST:,} more" if len(names) > MOST else "")
