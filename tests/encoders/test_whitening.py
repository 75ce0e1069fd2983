"""Whitening: the same spread in every direction, whatever linear map the features went through."""

import pytest
import torch
from torch.nn.functional import normalize

from likewise import encoders
from likewise.encoders.whitening import Whitening


def skewed(n=500, dim=6, seed=0):
    """Return features (n, dim) that vary very differently from direction to direction."""
    rng = torch.Generator().manual_seed(seed)
    spread = torch.diag(torch.logspace(-2, 1, dim)) @ torch.randn(dim, dim, generator=rng)
    return torch.randn(n, dim, generator=rng) @ spread + 3


def fitted(features):
    whitening = Whitening(features.shape[1])
    whitening.fit(features)
    return whitening


def covariance(rows):
    centred = (rows - rows.mean(dim=0)).double()
    return centred.T @ centred / len(rows)


def test_it_is_the_inverse_root_of_the_covariance_and_the_mean_variance():
    features = skewed()
    found = covariance(fitted(features)(features))
    before = covariance(features)
    ridge = before.trace() / len(before) * torch.eye(len(before), dtype=torch.float64)
    assert torch.allclose(found, torch.linalg.solve(before + ridge, before), atol=1e-4)
    assert fitted(features)(features).mean(dim=0).abs().max() < 1e-4


def test_rotated_features_give_the_same_cosines():
    features = skewed()
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))[0]
    one, other = (normalize(fitted(rows)(rows), dim=1) for rows in (features, features @ rotation))
    assert torch.allclose(one @ one.T, other @ other.T, atol=1e-3)


@pytest.mark.parametrize("features", [torch.ones(5, 3), torch.ones(1, 3), torch.zeros(4, 3)])
def test_features_that_do_not_vary_stay_finite(features):
    assert fitted(features)(features).eq(0).all()


def test_a_whitened_encoder_is_saved_and_loaded_and_another_one_has_no_names_for_it():
    encoder, other = (encoders.build("sensors", channels=2, samples=40).eval() for _ in range(2))
    plain = encoder.state_dict()
    assert not any("whitening" in name for name in plain)
    sequences = torch.randn(50, 40, 2, generator=torch.Generator().manual_seed(0))
    before = encoder(sequences)
    encoder.whiten(lambda: encoder(sequences).detach())
    whitened = encoder(sequences)
    assert torch.allclose(whitened, encoder.whitening(before), atol=1e-6)
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(sequences), whitened)
    other.load_state_dict(plain)
    assert torch.equal(other(sequences), before)


def test_whitening_again_starts_from_the_features_before_it():
    encoder = encoders.build("sensors", channels=2, samples=40).eval()
    sequences = torch.randn(50, 40, 2, generator=torch.Generator().manual_seed(0))
    encoder.whiten(lambda: encoder(sequences).detach())
    once = encoder.state_dict()["whitening.matrix"].clone()
    encoder.whiten(lambda: encoder(sequences).detach())
    assert torch.equal(encoder.state_dict()["whitening.matrix"], once)
