"""Views of sequences: standardised, disturbed as they say, and NaN exactly where there is no sequence."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise.views.windows import PRESETS, DisturbedWindows, PlainWindows

MEAN, STD = (1.0, -2.0, 0.5), (2.0, 0.5, 3.0)
STILL = {"scale": 0.0, "noise": 0.0, "mask": 0.0, "drop": 0.0}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def windows(lengths, t=20, c=3, seed=0):
    """Windows (n, t, c), NaN behind the `lengths`."""
    batch = torch.randn(len(lengths), t, c, generator=rng(seed)) + 3
    for row, length in zip(batch, lengths, strict=True):
        row[length:] = math.nan
    return batch


def disturbed(n, seed=0, items=None, **options):
    """Draws of n windows, and what they make of windows that lie at 1, standardised."""
    views = DisturbedWindows((0.0,) * 3, (1.0,) * 3, **STILL | options)
    draws = views.draw(n, rng(seed))
    return draws.values, views.apply(torch.ones(n, 20, 3) if items is None else items, draws)


def test_presets():
    assert set(PRESETS) == {"sequence", "none"}
    assert isinstance(PRESETS["sequence"](MEAN, STD), DisturbedWindows)
    assert type(PRESETS["none"](MEAN, STD)) is PlainWindows


@pytest.mark.parametrize("name", PRESETS)
def test_plain_is_standardised_channel_by_channel(name):
    views, batch = PRESETS[name](MEAN, STD), windows([20, 7])
    got = views.plain(batch)
    assert got.dtype == torch.float32
    for n, t, c in [(0, 0, 0), (0, 19, 1), (1, 6, 2), (1, 0, 1)]:
        assert got[n, t, c].item() == pytest.approx((batch[n, t, c].item() - MEAN[c]) / STD[c], rel=1e-5)
    assert torch.equal(got.isnan(), batch.isnan())


def test_the_plain_preset_draws_nothing():
    views, batch = PRESETS["none"](MEAN, STD), windows([20, 7])
    generator = rng()
    draws = views.draw(2, generator)
    assert torch.equal(generator.get_state(), rng().get_state())
    assert len(draws) == 2
    torch.testing.assert_close(views.apply(batch, draws), views.plain(batch), rtol=0, atol=0, equal_nan=True)


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_nan_stays_nan_and_nothing_else_becomes_it(lengths, seed):
    views, batch = PRESETS["sequence"](MEAN, STD), windows(lengths)
    got = views.apply(batch, views.draw(len(lengths), rng(seed)))
    assert torch.equal(got.isnan(), batch.isnan())
    assert got.shape == batch.shape


@pytest.mark.parametrize("name", PRESETS)
def test_some_rows_are_those_of_the_whole(name):
    views, batch = PRESETS[name](MEAN, STD), windows([20, 7, 12, 1, 20, 3])
    draws = views.draw(6, rng())
    whole = views.apply(batch, draws)
    for rows in (slice(0, 2), slice(3, 6), torch.tensor([5, 0, 2])):
        assert torch.equal(views.apply(batch[rows], draws.rows(rows)).nan_to_num(9), whole[rows].nan_to_num(9))


def test_drawing_knows_nothing_of_the_data_and_applying_draws_nothing():
    """The same draws give the same view again, whatever the global generator does, and leave the window as it was."""
    views, batch = PRESETS["sequence"](MEAN, STD), windows([20, 7])
    before = batch.clone()
    draws = views.draw(2, rng())
    state = torch.get_rng_state()
    first = views.apply(batch, draws)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert torch.equal(views.apply(batch, draws).nan_to_num(9), first.nan_to_num(9))
    assert torch.equal(batch.nan_to_num(9), before.nan_to_num(9))


def test_a_row_takes_as_many_numbers_whatever_the_strength():
    """So a stronger disturbance is the same one, stronger, and the next draw is the same."""
    after = []
    for options in ({}, STILL):
        generator = rng()
        DisturbedWindows(MEAN, STD, **options).draw(5, generator)
        after.append(generator.get_state())
    assert torch.equal(*after)


def test_without_any_strength_a_view_is_the_window():
    _, got = disturbed(4)
    assert torch.equal(got, torch.ones(4, 20, 3))


def test_scales_are_e_to_the_uniform_one_a_channel():
    _, got = disturbed(400, scale=0.5)
    assert torch.equal(got, got[:, :1].expand_as(got)), "the same at all times"
    logs = got[:, 0].double().log()
    assert logs.abs().max() <= 0.5 + 1e-6
    assert logs.min() < -0.45
    assert logs.max() > 0.45
    assert logs.mean().abs() < 0.05, "1,200 of them: four times the standard error"
    assert float(logs.std()) == pytest.approx(1 / 12**0.5, abs=0.02)
    assert (logs[:, 0] != logs[:, 1]).all()


def test_noise_is_a_share_of_the_standard_deviation():
    """In units of the data: 0.1 of each channel's own."""
    views = DisturbedWindows(MEAN, STD, **STILL | {"noise": 0.1})
    batch = windows([500, 500], t=500)
    moved = (views.apply(batch, views.draw(2, rng())) - views.plain(batch)) * torch.tensor(STD)
    for c in range(3):
        assert float(moved[:, :, c].std()) == pytest.approx(0.1 * STD[c], rel=0.15)
        assert abs(float(moved[:, :, c].mean())) < 0.015 * STD[c]
    assert not torch.equal(moved[0], moved[1]), "each window has its own"


