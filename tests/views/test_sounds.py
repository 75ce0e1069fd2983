"""Augmented sounds: each change alone, beside its definition, and all of them together."""

import math

import pytest
import torch

from likewise.views.sounds import DisturbedSounds

STILL = {"mix": 0.0, "speed": 0.0, "gain": 0.0, "band": 0.0, "stretch": 0.0}


def sounds(**changes):
    return DisturbedSounds((0.0,), (1.0,), **STILL | changes)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def noise(n=6, t=400):
    return torch.randn(n, t, 1, generator=rng(1))


def applied(views, rows, seed=0):
    draws = views.draw(len(rows), rng(seed))
    return views.apply(rows, draws), draws.values


def test_without_changes_a_view_is_the_window_itself():
    rows = noise()
    torch.testing.assert_close(applied(sounds(), rows)[0], rows)


def test_a_window_is_mixed_with_another_of_its_group_of_four():
    rows, others = noise(n=64), set()
    views, drawn = applied(sounds(mix=0.5), rows)
    for row, (view, mix) in enumerate(zip(views, drawn["mix"].float(), strict=True)):
        group = [other for other in range(row - row % 4, row - row % 4 + 4) if other != row]
        (other,) = (other for other in group if torch.allclose(view, rows[row] + mix * rows[other], atol=1e-6))
        others.add((row % 4, other % 4))
    assert len(others) == 12, "each is mixed with each of the other three"
    assert 0 < drawn["mix"].min() < drawn["mix"].max() < 0.5


def test_in_an_incomplete_group_a_window_may_be_mixed_with_itself():
    rows = noise(n=5)
    views, drawn = applied(sounds(mix=0.5), rows)
    torch.testing.assert_close(views[4], rows[4] * (1 + drawn["mix"][4].float()))


def test_two_views_of_a_window_seldom_share_their_background():
    draws = [sounds(mix=0.5).draw(999, rng(seed)).values["other"] for seed in (0, 1)]
    assert 0.25 < (draws[0] == draws[1]).float().mean() < 0.42


def test_a_ramp_played_faster_or_slower_is_a_steeper_or_flatter_ramp():
    ramp = torch.arange(400.0)[None, :, None].repeat(8, 1, 1)
    views, drawn = applied(sounds(speed=0.3), ramp)
    assert drawn["speed"].min() < 1 < drawn["speed"].max()
    for view, speed, start in zip(views[:, :, 0], drawn["speed"].float(), drawn["start"].float(), strict=True):
        length = min(400, int(400 / speed))
        first = start * max(0.0, 400 - speed * 400)
        expected = (first + speed * torch.arange(length)).clamp(max=399)
        torch.testing.assert_close(view[:length], expected, atol=1e-3, rtol=0)
        assert view[length:].isnan().all()


def test_a_masked_band_removes_a_tone_inside_it_and_keeps_one_outside():
    times, views = torch.arange(400) / 400, sounds(band=0.4)
    for cycles in (20, 60, 100, 140, 180):  # of 200, the highest frequency
        rows = torch.sin(2 * math.pi * cycles * times)[None, :, None].repeat(8, 1, 1)
        masked, drawn = applied(views, rows)
        low = drawn["pitch"] * (1 - drawn["band"])
        inside = (cycles / 200 >= low) & (cycles / 200 < low + drawn["band"])
        energy = masked.square().mean(dim=(1, 2))
        torch.testing.assert_close(energy, torch.where(inside, 0.0, 0.5).float(), atol=1e-5, rtol=0)


def test_a_stretch_is_silent_and_the_rest_is_kept():
    rows = noise()
    views, drawn = applied(sounds(stretch=0.5), rows)
    silent = views[:, :, 0] == 0
    torch.testing.assert_close(views[~silent], rows[~silent])
    torch.testing.assert_close(silent.float().mean(dim=1), drawn["stretch"].float(), atol=1 / 400, rtol=0)


def test_padding_stays_padding_and_is_not_mixed_into_others():
    rows = noise(n=2)
    rows[1, 100:] = math.nan
    views, _ = applied(sounds(mix=0.5, band=0.2, gain=0.5, stretch=0.2), rows)
    assert views[0].isfinite().all()
    assert views[1, :100].isfinite().all()
    assert views[1, 100:].isnan().all()


def test_halves_of_a_batch_on_two_ranks_are_the_whole_batch():
    rows, views = noise(n=8), DisturbedSounds((0.1,), (1.3,))
    draws = views.draw(8, rng())
    halves = [views.apply(rows[part], draws.rows(part)) for part in (slice(0, 4), slice(4, 8))]
    torch.testing.assert_close(torch.cat(halves), views.apply(rows, draws), equal_nan=True)


def test_draws_differ_between_rows_and_repeat_with_the_seed():
    rows, views = noise(), DisturbedSounds((0.0,), (1.0,))
    first, drawn = applied(views, rows)
    assert all(value.unique().numel() == len(rows) for name, value in drawn.items() if name != "other")
    torch.testing.assert_close(applied(views, rows)[0], first, equal_nan=True, rtol=0, atol=0)
    assert not torch.equal(applied(views, rows, seed=2)[0].nan_to_num(), first.nan_to_num())


def test_draws_for_other_rows_are_refused():
    views = DisturbedSounds((0.0,), (1.0,))
    with pytest.raises(ValueError, match=r"^draws must have 6 rows like the sequences, got 5$"):
        views.apply(noise(), views.draw(5, rng()))
