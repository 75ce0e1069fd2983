"""The queue is a `collections.deque` of keys, whatever the batches."""

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise import dictionaries, losses


def batch(n, dim=3, first=0):
    ids = torch.arange(first, first + n)
    return ids[:, None].double().expand(n, dim) + 0.25, ids


@given(size=st.integers(1, 9), batches=st.lists(st.integers(0, 25), max_size=8))
def test_the_queue_is_a_deque_for_any_sequence_of_batches(size, batches):
    """Fault 2: a batch that crosses the ring's end, that does not divide it, or is larger than it."""
    queue, slow = dictionaries.KeyQueue(size, 3).double(), deque(maxlen=size)
    first = 0
    for step, n in enumerate(batches):
        key, ids = batch(n, first=first)
        queue.update(key, ids)
        slow.extend((row, step, place) for place, row in enumerate(ids.tolist()))
        first += n
        places = queue.oldest_first()
        assert queue.ids[places, 0].tolist() == [row for row, _, _ in slow]
        assert queue.keys[places, 0].tolist() == [row + 0.25 for row, _, _ in slow]
        assert queue.born[places].tolist() == [born for _, born, _ in slow]
        assert queue.rows[places].tolist() == [place for _, _, place in slow]
        assert queue.meters()["fill"] == len(slow) / size


def test_a_look_up_reads_filled_rows_only_and_writes_nothing():
    queue = dictionaries.KeyQueue(8, 3).double()
    key, ids = batch(5)
    assert queue.lookup(key, ids).negatives.shape == (0, 3)
    queue.update(key, ids)
    before = {name: value.clone() for name, value in queue.state_dict().items()}
    found = queue.lookup(key, ids)
    assert found.positive is key
    assert found.negatives.shape == (5, 3)
    assert found.negatives.data_ptr() == queue.keys.data_ptr(), "no copy"
    for name, value in queue.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_state_has_queue_pointer_fill_and_ids():
    """Fault 3: a queue or pointer that is missing from the checkpoint."""
    queue, other = (dictionaries.KeyQueue(8, 3).double() for _ in range(2))
    for n in (5, 5, 3):
        queue.update(*batch(n))
    other.load_state_dict(queue.state_dict())
    for each in (queue, other):
        each.update(*batch(4, first=50))
    assert torch.equal(queue.keys, other.keys)
    assert torch.equal(queue.ids, other.ids)
    assert queue.meters() == other.meters()
    assert queue.written == other.written == 17


def test_an_older_key_of_the_same_item_is_no_negative():
    """Fault 13: once the queue is longer than the data set, it holds every item's older keys."""
    generator = torch.Generator().manual_seed(0)
    key, ids = torch.randn(4, 3, dtype=torch.float64, generator=generator), torch.arange(4)
    once, thrice = dictionaries.KeyQueue(4, 3).double(), dictionaries.KeyQueue(12, 3).double()
    once.update(key, ids)
    for _ in range(3):
        thrice.update(key, ids)

    def loss(queue):
        found = queue.lookup(key, ids)
        return losses.info_nce(
            key, *found[:2], temperature=0.5, query_ids=ids, key_ids=found.negative_ids, reduction="none"
        )

    # The same three negatives an item, three times each: e^loss − 1 is three times as large, and nothing more.
    torch.testing.assert_close(loss(thrice).expm1(), 3 * loss(once).expm1())


def test_ids_of_two_columns_come_back_as_two_columns():
    queue = dictionaries.KeyQueue(4, 3, columns=2)
    key, ids = torch.randn(3, 3), torch.tensor([[0, 7], [1, 7], [2, 8]])
    queue.update(key, ids)
    assert torch.equal(queue.lookup(key, ids).negative_ids, ids)


def test_age_counts_steps():
    queue = dictionaries.KeyQueue(4, 3)
    for first in range(3):
        queue.update(torch.randn(2, 3), torch.arange(2) + first)
    assert queue.meters() == {"size": 4.0, "fill": 1.0, "age": 1.5, "oldest": 2.0}
    assert queue.steps() == [1, 2]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dictionaries.KeyQueue(0, 3), "size must be a whole number of at least 1, got 0"),
        (
            lambda: dictionaries.KeyQueue(4, 3).update(torch.randn(2, 5), torch.arange(2)),
            "key must be floating-point of shape (n, 3), got torch.float32 of (2, 5)",
        ),
        (
            lambda: dictionaries.KeyQueue(4, 3).update(torch.randn(2, 3), torch.arange(3)),
            "ids must be whole numbers of shape (2,) or (2, g), got torch.int64 of (3,)",
        ),
        (
            lambda: dictionaries.KeyQueue(4, 3).lookup(torch.randn(2, 3), torch.ones(2, 2, dtype=torch.int64)),
            "ids must have 1 columns, got 2",
        ),
    ],
)
def test_mistakes_are_one_sentence(make, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        make()
    assert str(error.value) == sentence
