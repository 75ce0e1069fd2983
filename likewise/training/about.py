"""What has to be known to use weights, and stands in their file: is it what a run writes?

A run may have come from anyone, so nothing is built from these values before they have been validated.
"""

import math
from typing import Any

from likewise.memory import shortage

NEEDED = ("kind", "channels", "size", "stored", "fingerprint", "mean", "std")
WHOLE = {"channels": 1, "size": 1, "stored": 0, "rate": 0, "items": 0, "vocabulary": 1}  # and the least of each


def complaint(about: Any, needed: tuple[str, ...] = NEEDED) -> str | None:
    """Say what is wrong with the pre-processing of some weights, as in "got no mean"; None if nothing is."""
    missing = [name for name in needed if not isinstance(about, dict) or name not in about]
    if missing:
        return f"got no {', '.join(missing)}"
    if about["kind"] not in ("image", "vector", "sequence"):
        return f"expected a kind image, vector or sequence, got {str(about['kind'])[:40]!r}"
    for name, least in WHOLE.items():
        if name in about and (type(about[name]) is not int or about[name] < least):
            return f"expected a whole number >= {least} for {name}, got {str(about[name])[:40]!r}"
    if not isinstance(about["fingerprint"], str) or not _is_number(about.get("temperature", 0)):
        return "expected a fingerprint as text and a temperature as a number, got others"
    features, samples = _shape(about["kind"], about["channels"], about["size"])
    if words := shortage(4 * samples):
        return f"expected items that fit in memory, got a size for which one takes {words}"
    for name in ("mean", "std"):
        values = about[name]
        if not isinstance(values, list) or len(values) != features or not all(map(_is_number, values)):
            return f"expected {features} finite numbers for {name}, got others"
    return None


def _shape(kind: str, channels: int, size: int) -> tuple[int, int]:
    """How many means an item has, and how many numbers."""
    if kind == "vector":
        return size, size
    return channels, channels * size * (size if kind == "image" else 1)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and not math.isnan(value)
