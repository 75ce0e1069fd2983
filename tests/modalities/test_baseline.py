"""Baseline features on the scale on which they are compared."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from likewise import data, modalities


def scaled(x, count):
    """The baseline of some items of training, and of the others."""
    items = data.open({"x": x}, progress=False)
    modality = modalities.of(items.main)
    features = modality.baseline(items.main, np.arange(len(items)))
    return features, *modality.scaled_baseline(features[:count], features[count:])


def test_vectors_are_standardised_by_the_training_items():
    x = np.random.default_rng(0).normal(5, [1, 100, 0.01, 3], (50, 4)).astype(np.float32)
    x[:, 3] = 7
    _, train, test = scaled(x, 40)
    scaler = StandardScaler().fit(x[:40])
    np.testing.assert_allclose(train, scaler.transform(x[:40]), atol=1e-4)
    np.testing.assert_allclose(test, scaler.transform(x[40:]), atol=1e-4)


def test_what_is_constant_in_training_stays_0_in_tests_too():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    x[:40, 1] = 1
    x[:40, 2] = 1e-42  # a deviation so small that its reciprocal would be infinite
    x[3, 2] = 0
    _, train, test = scaled(x, 40)
    assert train.isfinite().all()
    assert not train[:, 1].any()
    assert not test[:, 1].any()


def test_a_channel_that_is_constant_in_each_series_has_no_deviation(tmp_path):
    """In float32, the mean of equal numbers is not exactly that number, and what is left would be standardised."""
    rng = np.random.default_rng(0)
    levels, lengths = np.array([0.1, 0.7, 1000.3, 3.3] * 5, dtype=np.float32), rng.integers(50, 90, 20)
    names = np.repeat([f"s{number:02}" for number in range(20)], lengths)
    columns = {"sequence": names, "level": np.repeat(levels, lengths), "noise": rng.normal(size=len(names))}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    items = data.open(tmp_path / "x.parquet", columns={"channels": "level+noise"})
    features = modalities.of(items.main).baseline(items.main, np.arange(20)).view(20, 8, 2)[:, :, 0]
    mean, deviation, *quantiles, step = features.T
    assert not deviation.any()
    assert not step.any()
    for values in (mean, *quantiles):
        torch.testing.assert_close(values, torch.from_numpy(levels), rtol=0, atol=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_compared_as_they_are(channels):
    x = np.random.default_rng(0).integers(0, 256, (20, 8, 8, channels), dtype=np.uint8)
    features, train, test = scaled(x, 15)
    assert torch.equal(torch.cat([train, test]), features)
