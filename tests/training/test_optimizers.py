"""Which parameters decay, LARS beside a slow loop from its formula, and kernels that do not change the answer."""

import math

import pytest
import torch
from torch import nn

from likewise import losses
from likewise.training import optimizers
from likewise.training.optimizers import LARS


class Small(nn.Module):
    """One parameter of every kind that matters here."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 5)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 5))
        self.pos_embed = nn.Parameter(torch.randn(1, 3, 5))
        self.frozen = nn.Parameter(torch.randn(5, 5), requires_grad=False)
        self.loss = losses.Sigmoid(learnable=True)

    def forward(self, x):
        pooled = self.linear(self.norm(self.conv(x)).relu().mean(dim=(2, 3)))
        tokens = pooled + self.cls_token[0] + self.pos_embed.mean(dim=1)
        return self.loss(tokens, tokens.flip(0).detach())


def train(model, optimizer, steps, start=0):
    for step in range(start, start + steps):
        x = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x.to(next(model.parameters()).dtype)).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def names_of(model, parameters):
    wanted = {id(parameter) for parameter in parameters}
    return {name for name, parameter in model.named_parameters() if id(parameter) in wanted}


@pytest.mark.parametrize("name", optimizers.NAMES)
def test_biases_norms_tokens_positions_and_temperatures_do_not_decay(name):
    model = Small()
    optimizer = optimizers.build(name, model, lr=0.1, momentum=0.9, weight_decay=0.05)
    decaying, others = optimizer.param_groups
    assert names_of(model, decaying["params"]) == {"conv.weight", "linear.weight"}
    assert names_of(model, others["params"]) == {
        *("conv.bias", "norm.weight", "norm.bias", "linear.bias"),
        *("cls_token", "pos_embed", "loss.log_temperature", "loss.bias"),
    }
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.05, 0.0)
    if name == "lars":
        assert (decaying["adapt"], others["adapt"]) == (True, False)


def test_a_group_that_would_be_empty_is_left_out():
    for module, decays in ((nn.Linear(2, 3, bias=False), True), (nn.LayerNorm(3), False)):
        groups = optimizers.build("adamw", module, lr=0.1, weight_decay=0.1).param_groups
        assert [group["decays"] for group in groups] == [decays]


def test_the_settings_arrive():
    model = nn.Linear(2, 3)
    sgd = optimizers.build("sgd", model, lr=0.3, momentum=0.8, weight_decay=0.1).param_groups[0]
    assert (sgd["lr"], sgd["momentum"], sgd["weight_decay"], sgd["nesterov"]) == (0.3, 0.8, 0.1, False)
    adam = optimizers.build("adam", model, lr=0.3, momentum=0.8, weight_decay=0.1).param_groups[0]
    assert (adam["lr"], adam["betas"], adam["decoupled_weight_decay"]) == (0.3, (0.8, 0.999), False)
    assert optimizers.build("adamw", model, lr=0.3).param_groups[0]["decoupled_weight_decay"] is True


def slow_lars(weights, gradients, rates, *, momentum, weight_decay, trust, adapt):
    """The docstring's four lines, one number at a time; `gradients` is one list of tensors a step."""
    velocities = [[0.0] * weight.numel() for weight in weights]
    flat = [weight.flatten().tolist() for weight in weights]
    for step, lr in enumerate(rates):
        for w, v, gradient in zip(flat, velocities, gradients[step], strict=True):
            u = [g + weight_decay * x for g, x in zip(gradient.flatten().tolist(), w, strict=True)]
            norm_w, norm_u = math.hypot(*w), math.hypot(*u)
            ratio = trust * norm_w / norm_u if adapt and norm_w and norm_u else 1.0
            for i in range(len(w)):
                v[i] = momentum * v[i] + lr * ratio * u[i]
                w[i] -= v[i]
    return [torch.tensor(w, dtype=torch.float64).reshape(weight.shape) for w, weight in zip(flat, weights, strict=True)]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("adapt", [True, False])
def test_lars_is_its_formula(adapt, momentum, weight_decay):
    """Also where a weight or a gradient is all zeros, and with a rate that changes from step to step."""
    generator = torch.Generator().manual_seed(0)
    shapes, rates = [(3, 4), (2, 3, 2, 2), (5, 2), (4, 2)], [4.8, 2.4, 0.3]
    weights = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    gradients = [[torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes] for _ in rates]
    weights[2].zero_()
    for gradient in gradients:
        gradient[3].zero_()
    settings = {"momentum": momentum, "weight_decay": weight_decay, "trust": 0.02, "adapt": adapt}
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    optimizer = LARS(parameters, lr=1.0, **settings)
    for lr, gradient in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        for parameter, value in zip(parameters, gradient, strict=True):
            parameter.grad = value.clone()
        optimizer.step()
        for parameter, value in zip(parameters, gradient, strict=True):
            assert torch.equal(parameter.grad, value), "a gradient is the caller's"
    for parameter, expected in zip(parameters, slow_lars(weights, gradients, rates, **settings), strict=True):
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-12, atol=1e-13)


def test_lars_takes_the_same_relative_step_whatever_the_gradient():
    """The first step moves a weight by lr · trust of its norm."""
    for scale in (1e-6, 1.0, 1e6):
        weight = nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
        before = weight.detach().clone()
        weight.grad = scale * torch.randn(6, 5, dtype=torch.float64)
        LARS([weight], lr=0.3).step()
        assert ((weight - before).norm() / before.norm()).item() == pytest.approx(0.3 * 0.001)


