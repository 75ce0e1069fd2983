"""Compare what a page shows below a command with what the command prints.

Tests run short versions of the commands, so figures differ: every number counts as `N`. All other words have to be the
same, line by line. Lines that a page leaves out stand there as `…`. Four kinds of line are compared in their own way:

- tables by their words, elsewhere: their cells are results;
- progress lines, which are printed every so many seconds: a page may not show words that the last one does not have;
- what is waited for (`writing the report …`), which a terminal shows only for a moment, and notes on the health of a
  run: a page may leave them out;
- the verdict on a collapse, which depends on what was learned: it has to be the one that its own figures give.
"""

import re

from likewise.evaluation.geometry import Geometry, collapse, verdict
from likewise.guide import PAGE

LEFT_OUT = "…"
TABLE = ("┏", "┃", "┡", "│", "├", "└")
DURATION = re.compile(r"(?<![\w.,])(?:\d+ h \d+ min|(?:\d+ min )?\d+ s)(?!\w)")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
PROGRESS = re.compile(r"\d+/\d+  loss ")
WAITING = re.compile(r"\S.* …$")
HEALTH = re.compile(rf"note\b.*\(see {re.escape(PAGE)}#[\w-]+\)$")
VERDICT = re.compile(r"(?:[\w ]+|note): ((?:not |partly )?collapsed\b.*)")


def difference(shown: str, printed: str) -> str:
    """Say what a page shows that a command does not print, or nothing if all of it is printed."""
    verdicts = [line for line in shown.splitlines() if VERDICT.fullmatch(line)]
    wrong = [line for line in verdicts if VERDICT.fullmatch(line)[1] not in verdicts_by_figures(line, shown)]
    if wrong:
        return f"the page shows a verdict that these figures do not give: {wrong[0]}"
    unknown = [line for line in brief(shown) if not is_printed(line, printed)]
    if unknown:
        return f"the page shows a line of a kind that was not printed: {unknown[0]}"
    lines, place = lasting(printed), 0
    parts = split(lasting(shown))
    for number, part in enumerate(parts):
        starts = [0] if number == 0 and part else range(place, len(lines) + 1)
        ends = [len(lines)] if number == len(parts) - 1 and part else range(place, len(lines) + 1)
        text = " ".join(part)
        found = [(start, end) for start in starts for end in ends if " ".join(lines[start:end]) == text]
        if not found:
            return "\n  ".join(["the page shows:", *part, "and what was printed is:", *lines])
        place = found[0][1]
    return ""


def masked(text: str) -> str:
    """Return a text with `N` for every number, `N s` for every duration, and single spaces."""
    return " ".join(NUMBER.sub("N", DURATION.sub("N s", text)).split())


def lasting(text: str) -> list[str]:
    """Return the lines that a short version of a command prints as well, masked. A table is left out."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(TABLE)]
    return [masked(line) for line in lines if line == LEFT_OUT or not (is_brief(line) or VERDICT.fullmatch(line))]


def is_brief(line: str) -> bool:
    """Whether a line stays only for a moment in a terminal, or depends on how far a run has come."""
    return bool(WAITING.match(line) or HEALTH.match(line) or (PROGRESS.match(line) and not line.endswith("done")))


def brief(text: str) -> list[str]:
    return [line for line in text.splitlines() if line != LEFT_OUT and is_brief(line)]


def is_printed(line: str, printed: str) -> bool:
    """Whether a brief line was printed, or could have been by a run of more steps."""
    if not PROGRESS.match(line):
        return masked(line) in map(masked, brief(printed))
    last = next((masked(other) for other in printed.splitlines() if PROGRESS.match(other)), "")
    return set(masked(line).split()) <= {*last.split(), "left", "s"}


def split(lines: list[str]) -> list[list[str]]:
    """Return the lines between those that are left out."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def verdicts_by_figures(line: str, text: str) -> list[str]:
    """Return the sentences about a collapse that the figures in a line give, for the items that the text names."""
    cosine, rank = re.search(r"mean cosine of ([\d.]+)", line), re.search(r"effective rank ([\d.]+) of (\d+)", line)
    spread, items = re.search(r"uniformity (\S+)", line), re.search(r"unit rows of ([\d,]+)", text)
    measured = Geometry(
        uniformity=float(spread[1]) if spread else 0.0,
        effective_rank=float(rank[1]),
        alike=float(cosine[1]),
        zeros=0,
        dim=int(rank[2]),
        items=int(items[1].replace(",", "")) if items else 1_000,
    )
    return [verdict(measured), str(collapse(measured))]
