"""The description that is stored with a run's weights: pre-processing, data and sizes.

A run may come from an untrusted source, so these values are validated before anything is built from them.
"""

import math
from typing import Any

from likewise import modalities
from likewise.data import Items
from likewise.data.parts import Ids
from likewise.memory import shortage
from likewise.modalities import MODALITIES
from likewise.recipe import Recipe

NEEDED = ("modality", "channels", "size", "stored", "fingerprint", "mean", "std")
WHOLE = {
    "channels": 1,
    "size": 1,
    "stored": 0,
    "rate": 0,
    "items": 0,
    "vocabulary": 1,
    "end": 0,
}  # whole numbers, with their minimum


def complaint(about: Any, needed: tuple[str, ...] = NEEDED) -> str | None:
    """Return what is wrong with the description of some weights, such as "got no mean", or None."""
    missing = [name for name in needed if not isinstance(about, dict) or name not in about]
    if missing:
        return f"got no {', '.join(missing)}"
    known = [name for name, modality in MODALITIES.items() if modality.stands_alone]
    if not isinstance(about["modality"], str) or about["modality"] not in known:
        return f"expected a modality {', '.join(known)}, got {str(about['modality'])[:40]!r}"
    for name, least in WHOLE.items():
        if name in about and (type(about[name]) is not int or about[name] < least):
            return f"expected a whole number >= {least} for {name}, got {str(about[name])[:40]!r}"
    if not isinstance(about["fingerprint"], str) or not _is_number(about.get("temperature", 0)):
        return "expected a fingerprint as text and a temperature as a number, got other types"
    if (wrong := MODALITIES[about["modality"]].complaint(about)) is not None:
        return wrong
    features, samples = MODALITIES[about["modality"]].shape(about["channels"], about["size"])
    if words := shortage(4 * samples):
        return f"expected items that fit in memory, got a size for which one takes {words}"
    for name in ("mean", "std"):
        values = about[name]
        if not isinstance(values, list) or len(values) != features or not all(map(_is_number, values)):
            return f"expected {features} finite numbers for {name}, got other values"
    return None


def fitted(recipe: Recipe, items: Items, train: Ids) -> dict[str, Any]:
    """Fit the pre-processing on the training items, and return it with a description of the data."""
    part = items.main
    known = {"modality": part.modality, "kind": part.kind, "fingerprint": items.fingerprint, "items": len(train)}
    return known | modalities.of(part).fit(part, train, recipe)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and not math.isnan(value)
