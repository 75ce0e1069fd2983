"""The tables of dictionaries and of key sources by name: one row for each."""

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
    with_gradient: bool = False  # the encoder makes the keys and gets a gradient from them
    by_copy: bool = False  # a momentum copy of the encoder makes the keys
    from_slots: bool = False  # the keys are the slots of the dictionary
    options: tuple[str, ...] = ()  # recipe keys of [keys] that it reads, besides `by`


KEYS = {
    source.name: source
    for source in (
        KeySource("encoder", with_gradient=True),
        KeySource("momentum", by_copy=True, options=("momentum", "schedule")),
        KeySource("bank", from_slots=True),
    )
}
