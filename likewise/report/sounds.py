"""Sounds of items, embedded in the page as WAV files, so that it can be listened to without a server or a network."""

import base64
from collections.abc import Sequence

from likewise import modalities
from likewise.data import Items

LONGEST = 1.5  # seconds of a recording, at most; the explorer plays more
MOST_LETTERS = 900_000  # of all sounds together, as base64


def of_items(items: Items, ids: Sequence[int]) -> list[str]:
    """Return the beginning of recordings as data URIs: as many of the first ones as a page has room for.

    The list is empty if the items cannot be heard.
    """
    modality, uris, room = modalities.of(items.main), list[str](), MOST_LETTERS
    for item in ids if modality.can_be_heard else ():
        sound = modality.sound(items.main, item, LONGEST)
        assert sound is not None, "what can be heard has a sound"
        uris.append("data:audio/wav;base64," + base64.b64encode(sound).decode())
        room -= len(uris[-1])
        if room < 0:
            return uris[:-1]
    return uris
