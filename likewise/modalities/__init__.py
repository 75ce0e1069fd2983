"""Define the modalities, one file each, which holds everything that depends on the kind of data.

modalities.MODALITIES["image"].choices(part, train, recipe)         default choices, with reasons
modalities.of(part).baseline(part, ids)                             features without learning, to compare with
"""

from likewise.data.parts import Part
from likewise.modalities.audio import AudioModality
from likewise.modalities.image import ImageModality
from likewise.modalities.modality import Choice, Modality
from likewise.modalities.series import SeriesModality
from likewise.modalities.text import TextModality
from likewise.modalities.vector import VectorModality

MODALITIES: dict[str, Modality] = {
    modality.name: modality
    for modality in (ImageModality(), AudioModality(), SeriesModality(), VectorModality(), TextModality())
}

__all__ = ["MODALITIES", "Choice", "Modality", "of"]


def of(part: Part) -> Modality:
    """Return the modality of a part."""
    return MODALITIES[part.modality]
