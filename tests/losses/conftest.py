"""Shared by the tests of losses: rows, and both ways through the code."""

import pytest
import torch

from likewise.losses import streamed
from likewise.losses import tiles as tiling


def rows(*shape, seed=0, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def tile_by_threes(monkeypatch):
    """Make even six rows a large problem: tiles of 3 × 3 or 3 × 6, and no plain path."""
    monkeypatch.setattr(streamed, "SMALL", 0)
    monkeypatch.setattr(streamed, "SMALL_ONE_WAY", 0)
    monkeypatch.setattr(tiling, "_side", lambda device: 3)


@pytest.fixture(params=["as a small problem", "as one tile", "in tiles"])
def path(request, monkeypatch):
    """Run a test three times: as these sizes would go by themselves, as one tile, and in tiles of three rows."""
    if request.param == "as one tile":
        monkeypatch.setattr(streamed, "SMALL", 0)
        monkeypatch.setattr(streamed, "SMALL_ONE_WAY", 0)
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
        g, w = (torch.zeros(()) if x is None else x for x in (g, w))  # None: the formula does not reach it
        torch.testing.assert_close(*torch.broadcast_tensors(g, w.to(g.dtype)), rtol=tolerance, atol=tolerance)
