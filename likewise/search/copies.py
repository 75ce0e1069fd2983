"""Find test items that are copies of training items: an encoder has seen them, and k-NN looks their labels up.

Exact copies have the same content. They are found by hashes, so memory grows with the test items only. Near copies,
such as a picture that was saved again with another compression, have nearly the same features without learning.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from likewise.data import Items
from likewise.data.parts import Ids, Part, spread
from likewise.evaluation.neighbours import nearest

MOST_BYTES = 2**31  # of rows that are hashed, at most
MOST_PRODUCTS = 2**35  # multiplications to look for near copies, at most; about a second on one core
NEAR = 0.995  # cosine of the standardised features of a near copy, at least
FEWEST_FEATURES = 32  # with fewer features, different items are nearly the same by chance


@dataclass(frozen=True)
class Copies:
    """Test items that are copies of training items, as ids of a test item and of its first copy."""

    exact: tuple[tuple[int, int], ...]
    near: tuple[tuple[int, int], ...]
    tested: int  # test items
    searched: int  # training items that were compared by content
    train: int  # all training items


def copies(items: Items, train: Ids, tested: Items, test: Ids, features: tuple[Tensor, Tensor] | None) -> Copies:
    """Compare the test items `test` of `tested` with the training items `train` of `items`.

    `features` are those without learning, of the training and of the test items, (n, d) and (m, d); without them, only
    exact copies are found. Of data larger than `MOST_BYTES`, only a part of the items is compared by content.
    """
    searched = _bounded(items.main, train)
    wanted: dict[bytes, list[int]] = {}
    for item in _bounded(tested.main, test).tolist():
        wanted.setdefault(_digest(tested.main, item), []).append(item)
    exact: dict[int, int] = {}
    for item in searched.tolist():
        for copy in wanted.pop(_digest(items.main, item), ()):  # only the first original counts
            exact[copy] = item
    near = {int(test[i]): int(train[j]) for i, j in _near(*features)} if features is not None else {}
    others = sorted((one, other) for one, other in near.items() if one not in exact)
    return Copies(tuple(sorted(exact.items())), tuple(others), len(test), len(searched), len(train))


def _bounded(part: Part, ids: Ids) -> Ids:
    """Return as many of the ids as `MOST_BYTES` allow, evenly spread."""
    return spread(ids, max(1, MOST_BYTES * len(part) // max(1, part.array.nbytes)))


def _digest(part: Part, row: int) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(part.stored(row)).data, digest_size=16).digest()


def _near(train: Tensor, test: Tensor) -> Iterator[tuple[int, int]]:
    """Yield places of a test row and of its nearest training row, if their cosine is at least `NEAR`.

    The features are standardised, because those of one sign, such as pixels, have a high cosine whatever they show, and
    because the loudest of them would decide alone. Nothing is yielded if the comparison would take long, or if there
    are so few features that they cannot tell items apart.
    """
    if len(train) * len(test) * train.shape[1] > MOST_PRODUCTS or len(train) < 2 or train.shape[1] < FEWEST_FEATURES:
        return
    centre, scale = train.mean(dim=0), train.std(dim=0)
    scale = scale + 0.1 * scale.mean()  # features that hardly vary, such as pixels at the border, stay small
    if not scale.all():
        return  # all training rows are the same
    for rows, similarity, places in nearest((test - centre) / scale, (train - centre) / scale, 1):
        for row in torch.nonzero(similarity[:, 0] >= NEAR)[:, 0].tolist():
            yield rows.start + row, int(places[row, 0])


def in_words(found: Copies, items: Items, tested: Items) -> str | None:
    """Say in a sentence how many test items are copies of training items, with the first one; None if none are."""
    if not found.exact and not found.near:
        return None
    some = "" if found.searched == found.train else f" (among {found.searched:,} of {found.train:,} that were compared)"

    def example(pairs: tuple[tuple[int, int], ...]) -> str:
        one, other = pairs[0]
        return f"{_name(tested, one)} of {_name(items, other)}"

    parts = []
    if found.exact:
        parts.append(f"{len(found.exact):,} exactly, such as {example(found.exact)}")
    if found.near:
        parts.append(f"{len(found.near):,} nearly, such as {example(found.near)}")
    total = len(found.exact) + len(found.near)
    which = "is a copy of a training item" if total == 1 else "are copies of training items"
    return (
        f"{total:,} of the {found.tested:,} test items {which}{some}: {', and '.join(parts)}; figures on them are too "
        "good"
    )


def _name(items: Items, item: int) -> str:
    return f"item {item:,}" if items.paths is None else items.paths[item]
