"""Dictionaries by name, and where their keys come from: a row for each."""

from dataclasses import dataclass

from likewise.dictionaries.in_batch import KIND as BATCH
from likewise.dictionaries.key_queue import KIND as QUEUE
from likewise.dictionaries.kind import DictionaryKind
from likewise.dictionaries.memory_bank import KIND as BANK
from likewise.dictionaries.nearest import KIND as NEAREST

DICTIONARIES: dict[str, DictionaryKind] = {kind.name: kind for kind in (BATCH, QUEUE, BANK, NEAREST)}


@dataclass(frozen=True)
class KeySource:
    """Where keys come from."""

    name: str
    with_gradient: bool = False  # they are the encoder's own, and it learns from them
    by_copy: bool = False  # a momentum copy of the encoder makes them
    from_slots: bool = False  # they are the slots of the dictionary
    options: tuple[str, ...] = ()  # of the recipe's section, besides `by`


KEYS = {
    source.name: source
    for source in (
        KeySource("encoder", with_gradient=True),
        KeySource("momentum", by_copy=True, options=("momentum", "schedule")),
        KeySource("bank", from_slots=True),
    )
}
