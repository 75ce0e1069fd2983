"""Vectors on a plane: the same each time, whatever they are, and told how far it is."""

import numpy as np
import pytest

from likewise.report.plane import plane

rng = np.random.default_rng(0)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


ONE = rng.normal(size=(1, 16))
COLLAPSED = {
    "two points": np.repeat(rng.normal(size=(2, 16)), 50, axis=0),
    "one point and an outlier": np.concatenate([np.repeat(ONE, 99, axis=0), -ONE]),
    "nearly one point": ONE + 1e-5 * rng.normal(size=(100, 16)),
    "a line": np.stack([np.linspace(1, 2, 100), np.ones(100)], axis=1),
    "mostly copies": np.concatenate([np.repeat(ONE, 80, axis=0), rng.normal(size=(20, 16))]),
}


@pytest.mark.parametrize("name", COLLAPSED)
def test_collapsed_vectors_have_places_too(name):
    points = plane(unit(COLLAPSED[name]))[1]
    assert points.shape == (100, 2)
    assert np.isfinite(points).all()
    assert points.min() >= 0
    assert points.max() <= 1


def test_the_same_vectors_have_the_same_places():
    rows = unit(rng.normal(size=(200, 16)))
    assert np.array_equal(plane(rows)[1], plane(rows)[1])


def test_neighbours_stay_neighbours():
    labels = np.arange(300) % 6
    name, points = plane(unit(np.eye(16)[labels] + rng.normal(0, 0.1, (300, 16))))
    assert name == "t-SNE"
    distances = np.linalg.norm(points[:, None] - points, axis=2) + 9 * np.eye(300)
    assert (labels[distances.argmin(axis=1)] == labels).all()


def test_the_share_that_is_done_grows_to_all():
    shares = []
    plane(unit(rng.normal(size=(60, 16))), shares.append)
    assert len(shares) > 20
    assert shares == sorted(shares)
    assert shares[-1] == 1
