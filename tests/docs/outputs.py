"""Compare what a page shows below a command with what the command prints.

Tests run short versions of the commands, so figures differ: every number counts as `N`. All other words have to be the
same, line by line. Lines that a page leaves out stand there as `…`. Four kinds of line are compared in their own way:

- tables by their words, elsewhere: their cells are results;
- progress lines, which are printed every so many seconds: a page may not show words that the last one does not have;
- what is waited for (`writing the report …`), which a terminal shows only for a moment, and notes on the health of a
  run: a page may leave them out;
- the verdict on a collapse, which depends on what was learned: it has to be the one that its own figures give;
- whether learning was worth it, and how little few test items say: such a sentence has to be one that can be printed.
"""

import re
from collections.abc import Iterator
from itertools import product

from likewise.evaluation.geometry import Geometry, collapse, verdict
from likewise.evaluation.worth import too_few, worth
from likewise.guide import PAGE

LEFT_OUT = "…"
TABLE = ("┏", "┃", "┡", "│", "├", "└")
DURATION = re.compile(r"(?<![\w.,])(?:\d+ h \d+ min|(?:\d+ min )?\d+ s)(?!\w)")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
PROGRESS = re.compile(r"\d+/\d+  loss ")
WAITING = re.compile(r"\S.* …$")
HEALTH = re.compile(rf"note\b.*\(see {re.escape(PAGE)}#[\w-]+\)$")
VERDICT = re.compile(r"(?:[\w ]+|note): ((?:not |partly )?collapsed\b.*)")
WORTH = re.compile(r"[\w ]+: ((?:not )?better than (.+?) (?:by|with) .*)")
TOO_FEW = re.compile(r"note: (.* test items? says? (?:little|nothing): .*)")


def difference(shown: str, printed: str) -> str:
    """Say what a page shows that a command does not print, or nothing if all of it is printed."""
    verdicts = [line for line in shown.splitlines() if VERDICT.fullmatch(line)]
    wrong = [line for line in verdicts if VERDICT.fullmatch(line)[1] not in verdicts_by_figures(line, shown)]
    if wrong:
        return f"the page shows a verdict that these figures do not give: {wrong[0]}"
    wrong = [line for line in shown.splitlines() if depends_on_results(line) and not can_be_printed(line)]
    if wrong:
        return f"the page shows a sentence that is never printed: {wrong[0]}"
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
    return [masked(line) for line in lines if line == LEFT_OUT or not (is_brief(line) or depends_on_results(line))]


def depends_on_results(line: str) -> bool:
    return any(pattern.fullmatch(line) for pattern in (VERDICT, WORTH, TOO_FEW))


def can_be_printed(line: str) -> bool:
    """Whether a sentence about results is one of those that are printed, figures aside."""
    if sentence := WORTH.fullmatch(line):
        return in_plural(sentence[1]) in map(in_plural, sentences_on_worth(sentence[2]))
    if sentence := TOO_FEW.fullmatch(line):
        return masked(sentence[1]) in map(masked, sentences_on_few_items())
    return True


def in_plural(text: str) -> str:
    return masked(text).replace("N point ", "N points ")


def sentences_on_worth(name: str) -> Iterator[str]:
    """Yield what can be said of an encoder beside a baseline of this name, or beside chance."""
    shares = (0.1, 0.5, 0.9)
    for few, knn, linear, before in product(shares, repeat=4):
        learned, rival, untrained = figures(few, knn, linear), figures(0.5, 0.5, 0.5), figures(before, 0.5, 0.5)
        yield str(worth(learned, rival, untrained, name=name, items=100))
        yield str(worth(learned, rival, None, name=name, items=100))
    for there, back, before in product(shares, repeat=3):
        towers = [{"cross_modal": recalls(*shares)} for shares in ((there, back), (before, 0.5))]
        yield str(worth(towers[0], None, towers[1], name=name, items=100))


def figures(few: float, knn: float, linear: float) -> dict[str, dict]:
    of_few = {"accuracy": few, "spread": 0.01, "draws": 20, "test": 100}
    return {"few_labels": {5: of_few}} | {
        key: {"accuracy": share, "test": 100} for key, share in (("knn", knn), ("linear", linear))
    }


def recalls(*shares: float) -> dict[str, dict]:
    return {
        direction: {"recall": {10: share}, "chance": {10: 0.3}, "queries": 100}
        for direction, share in zip(("image_to_text", "text_to_image"), shares, strict=True)
    }


def sentences_on_few_items() -> Iterator[str]:
    for items in (1, 5, 40):
        for learned in ({}, figures(0.5, 0.5, 0.5), {"cross_modal": recalls(0.5, 0.5)}):
            yield str(too_few(learned, items))
            if "cross_modal" in learned:
                learned["cross_modal"]["image_to_text"]["queries"] = items
                yield str(too_few(learned, items))


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
    cosine, rank = re.search(r"mean cosine of (-?[\d.]+)", line), re.search(r"effective rank ([\d.]+) of (\d+)", line)
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
