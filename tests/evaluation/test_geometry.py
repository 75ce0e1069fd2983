"""Alignment, uniformity and rank by loops and closed forms; a collapse is called one."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from likewise.evaluation import geometry as module
from likewise.evaluation.geometry import (
    alignment,
    collapse_of,
    effective_rank,
    geometry,
    mean_cosine,
    uniformity,
    verdict,
)
from likewise.guide import see


def rows(n, dim, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("at_once", [1, 4, 1024])
def test_uniformity_and_mean_cosine_are_loops_over_all_pairs(monkeypatch, at_once):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", at_once)
    unit = normalize(rows(9, 4), dim=1)
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    mean = sum(math.exp(-2 * float((unit[i] - unit[j]).square().sum())) for i, j in pairs) / len(pairs)
    assert uniformity(unit) == pytest.approx(math.log(mean), abs=1e-12)
    assert mean_cosine(unit) == pytest.approx(sum(float(unit[i] @ unit[j]) for i, j in pairs) / len(pairs), abs=1e-12)


def test_alignment_is_the_mean_squared_distance_of_unit_rows():
    first, second = rows(7, 3), rows(7, 3, seed=1)
    expected = sum(float((a / a.norm() - b / b.norm()).square().sum()) for a, b in zip(first, second, strict=True))
    assert alignment(first, second) == pytest.approx(expected / 7, abs=1e-12)
    assert alignment(first, 5 * first) == pytest.approx(0, abs=1e-12)
    assert alignment(torch.eye(2), torch.eye(2).flip(0)) == pytest.approx(2)


@pytest.mark.parametrize("n", [40, 8])
def test_effective_rank_is_the_entropy_of_the_singular_values(n):
    found = rows(n, 12)
    singular = torch.linalg.svdvals(found - found.mean(dim=0))
    share = singular[singular > 1e-9] / singular[singular > 1e-9].sum()
    assert effective_rank(found) == pytest.approx(float((-(share * share.log()).sum()).exp()), rel=1e-6)


def test_effective_rank_counts_directions_used_alike():
    plus_and_minus = torch.cat([torch.eye(5), -torch.eye(5)])
    assert effective_rank(plus_and_minus) == pytest.approx(5)
    assert effective_rank(torch.tensor([[1.0, 0], [-1, 0], [2, 0]])) == pytest.approx(1)
    assert effective_rank(torch.ones(4, 3)) == 0


def test_verdicts_say_what_happened_and_the_figures_behind_it():
    sphere = rows(300, 32)
    assert verdict(geometry(sphere)).startswith("not collapsed: two items have a mean cosine of ")
    point = torch.ones(300, 32, dtype=torch.float64) + 1e-4 * sphere
    assert verdict(geometry(point)).startswith("collapsed: nearly all items have the same embedding (two items")
    line = rows(300, 1) @ torch.ones(1, 32, dtype=torch.float64) + 1e-4 * sphere
    assert verdict(geometry(line)).startswith("collapsed to a line: ")
    few = torch.cat([rows(300, 3), 1e-9 * rows(300, 509)], dim=1)
    assert verdict(geometry(few)).startswith("partly collapsed: few of the 512 directions are used (effective rank ")
    cone = torch.ones(300, 32, dtype=torch.float64) + 0.2 * sphere
    assert verdict(geometry(cone)).startswith("not collapsed, but narrow: ")
    assert verdict(geometry(sphere[:1])) == "there is only one item, so a collapse cannot be measured"


def test_rounding_is_no_direction():
    """A point with noise of a float's last digits is a collapse, however many directions the noise has."""
    point = torch.ones(1, 512) * (1 + 1e-7 * rows(1000, 512).float())
    assert geometry(point).effective_rank == 0
    assert verdict(geometry(point)).startswith("collapsed: nearly all items have the same embedding")


def test_embeddings_of_zero_are_no_sphere():
    half = rows(200, 16)
    half[::2] = 0
    found = geometry(half)
    assert verdict(found) == f"collapsed: 100 of 200 items have an embedding of zero {see('collapse')}"
    assert uniformity(torch.zeros(5, 3)) == 0
    assert mean_cosine(torch.zeros(5, 3)) == 0


def test_points_on_a_line_are_called_so_in_two_dimensions_too():
    assert verdict(geometry(torch.tensor([[1.0, 0], [0, 1], [1, 1]]).repeat(9, 1))).startswith("not collapsed")
    arc = torch.stack([torch.linspace(0.9, 1.1, 50), torch.ones(50)], dim=1)
    assert "collapsed" in verdict(geometry(arc))


def test_mistakes_are_one_sentence():
    with pytest.raises(ValueError, match=r"^embeddings must be finite, got NaN or infinity \(see .*\)$"):
        geometry(torch.full((3, 2), math.nan))
    with pytest.raises(ValueError, match=r"^pairs must have the same shape, got \(3, 2\) and \(4, 2\)$"):
        alignment(torch.ones(3, 2), torch.ones(4, 2))


def test_a_collapse_is_a_warning_in_the_words_of_the_verdict():
    sphere = rows(2500, 16).float()
    assert collapse_of(sphere.numpy()) is None
    cone = torch.ones(2500, 16) + 0.2 * sphere
    assert collapse_of(cone.numpy()).startswith("not collapsed, but narrow: ")
    point = torch.ones(300, 16) + 1e-4 * sphere[:300]
    assert collapse_of(point.numpy()) == verdict(geometry(point))
    assert collapse_of(point[:1].numpy()) is None, "of one item nothing can be said"
    point[7, 3] = math.nan
    assert collapse_of(point.numpy()) == f"collapsed: not all embeddings are finite numbers {see('not finite')}"