def test_lars_takes_mixed_dtypes_and_parameters_without_gradient():
    """And a half-precision gradient whose norm overflows half precision."""
    weights = [nn.Parameter(torch.ones(4, 4, dtype=dtype)) for dtype in (torch.float32, torch.float16, torch.float64)]
    idle = nn.Parameter(torch.ones(4, 4))
    optimizer = LARS([*weights, idle], lr=100.0, trust=0.001)
    for weight in weights:
        weight.grad = torch.full_like(weight, 6e4)
    assert optimizer.step(lambda: 5.0) == 5.0
    for weight in weights:
        torch.testing.assert_close(weight.double(), torch.full((4, 4), 0.9, dtype=torch.float64), rtol=1e-3, atol=0)
    assert torch.equal(idle, torch.ones(4, 4))
    assert idle not in optimizer.state


@pytest.mark.parametrize("name", optimizers.NAMES)
def test_training_lowers_the_loss_and_twice_gives_the_same_bits(name):
    def run():
        model = Small()
        optimizer = optimizers.build(name, model, lr=0.01, momentum=0.9, weight_decay=1e-4)
        x = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(0))
        before = model(x).item()
        weights = train(model, optimizer, 10)
        assert model(x).item() < before
        return weights

    assert all(map(torch.equal, run(), run()))


@pytest.mark.parametrize(("name", "plain"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)])
def test_the_fused_kernels_give_what_the_plain_ones_give(name, plain):
    model, same = Small().double(), Small().double()
    optimizer = optimizers.build(name, model, lr=0.01, momentum=0.9, weight_decay=0.1)
    settings = {"momentum": 0.9} if name == "sgd" else {}
    slow = plain(optimizers.parameter_groups(same, 0.1), lr=0.01, foreach=False, **settings)
    names = [name for name, _ in model.named_parameters()]
    for parameter, one, other in zip(names, train(model, optimizer, 5), train(same, slow, 5), strict=True):
        # Before a batch norm the gradient of a bias is 0 but for rounding, and Adam divides what is left by 1e-8.
        absolute = 1e-10 if parameter == "conv.bias" else 1e-14
        torch.testing.assert_close(one, other, rtol=1e-12, atol=absolute)
    assert all(group["fused"] for group in optimizer.param_groups)


@pytest.mark.parametrize("name", optimizers.NAMES)
def test_strides_do_not_change_the_answer(name):
    """The fused CPU kernels do not look at strides: a contiguous momentum beside a channels-last weight."""
    weight, gradient = torch.randn(2, 4, 3, 3, 3, generator=torch.Generator().manual_seed(0)).unbind()

    def run(weight_format, gradient_format, state_format):
        model = nn.Conv2d(3, 4, 3, bias=False)
        model.weight = nn.Parameter(weight.clone(memory_format=weight_format))
        optimizer = optimizers.build(name, model, lr=0.1, momentum=0.9, weight_decay=0.01)
        for _ in range(2):
            model.weight.grad = gradient.clone(memory_format=gradient_format)
            optimizer.step()
            state = optimizer.state[model.weight]
            for key, value in state.items():
                state[key] = value.contiguous(memory_format=state_format) if value.ndim == 4 else value
        return model.weight.detach()

    plain, last = torch.contiguous_format, torch.channels_last
    contiguous, channels_last = run(plain, plain, plain), run(last, last, last)
    assert torch.equal(run(plain, last, last), contiguous)
    assert torch.equal(run(last, plain, plain), channels_last)
    # The kernels round the tail of a tensor otherwise than its body, and another order has another tail.
    torch.testing.assert_close(contiguous, channels_last, rtol=1e-6, atol=1e-6)


def test_a_weight_with_gaps_in_memory_is_not_fused():
    model = nn.Linear(4, 3, bias=False)
    model.weight = nn.Parameter(torch.randn(3, 8)[:, ::2])
    optimizer = optimizers.build("sgd", model, lr=0.1)
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones(3, 4)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.1)


MODEL = nn.Linear(2, 2)
CASES = {
    "optimizer must be one of sgd, adam, adamw, lars; got 'sdg', did you mean 'sgd'?": lambda: optimizers.build(
        "sdg", MODEL, lr=0.1
    ),
    "optimizer must be one of sgd, adam, adamw, lars; got 'AdamW', did you mean 'adamw'?": lambda: optimizers.build(
        "AdamW", MODEL, lr=0.1
    ),
    "optimizer must be one of sgd, adam, adamw, lars; got 'muon'": lambda: optimizers.build("muon", MODEL, lr=0.1),
    "lr must be finite and not negative, got -1": lambda: optimizers.build("sgd", MODEL, lr=-1.0),
    "lr must be a number, got '0.1'": lambda: optimizers.build("sgd", MODEL, lr="0.1"),
    "momentum must be in [0, 1), got 1": lambda: optimizers.build("adam", MODEL, lr=0.1, momentum=1.0),
    "weight_decay must be finite and not negative, got nan": lambda: optimizers.build(
        "lars", MODEL, lr=0.1, weight_decay=math.nan
    ),
    "trust must be positive and finite, got 0": lambda: LARS(MODEL.parameters(), lr=0.1, trust=0),
    "model must have a trainable parameter, got none in ReLU": lambda: optimizers.build("sgd", nn.ReLU(), lr=0.1),
}


@pytest.mark.parametrize("sentence", CASES)
def test_bad_input_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence]()
    assert str(error.value) == sentence
