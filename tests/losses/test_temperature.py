"""Temperatures from 0.005 to 1, and temperatures that are learned."""

import math

import pytest
import torch

from likewise import losses
from tests.losses.conftest import rows

TEMPERATURES = [0.005, 0.01, 0.02, 0.05, 0.07, 0.2, 0.5, 1.0]


def views(n, d, seed=0, noise=0.7):
    """Two noisy views of n items, as a half-trained encoder sees them, in float32."""
    a = rows(n, d, seed=seed, grad=False)
    return [(a + noise * rows(n, d, seed=seed + k, grad=False)).float().requires_grad_() for k in (1, 2)]


def matrix_loss(name, a, b, temperature):
    """The same losses over the whole float64 matrix, by logsumexp."""
    a, b = (torch.nn.functional.normalize(x.double(), dim=1) for x in (a, b))
    if name == "nt_xent":
        both = torch.cat([a, b])
        scores = (both @ both.T / temperature).fill_diagonal_(-math.inf)
        partner = torch.arange(len(both)).roll(len(a))
        return (scores.logsumexp(dim=1) - scores[torch.arange(len(both)), partner]).mean()
    scores = a @ b.T / temperature
    rowwise = (scores.logsumexp(dim=1) - scores.diagonal()).mean()
    return rowwise if name == "info_nce" else (rowwise + (scores.logsumexp(dim=0) - scores.diagonal()).mean()) / 2


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("n", [40, 700])  # as a small problem, and streamed
@pytest.mark.parametrize("name", ["nt_xent", "info_nce", "symmetric_info_nce"])
def test_float32_agrees_with_float64_at_every_temperature(name, n, temperature):
    a, b = views(n, 32)
    loss = getattr(losses, name)(a, b, temperature=temperature)
    exact = matrix_loss(name, a, b, temperature)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=1e-6 / temperature * 0.1)
    got = torch.autograd.grad(loss, [a, b])
    want = torch.autograd.grad(exact, [a, b])
    for g, w in zip(got, want, strict=True):
        assert g.isfinite().all()
        alive = w.norm(dim=1) > 1e-6 * w.norm(dim=1).max()
        assert (g[alive].norm(dim=1) > 0).all()  # no dead gradient
        assert (g - w).norm() <= 1e-4 * w.norm()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("n", [40, 700])
def test_sigmoid_nce_and_sup_con_agree_with_float64_at_every_temperature(n, temperature):
    a, b = views(n, 32)
    labels, keys = torch.arange(n) % 7, views(900, 32, seed=9)[0].detach()
    log_partition = losses.estimate_log_partition(a, keys, items=5000, temperature=temperature).item()
    assert math.isfinite(log_partition)
    calls = [
        lambda a, b: losses.sigmoid(a, b, temperature=temperature, bias=-5.0),
        lambda a, b: losses.nce(a, b, keys, log_partition=log_partition, items=5000, temperature=temperature),
        lambda a, b: losses.sup_con(torch.cat([a, b]), labels.repeat(2), temperature=temperature),
    ]
    for call in calls:
        loss, exact = call(a, b), call(a.double(), b.double())
        torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)
        (got,), (want,) = (torch.autograd.grad(value, [a]) for value in (loss, exact))
        assert got.isfinite().all()
        assert (got.norm(dim=1) > 0).all()
        assert (got - want).norm() <= 1e-4 * want.norm()


@pytest.mark.parametrize("policy", [losses.Hardest(8), losses.HardWeighted(1.0), losses.Debiased(0.05)])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_policies_agree_with_float64_at_every_temperature(policy, temperature):
    a, b = views(300, 32)
    loss = losses.nt_xent(a, b, temperature=temperature, policy=policy)
    exact = losses.nt_xent(a.double(), b.double(), temperature=temperature, policy=policy)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)
    (got,), (want,) = (torch.autograd.grad(x, [a]) for x in (loss, exact))
    assert got.isfinite().all()
    assert got.any()
    assert (got - want).norm() <= 1e-3 * want.norm()


@pytest.mark.parametrize("temperature", [0.005, 0.07])
def test_opposite_rows_at_low_temperature(temperature):
    """The worst case: the positive at −1/τ, the negatives at +1/τ, 400 apart at 0.005."""
    a = torch.ones(600, 4, requires_grad=True)
    b = torch.cat([-torch.ones(1, 4), torch.ones(599, 4)]).requires_grad_()
    loss = losses.info_nce(a, b, temperature=temperature, reduction="none")
    assert loss[0].item() == pytest.approx(2 / temperature + math.log(599), rel=1e-5)
    loss.sum().backward()
    assert a.grad.isfinite().all()
    assert b.grad.isfinite().all()


MODULES = [
    (losses.InfoNCE, losses.info_nce),
    (losses.NTXent, losses.nt_xent),
    (losses.SymmetricInfoNCE, losses.symmetric_info_nce),
    (losses.Sigmoid, losses.sigmoid),
]


@pytest.mark.parametrize(("module", "function"), MODULES)
def test_a_learned_temperature_is_a_parameter_in_logarithm(module, function):
    a, b = rows(6, 4, dtype=torch.float32), rows(6, 4, seed=1, dtype=torch.float32)
    loss = module(temperature=0.3, learnable=True)
    assert set(dict(loss.named_parameters())) >= {"log_temperature"}
    value = loss(a, b)
    torch.testing.assert_close(value, function(a, b, temperature=0.3))
    value.backward()
    t = torch.tensor(0.3, requires_grad=True)
    function(a, b, temperature=t).backward()
    torch.testing.assert_close(loss.log_temperature.grad, 0.3 * t.grad)  # ∂L/∂log τ = τ ∂L/∂τ


def test_a_learned_temperature_is_held_at_its_minimum_after_each_step():
    a = torch.eye(6, requires_grad=True)  # aligned pairs: a lower temperature is always better
    loss = losses.SymmetricInfoNCE(temperature=0.5, learnable=True)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1.5)
    for _ in range(5):
        optimizer.zero_grad()
        loss(a, a).backward()
        optimizer.step()
        assert loss.temperature.item() >= 0.01 * (1 - 1e-6)
    assert loss.temperature.item() == pytest.approx(0.01)


def test_a_fixed_temperature_is_no_parameter():
    assert not list(losses.InfoNCE().parameters())
    assert losses.InfoNCE(temperature=0.2).temperature == 0.2


def test_a_module_is_stepped_saved_and_loaded_with_its_temperature_and_bias():
    loss = losses.Sigmoid(learnable=True)
    assert set(loss.state_dict()) == {"log_temperature", "bias"}
    with torch.no_grad():
        loss.log_temperature.fill_(math.log(0.5))
        loss.bias.fill_(-3.0)
    other = losses.Sigmoid(learnable=True)
    other.load_state_dict(loss.state_dict())
    assert other.temperature.item() == pytest.approx(0.5)
    assert other.bias.item() == -3.0
