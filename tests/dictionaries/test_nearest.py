"""The nearest of a queue takes a key's place: against a loop, and as part of a checkpoint."""

import pytest
import torch

from likewise.dictionaries import NearestNeighbours
from tests.losses.conftest import rows

DIM = 4


def filled(size=7, updates=((0, 3), (3, 3), (6, 3))):
    """A queue into which batches were written, the last of which wraps round its end."""
    dictionary = NearestNeighbours(size, DIM).double()
    for first, count in updates:
        dictionary.update(rows(count, DIM, seed=10 + first, grad=False), torch.arange(first, first + count))
    return dictionary


def test_each_key_is_replaced_by_the_stored_key_of_the_highest_cosine():
    dictionary = filled()
    key, ids = rows(5, DIM), torch.arange(100, 105)
    found = dictionary.lookup(key, ids)
    stored = [row.tolist() for first in (0, 3, 6) for row in rows(3, DIM, seed=10 + first, grad=False)][-7:]
    for own, positive in zip(key.tolist(), found.positive.tolist(), strict=True):
        cosines = [
            sum(x * y for x, y in zip(own, row, strict=True)) / (torch.tensor(own).norm() * torch.tensor(row).norm())
            for row in stored
        ]
        assert positive == pytest.approx(stored[max(range(7), key=cosines.__getitem__)])
    assert torch.equal(found.negatives, found.positive)
    assert torch.equal(found.negative_ids, ids)
    assert not found.positive.requires_grad


def test_a_look_up_only_reads_and_an_empty_queue_answers_with_the_keys_themselves():
    dictionary = NearestNeighbours(4, DIM).double()
    key = rows(3, DIM)
    before = {name: value.clone() for name, value in dictionary.state_dict().items()}
    found = dictionary.lookup(key, torch.arange(3))
    assert torch.equal(found.positive, key)
    assert not found.positive.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in dictionary.state_dict().items())


def test_its_whole_state_is_kept():
    dictionary, copy = filled(), NearestNeighbours(7, DIM).double()
    copy.load_state_dict(dictionary.state_dict())
    key, ids = rows(5, DIM), torch.arange(5)
    assert torch.equal(copy.lookup(key, ids).positive, dictionary.lookup(key, ids).positive)
    assert copy.meters() == dictionary.meters()
    assert copy.steps() == dictionary.steps() == [0, 1, 2]


def test_padding_is_nobodys_neighbour():
    """Frames behind the end of a sequence are stored with id −1, whatever they are like."""
    dictionary = NearestNeighbours(4, DIM).double()
    stored = torch.eye(DIM, dtype=torch.float64)
    dictionary.update(stored[:2], torch.tensor([-1, 7]))
    found = dictionary.lookup(stored[:1], torch.tensor([3]))
    assert torch.equal(found.positive, stored[1:2])
    padding = NearestNeighbours(4, DIM).double()
    padding.update(stored[:2], torch.tensor([-1, -1]))
    assert torch.equal(padding.lookup(stored[3:], torch.tensor([3])).positive, stored[3:])


def test_scores_in_tiles_find_the_same(monkeypatch):
    dictionary, key = filled(), rows(5, DIM)
    whole = dictionary.nearest(key)
    monkeypatch.setattr("likewise.dictionaries.nearest.SCORES_AT_ONCE", 10)
    assert torch.equal(dictionary.nearest(key), whole)
