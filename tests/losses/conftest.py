"""Shared by the tests of losses: rows, and both ways through the code."""

import pytest
import torch

from likewise.losses import tiles as tiling


def rows(*shape, seed=0, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def tile_by_threes(monkeypatch):
    """Make even six rows a large problem: tiles of 3 × 3 or 3 × 6, and no plain path."""
    monkeypatch.setattr(tiling, "_side", lambda device: 3)


@pytest.fixture(params=["as a small problem", "in tiles"])
def path(request, monkeypatch):
    """Run a test twice: as these sizes would go by themselves, and in tiles of three rows."""
    if request.param == "in tiles":
        tile_by_threes(monkeypatch)
    return request.param


@pytest.fixture
def tiles(monkeypatch):
    tile_by_threes(monkeypatch)


def assert_same(actual, expected, inputs, tolerance=1e-10):
    """Equal losses, and equal gradients for `inputs` under weights that differ from row to row."""
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    weights = torch.linspace(-1, 2, actual.numel(), dtype=expected.dtype).reshape(actual.shape)
    got = torch.autograd.grad((actual * weights).sum(), inputs, allow_unused=True)
    want = torch.autograd.grad((expected * weights).sum(), inputs, allow_unused=True)
    for g, w in zip(got, want, strict=True):
        # Adding 0 to a gradient that is None: not reached by the formula, and so 0.
        zero = torch.zeros(())
        torch.testing.assert_close(zero if g is None else g, zero if w is None else w, rtol=tolerance, atol=tolerance)
