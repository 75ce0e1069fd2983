"""Say in one sentence whether learning was worth it: is the encoder better than what one has without learning?

It is compared with the modality's baseline (pixels, MFCC statistics, channel statistics) and with the encoder before
training, on the same items. Five labels a class decide, since few labels are why people pre-train; if other figures
disagree, the sentence says so. For captions recall decides, compared with chance. A difference inside its interval at
95 % counts as not better.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from likewise.evaluation.interval import Interval, difference, wilson

Row = Mapping[str, Any]  # the figures of one encoder by name, as `Figures.as_dict` returns them

PER_CLASS = 5  # labels a class that decide
UNTRAINED = "the untrained encoder"
DIRECTIONS = {"image_to_text": "image → text", "text_to_image": "text → image"}
LITTLE, NOTHING = 0.1, 0.2  # a figure with an interval of a larger half-width says little, or nothing


@dataclass(frozen=True)
class Compared:
    """A figure of the learned encoder beside that of a rival, on the same items."""

    how: str  # such as "by k-NN"
    learned: float
    rival: float
    gain: Interval  # where the true difference may lie

    @property
    def better(self) -> bool:
        return self.gain.low > 0

    @property
    def worse(self) -> bool:
        return self.gain.high < 0

    @property
    def points(self) -> str:
        """Return the difference in percentage points, in words."""
        size = 100 * (self.learned - self.rival)
        number = f"{size:.0f}" if size >= 0.95 else f"{size:.1f}"
        return f"{number} point{'' if number == '1' else 's'}"

    @property
    def values(self) -> str:
        return f"{self.learned:.3f} against {self.rival:.3f}"

    @property
    def verdict(self) -> str:
        """Return a few words that say which one is better by this figure."""
        words = "better" if self.better else "worse" if self.worse else "not better"
        return f"{words} {self.how} ({self.values})"


def worth(learned: Row, baseline: Row | None, untrained: Row | None, *, name: str, items: int) -> str | None:
    """Return the sentence, without a full stop; None if there is nothing to compare with.

    `name` is what the baseline is called, and `items` the number of independent test items, which is smaller than the
    number of tested rows if these are frames of sequences.
    """
    if "cross_modal" in learned:
        return _by_recall(learned["cross_modal"], None if untrained is None else untrained["cross_modal"])
    if baseline is None:
        return None
    if "knn" not in learned:
        return f"without labels of held-out items it cannot be said whether this is better than {name}"
    decisive, *others = compared(learned, baseline, items)
    disagree = " and ".join(other.verdict for other in others if other.better != decisive.better)
    if not decisive.better:
        inside = "" if decisive.worse else f", inside the interval of ± {decisive.gain.half_width:.3f}"
        though = f", though {disagree}" if disagree else ""
        advice = "" if untrained is None else f": train longer, or use {name}"
        return f"not better than {name} {decisive.how} ({decisive.values}{inside}){though}{advice}"
    but = f", but {disagree}" if disagree else ""
    sentence = f"better than {name} by {decisive.points} {decisive.how} ({decisive.values}){but}"
    if untrained is not None and not (start := next(compared(learned, untrained, items))).better:
        sentence += f"; not better than {UNTRAINED} ({start.values}): train longer"
    return sentence


def compared(learned: Row, rival: Row, items: int) -> Iterator[Compared]:
    """Yield each figure of two rows side by side, the decisive one first."""
    few, fewer = (row.get("few_labels", {}).get(PER_CLASS) for row in (learned, rival))
    if few and fewer:
        # The same labels are drawn for both rows. How much that helps is not known, so it is not counted on.
        error = ((few["spread"] ** 2 + fewer["spread"] ** 2) / few["draws"]) ** 0.5
        yield _side_by_side("with five labels a class", few, fewer, items, error)
    for key, how in (("knn", "by k-NN"), ("linear", "by a linear probe")):
        if key in learned and key in rival:
            yield _side_by_side(how, learned[key], rival[key], items)


def _side_by_side(how: str, learned: Row, rival: Row, items: int, error: float = 0.0) -> Compared:
    first, second = learned["accuracy"], rival["accuracy"]
    return Compared(how, first, second, difference(first, second, min(items, learned["test"]), error))


def _by_recall(learned: Row, untrained: Row | None) -> str:
    """Compare recall with chance and with the untrained encoder; image → text decides."""
    decisive, other = (_against_chance(learned[key], title) for key, title in DIRECTIONS.items())
    but = "" if other.better == decisive.better else f", {'but' if decisive.better else 'though'} {other.verdict}"
    if not decisive.better:
        return f"not better than chance {decisive.how} ({decisive.values}){but}: train longer"
    sentence = f"better than chance by {decisive.points} {decisive.how} ({decisive.values}){but}"
    if untrained is None:
        return sentence
    direction = learned["image_to_text"]
    before = untrained["image_to_text"]["recall"][decisive_k(direction)]
    start = Compared("", decisive.learned, before, difference(decisive.learned, before, direction["queries"]))
    if start.better:
        return f"{sentence}, and than {UNTRAINED} by {start.points}"
    return f"{sentence}; not better than {UNTRAINED} ({start.values}): train longer"


def _against_chance(direction: Row, title: str) -> Compared:
    """Compare recall with chance, which is known exactly, so that only recall has an interval."""
    k = decisive_k(direction)
    recall, guessed = direction["recall"][k], direction["chance"][k]
    interval = wilson(recall, direction["queries"])
    gain = Interval(interval.low - guessed, interval.high - guessed)
    return Compared(f"by recall@{k} {title}", recall, guessed, gain)


def decisive_k(direction: Row) -> int:
    """Return the largest k for which guessing finds a partner less than half of the time; else the smallest."""
    ks = sorted(direction["recall"])
    return int(next((k for k in reversed(ks) if direction["chance"][k] < 0.5), ks[0]))


def too_few(learned: Row, items: int) -> str | None:
    """Say that figures of so few test items mean little, if the interval of the accuracy or recall is that wide."""
    share, what = 0.5, "an accuracy"  # without labels: the widest interval
    if "cross_modal" in learned:
        direction = learned["cross_modal"]["image_to_text"]
        k = decisive_k(direction)
        share, what, items = direction["recall"][k], f"the recall@{k}", direction["queries"]
    elif "knn" in learned:
        share, what, items = learned["knn"]["accuracy"], "the k-NN accuracy", min(items, learned["knn"]["test"])
    interval = wilson(share, items)
    if interval.half_width <= LITTLE:
        return None
    says = "nothing" if interval.half_width > NOTHING else "little"
    tested = "one test item says" if items == 1 else f"{items:,} test items say"
    return (
        f"{tested} {says}: {what} of {share:.3f} could as well be anything from {interval.low:.3f} to "
        f"{interval.high:.3f}; 100 items would tell it to about ± 0.1, 400 to ± 0.05"
    )
