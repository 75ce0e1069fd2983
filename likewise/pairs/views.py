"""Two views of one item are a pair: the pretext task of InstDisc, MoCo and SimCLR."""

from likewise.pairs.pairs import Pairs


class Views(Pairs):
    """An item's partner is the item itself, and its only id is the item."""

    name = "views"
    one_slot_an_item = True