def test_a_stretch_of_time_is_masked_in_all_channels_and_is_no_longer_than_its_share():
    values, got = disturbed(300, mask=0.3)
    hidden = got == 0
    assert torch.equal(hidden, hidden[:, :, :1].expand_as(hidden))
    counts = hidden[:, :, 0].sum(dim=1)
    assert counts.max() <= 6, "0.3 of 20, the ends of a stretch being rounded alike"
    assert counts.min() == 0
    assert 2 < counts.double().mean() < 4, "uniform up to 6"
    assert ((counts - 20 * values["masked"]).abs() < 1).all()
    begins = hidden[:, 0, 0] + (hidden[:, 1:, 0] & ~hidden[:, :-1, 0]).sum(dim=1)
    assert begins.max() == 1, "one stretch and no second"
    assert hidden[:, :3, 0].any()
    assert hidden[:, -3:, 0].any()


def test_a_mask_is_a_share_of_what_is_there_and_not_of_the_padding():
    lengths = [10] * 200
    _, got = disturbed(200, mask=0.5, items=torch.where(windows(lengths).isnan(), math.nan, 1.0))
    counts = (got[:, :, 0] == 0).sum(dim=1)
    assert counts.max() <= 5
    assert counts.max() >= 4
    assert (got[:, :10] == 0).sum() == (got == 0).sum()


def test_channels_are_dropped_whole_and_never_all_of_them():
    values, got = disturbed(2000, drop=0.3)
    gone = (got == 0).all(dim=1)
    assert torch.equal(gone, (got == 0).any(dim=1)), "at all times or at none"
    assert torch.equal(gone, values["dropped"])
    assert not gone.all(dim=1).any()
    assert float(gone.double().mean()) == pytest.approx(0.3 - 0.3**3, abs=0.03)


@pytest.mark.parametrize("drop", [0.5, 1.0])
def test_a_single_channel_is_never_dropped(drop):
    views = DisturbedWindows((0.0,), (1.0,), **STILL | {"drop": drop})
    assert torch.equal(views.apply(torch.ones(50, 9, 1), views.draw(50, rng())), torch.ones(50, 9, 1))


def test_what_is_hidden_lies_at_the_mean():
    """Zero after standardising is the channel's mean, whatever scale and noise did."""
    views = DisturbedWindows(MEAN, STD, mask=0.9, drop=0.5)
    draws = views.draw(50, rng())
    got = views.apply(windows([20] * 50), draws)
    assert (got.transpose(1, 2)[draws.values["dropped"]] == 0).all()
    assert (got == 0).any(dim=2).float().mean() > 0.3


CASES = {
    "sequences must be of shape (n, t, 3), got (2, 20, 1)": lambda views: views.plain(torch.zeros(2, 20, 1)),
    "sequences must be of shape (n, t, 3), got (2, 3)": lambda views: views.plain(torch.zeros(2, 3)),
    "draws must have 2 rows like the sequences, got 5": lambda views: views.apply(
        torch.zeros(2, 20, 3), views.draw(5, rng())
    ),
}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("sentence", CASES)
def test_errors_to_the_letter(name, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        CASES[sentence](PRESETS[name](MEAN, STD))
    assert str(error.value) == sentence
