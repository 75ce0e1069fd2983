"""Which items a step sees follows from the seed and the step: whoever reads them, and wherever one begins."""

import numpy as np
import pytest
import torch

from likewise import data, ranks
from likewise.pairs.groups import Groups
from likewise.pairs.views import Views
from likewise.training.batches import Batches

TRAIN = np.array([i for i in range(30) if i % 4])  # every fourth is held out
SIZE, STEPS = 6, 9  # 22 items to train on: three batches an epoch, four items left over


@pytest.fixture(scope="module")
def items():
    """The vector of item i is (i, 2i)."""
    return data.open(np.arange(30, dtype=np.float32)[:, None] * np.array([1, 2], dtype=np.float32))


def batches(items, *, pairs=None, seed=0, workers=0, size=SIZE, train=TRAIN):
    return Batches(items, train, pairs or Views(), size=size, seed=seed, workers=workers)


def content(batch):
    values = (batch.items, batch.ids, batch.data, batch.partner_data)
    return batch.step, batch.rows, *(value.tolist() for value in values)


def groups():
    return Groups(torch.arange(len(TRAIN)) % 5)


def test_every_item_comes_at_most_once_an_epoch_and_the_last_short_batch_is_dropped(items):
    made = batches(items)
    assert made.per_epoch == 3
    epochs = [[made.at(3 * epoch + i).items.tolist() for i in range(3)] for epoch in range(3)]
    for epoch in epochs:
        seen = [item for batch in epoch for item in batch]
        assert len(seen) == len(set(seen)) == 18
        assert set(seen) <= set(range(22))
    assert len({str(epoch) for epoch in epochs}) == 3, "each epoch has an order of its own"


def test_over_many_epochs_no_item_is_forgotten(items):
    made = batches(items)
    counts = torch.cat([made.places(step) for step in range(3 * 200)]).bincount(minlength=22)
    assert counts.min() > 140, "18 of 22 an epoch: 164 times of 200 on average"


def test_a_batch_holds_the_rows_of_its_items(items):
    batch = batches(items).at(4)
    assert batch.data[:, 0].tolist() == TRAIN[batch.items.numpy()].tolist()
    assert torch.equal(batch.data[:, 1], 2 * batch.data[:, 0])
    assert torch.equal(batch.partner_data, batch.data)
    assert torch.equal(batch.ids, batch.items), "ids are places in the training part"


def test_partners_come_with_their_own_rows(items):
    pairs = groups()
    batch = batches(items, pairs=pairs).at(2)
    partners = np.searchsorted(TRAIN, batch.partner_data[:, 0].numpy().astype(int))
    assert (pairs.groups[partners] == pairs.groups[batch.items]).all()
    assert (torch.from_numpy(partners) != batch.items).all()
    assert batch.ids.tolist() == [[item, item % 5] for item in batch.items.tolist()]


@pytest.mark.parametrize("pairs", [Views(), groups()], ids=["views", "groups"])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_readers_changes_nothing(items, pairs, workers):
    alone = [content(batch) for batch in batches(items, pairs=pairs).ahead(0, STEPS)]
    assert [step for step, *_ in alone] == list(range(STEPS))
    assert [content(batch) for batch in batches(items, pairs=pairs, workers=workers).ahead(0, STEPS)] == alone


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("first", [1, 3, 8])
def test_one_may_begin_anywhere(items, workers, first):
    undisturbed = [content(batch) for batch in batches(items).ahead(0, STEPS)]
    resumed = [content(batch) for batch in batches(items, workers=workers).ahead(first, STEPS)]
    assert resumed == undisturbed[first:]


def test_another_seed_is_another_order(items):
    assert content(batches(items).at(0)) != content(batches(items, seed=1).at(0))


@pytest.mark.parametrize("workers", [0, 3])
def test_one_may_stop_early(items, workers):
    coming = batches(items, workers=workers).ahead(0, 10_000)
    assert next(coming).step == 0
    coming.close()


def test_a_reader_that_fails_fails_the_run(items):
    """Rather than skip a batch, or hang."""
    broken = batches(items, train=np.append(TRAIN[:-1], 1000), workers=2)
    with pytest.raises(IndexError):
        list(broken.ahead(0, 30))


@pytest.mark.parametrize("pairs", [Views(), groups()], ids=["views", "groups"])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_ranks_share_out_the_batch_of_one_process(items, monkeypatch, pairs, count):
    whole = batches(items, pairs=pairs).at(5)
    parts = []
    monkeypatch.setattr(ranks, "count", lambda: count)
    for index in range(count):
        monkeypatch.setattr(ranks, "index", lambda index=index: index)
        parts.append(batches(items, pairs=pairs).at(5))
    assert [part.rows.start for part in parts] == list(range(0, SIZE, SIZE // count))
    for name in ("items", "ids", "data", "partner_data"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
        for part in parts:
            assert torch.equal(getattr(whole, name)[part.rows], getattr(part, name))
