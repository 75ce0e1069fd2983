"""The ids of frames, and the frames that are drawn as candidates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise.pairs.future import Future, _picked


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def as_there(lengths, frames):
    return torch.tensor([[i < length for i in range(frames)] for length in lengths])


batches = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 6)), min_size=1, max_size=8)


@given(batch=batches, negatives=st.sampled_from(["both", "others", "same"]))
def test_two_frames_share_an_id_where_they_are_the_same_frame_of_the_same_item(batch, negatives):
    """A window's frames are counted from the item's beginning, so two windows that overlap share theirs."""
    items, first, lengths = (torch.tensor(column) for column in zip(*batch, strict=True))
    ids = Future(negatives=negatives).frame_ids(items, first, as_there(lengths.tolist(), 6))
    assert ids.shape == ((len(batch) * 6, 2) if negatives == "others" else (len(batch) * 6,))
    meant = [
        (item, start + i) if i < length else None  # None: padding
        for item, start, length in batch
        for i in range(6)
    ]
    of_frames = (ids[:, 0] if negatives == "others" else ids).tolist()
    assert [one == -1 for one in of_frames] == [frame is None for frame in meant]
    assert all(one >= 0 for one, frame in zip(of_frames, meant, strict=True) if frame)
    pairs = {(one, frame) for one, frame in zip(of_frames, meant, strict=True) if frame}
    assert len(pairs) == len({one for one, _ in pairs}) == len({frame for _, frame in pairs})
    if negatives == "others":
        assert ids[:, 1].tolist() == [frame[0] if frame else -1 for frame in meant]


def test_the_first_item_has_ids_too():
    ids = Future().frame_ids(torch.tensor([0, 1]), torch.tensor([0, 0]), as_there([3, 2], 3))
    assert ids[0] == 0
    assert ids[-1] == -1


def test_an_items_ids_lie_before_those_of_the_next_for_as_many_items_and_frames_as_there_can_be():
    """2^31 items of 2^31 frames: at 100 frames a second, most of a year."""
    last = 2**31 - 1
    items, first = torch.tensor([0, 1, last - 1, last, last]), torch.tensor([last, 0, last, 0, last])
    ids = Future().frame_ids(items, first, torch.ones(5, 1, dtype=torch.bool)).tolist()
    assert ids == sorted(set(ids))
    assert ids[0] >= 0


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any),
    negatives=st.sampled_from(["both", "others"]),
    seed=st.integers(0, 1000),
)
def test_padding_is_never_drawn(lengths, negatives, seed):
    pairs = Future(candidates=40, negatives=negatives)
    there = as_there(lengths, 5)
    ids = pairs.frame_ids(torch.arange(len(lengths)), torch.zeros(len(lengths), dtype=torch.int64), there)
    rows = pairs.draw(ids, rng(seed))
    assert rows.shape == (40,)
    assert there.flatten()[rows].all()


def test_a_draw_follows_from_the_generator_alone():
    pairs, ids = Future(candidates=30), torch.arange(50)
    assert torch.equal(pairs.draw(ids, rng(3)), pairs.draw(ids, rng(3)))
    assert not torch.equal(pairs.draw(ids, rng(3)), pairs.draw(ids, rng(4)))
    within = [pairs.draw_within(ids.view(5, 10), slice(0, 5), 5, rng(seed)) for seed in (3, 3, 4)]
    assert torch.equal(within[0], within[1])
    assert not torch.equal(within[0], within[2])


def chi_square(counts):
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_every_frame_that_is_there_is_as_likely():
    """Chi-square with 8 degrees of freedom: above 35 once in thirty thousand draws."""
    ids = torch.tensor([0, -1, 2, 3, -1, -1, 6, 7, 8, 9, 10, 11, -1])
    rows = Future(candidates=9000).draw(ids, rng())
    counts = rows.bincount(minlength=13)
    assert counts[ids < 0].sum() == 0
    assert chi_square(counts[ids >= 0].double()) < 35


def test_a_sequences_own_frames_are_as_likely_as_each_other():
    """Chi-square with 4 and with 7 degrees of freedom."""
    ids = torch.where(as_there([5, 8], 8), torch.arange(16).view(2, 8), -1)
    places = Future(candidates=8000, negatives="same").draw_within(ids, slice(0, 2), 2, rng())
    for row, length in zip(places, (5, 8), strict=True):
        counts = row.bincount(minlength=8)
        assert counts[length:].sum() == 0
        assert chi_square(counts[:length].double()) < 35


def test_a_pool_without_rows_gives_none():
    for shape in ((0,), (0, 2)):
        rows = Future(candidates=7).draw(torch.empty(shape, dtype=torch.int64), rng())
        assert rows.tolist() == []
        assert rows.dtype == torch.int64


def test_a_pool_of_nothing_but_padding_gives_padding():
    """Rows must be given, as many as ever; losses see by their id that they are none."""
    ids = torch.full((6,), -1)
    assert Future(candidates=7).draw(ids, rng()).shape == (7,)
    places = Future(candidates=7, negatives="same").draw_within(ids.view(2, 3), slice(0, 2), 2, rng())
    assert places.min() >= 0
    assert places.max() < 3


@given(lengths=st.lists(st.integers(1, 5), min_size=2, max_size=8), seed=st.integers(0, 1000), data=st.data())
def test_a_rank_draws_within_its_sequences_what_the_whole_batch_draws(lengths, seed, data):
    pairs, total = Future(candidates=20, negatives="same"), len(lengths)
    ids = torch.where(as_there(lengths, 5), torch.arange(total * 5).view(total, 5), -1)
    whole = pairs.draw_within(ids, slice(0, total), total, rng(seed))
    assert whole.shape == (total, 20)
    assert (ids.take_along_dim(whole, dim=1) >= 0).all()
    start = data.draw(st.integers(0, total - 1))
    rows = slice(start, data.draw(st.integers(start + 1, total)))
    assert torch.equal(pairs.draw_within(ids[rows], rows, total, rng(seed)), whole[rows])


def test_an_item_is_its_own_partner():
    items = torch.tensor([4, 2, 9])
    assert torch.equal(Future().partners(items, rng()), items)
    assert torch.equal(Future().ids(items, items), items)


def test_the_share_of_the_last_frame_is_its_own():
    """Shares come close to 1: rounding must not lead behind the last frame that is there."""
    there = as_there([3], 5)
    nearly = math.nextafter(1.0, 0.0)
    shares = torch.tensor([[0.0, 0.33, 0.34, 0.66, 0.67, nearly, 1.0]], dtype=torch.float64)
    assert _picked(there, shares).tolist() == [[0, 0, 1, 1, 2, 2, 2]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"horizon": 0}, "horizon and candidates must be at least 1, got 0 and 128"),
        ({"candidates": 0}, "horizon and candidates must be at least 1, got 12 and 0"),
        ({"negatives": "other"}, "negatives must be one of both, others, same, got 'other'"),
    ],
)
def test_errors_to_the_letter(options, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Future(**options)
    assert str(error.value) == sentence
