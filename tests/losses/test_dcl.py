"""DCL and DCLW against loops from their formulas, and what decoupling is for."""

import pytest
import torch

from likewise import losses
from tests.losses import slow
from tests.losses.conftest import assert_same, rows

IDS = {
    "all different": None,
    "some alike": torch.tensor([3, 1, 3, 5, 1, 7]),
    "padding": torch.tensor([3, -1, 3, 5, 1, 7]),
    "two columns": torch.tensor([[0, 5], [1, 5], [2, -1], [3, 6], [4, 6], [5, -1]]),
}


@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_rows_and_gradients_are_those_of_the_formula(path, ids, temperature, sigma):
    a, b = rows(6, 4), rows(6, 4, seed=1)
    learned = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    options = {"temperature": learned, "sigma": sigma, "ids": ids}
    actual, expected = losses.dcl(a, b, reduction="none", **options), slow.dcl(a, b, **options)
    assert_same(actual, expected, (a, b, learned), tolerance=1e-9)


def test_the_mean_leaves_out_rows_without_negatives():
    """Two items of one id have no negatives, and without any there is nothing to learn."""
    a, b = rows(2, 4), rows(2, 4, seed=1)
    value = losses.dcl(a, b, ids=torch.tensor([4, 4]))
    assert value == 0
    assert not torch.autograd.grad(value, a)[0].any()
    a, b = rows(3, 4), rows(3, 4, seed=1)
    ids = torch.tensor([4, 4, 2])
    single = losses.dcl(a, b, ids=ids, reduction="none")
    torch.testing.assert_close(losses.dcl(a, b, ids=ids), single.mean())


def test_an_easy_pair_still_pulls():
    """NT-Xent's gradient vanishes where the positive is near and the negatives far; DCL's stays, which is its point."""
    a = torch.eye(4, dtype=torch.float64).requires_grad_()
    b = (torch.eye(4, dtype=torch.float64) + 0.01).requires_grad_()
    coupled = torch.autograd.grad(losses.nt_xent(a, b, temperature=0.1), a)[0].norm()
    decoupled = torch.autograd.grad(losses.dcl(a, b, temperature=0.1), a)[0].norm()
    assert decoupled > 100 * coupled


def test_the_module_is_the_function_and_its_temperature_can_be_learned():
    a, b = rows(5, 4), rows(5, 4, seed=1)
    module = losses.DCL(temperature=0.2, sigma=0.5, learnable=True)
    torch.testing.assert_close(module(a, b), losses.dcl(a, b, temperature=0.2, sigma=0.5), rtol=1e-6, atol=1e-6)
    module(a, b).backward()
    assert module.log_temperature.grad.abs() > 0


def test_a_negative_width_is_refused():
    with pytest.raises(ValueError, match=r"^sigma must be positive, or 0 for no weights, got -1$"):
        losses.dcl(rows(2, 4), rows(2, 4), sigma=-1.0)


def test_a_narrow_width_does_not_overflow():
    a = torch.eye(4).requires_grad_()
    value = losses.dcl(a, torch.eye(4), sigma=0.005)
    assert value.isfinite()
    assert torch.autograd.grad(value, a)[0].isfinite().all()
