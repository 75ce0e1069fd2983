"""Large problems, as they really run: in tiles, in any precision, on any graph."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from likewise import losses
from tests.losses.conftest import assert_same, rows

N, D = 1500, 24  # 3,000 rows: several tiles in each direction, the last ones ragged


def plain_nt_xent(a, b, temperature=0.1):
    both = normalize(torch.cat([a, b]), dim=1)
    scores = (both @ both.T / temperature).fill_diagonal_(-math.inf)
    return cross_entropy(scores, torch.arange(len(both)).roll(len(a)), reduction="none")


def plain_symmetric(a, b, temperature=0.07):
    scores = normalize(a, dim=1) @ normalize(b, dim=1).T / temperature
    own = torch.arange(len(a))
    return (cross_entropy(scores, own, reduction="none") + cross_entropy(scores.T, own, reduction="none")) / 2


def plain_queue(query, positive, queue, temperature=0.07):
    query = normalize(query, dim=1)
    positive = (query * normalize(positive, dim=1)).sum(dim=1, keepdim=True)
    scores = torch.cat([positive, query @ normalize(queue, dim=1).T], dim=1) / temperature
    return cross_entropy(scores, torch.zeros(len(query), dtype=torch.int64), reduction="none")


@pytest.mark.parametrize("temperature", [0.1, 0.01])  # without and with a running maximum
def test_large_problems_equal_the_whole_matrix(temperature):
    a, b, queue = rows(N, D), rows(N, D, seed=1), rows(2 * N + 1, D, seed=2, grad=False)
    options = {"temperature": temperature, "reduction": "none"}
    tolerance = 1e-9 / temperature
    assert_same(losses.nt_xent(a, b, **options), plain_nt_xent(a, b, temperature), [a, b], tolerance)
    assert_same(losses.symmetric_info_nce(a, b, **options), plain_symmetric(a, b, temperature), [a, b], tolerance)
    assert_same(losses.info_nce(a, b, queue, **options), plain_queue(a, b, queue, temperature), [a, b], tolerance)
    learned = queue.clone().requires_grad_()
    expected = plain_queue(a, b, learned, temperature)
    assert_same(losses.info_nce(a, b, learned, **options), expected, [a, b, learned], tolerance)


def test_ids_that_mask_more_than_a_few_places():
    """Few matches are found by sorting, many by comparing: both hide the same candidates."""
    a, b = rows(N, D), rows(N, D, seed=1)
    for groups in (3, N // 2, 10 * N):
        ids = torch.randint(groups, (N,), generator=torch.Generator().manual_seed(groups))
        scores = normalize(a, dim=1) @ normalize(b, dim=1).T / 0.07
        hidden = (ids[:, None] == ids).fill_diagonal_(False)
        expected = cross_entropy(scores.masked_fill(hidden, -math.inf), torch.arange(N), reduction="none")
        assert_same(losses.info_nce(a, b, query_ids=ids, reduction="none"), expected, [a, b], 1e-9)


def test_the_hardest_are_those_of_the_whole_row():
    a, b, queue = rows(300, D), rows(300, D, seed=1), rows(5000, D, seed=2)
    scores = normalize(a, dim=1) @ normalize(queue, dim=1).T / 0.07
    positive = (normalize(a, dim=1) * normalize(b, dim=1)).sum(dim=1, keepdim=True) / 0.07
    candidates = torch.cat([positive, scores.topk(20, dim=1).values], dim=1)
    expected = cross_entropy(candidates, torch.zeros(300, dtype=torch.int64), reduction="none")
    loss = losses.info_nce(a, b, queue, policy=losses.Hardest(20), reduction="none")
    assert_same(loss, expected, [a, b, queue], 1e-9)


def test_a_queue_is_read_once_and_backward_only_scales():
    """Keys without gradient: the number of products does not change whether or not backward runs."""
    products = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "mm" in func.__name__:
                products.append(func.__name__)
            return func(*args, **(kwargs or {}))

    query = rows(64, D, dtype=torch.float32)
    with Count():
        loss = losses.info_nce(query, query.detach(), rows(9000, D, dtype=torch.float32, grad=False))
        forward = len(products)
        loss.backward()
    assert forward > 0
    assert len(products) == forward


CALLS = {
    "nt_xent": lambda a, b, keys: losses.nt_xent(a, b, reduction="none"),
    "info_nce": lambda a, b, keys: losses.info_nce(a, b, reduction="none"),
    "queue": lambda a, b, keys: losses.info_nce(a, b, keys, reduction="none"),
    "symmetric": lambda a, b, keys: losses.symmetric_info_nce(a, b, reduction="none"),
    "sigmoid": lambda a, b, keys: losses.sigmoid(a, b, bias=-3.0, reduction="none"),
    "nce": lambda a, b, keys: losses.nce(a, b, keys, log_partition=6.0, items=900, reduction="none"),
    "hardest": lambda a, b, keys: losses.nt_xent(a, b, policy=losses.Hardest(5), reduction="none"),
    "hard-weighted": lambda a, b, keys: losses.nt_xent(a, b, policy=losses.HardWeighted(1.0, 0.05), reduction="none"),
    "sup_con": lambda a, b, keys: losses.sup_con(torch.cat([a, b]), torch.arange(2 * len(a)) % 9, reduction="none"),
}


@pytest.mark.parametrize("n", [20, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("call", CALLS)
def test_narrow_inputs_are_exact_for_the_numbers_they_hold(call, dtype, n):
    """bfloat16 rows are rounded once, by the caller; the loss is theirs, and gradients come back in kind."""
    a, b, keys = (rows(n, D, seed=s, dtype=dtype, grad=s < 2) for s in range(3))
    a64, b64 = (x.detach().double().requires_grad_() for x in (a, b))
    value, exact = CALLS[call](a, b, keys), CALLS[call](a64, b64, keys.double())
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=2e-5)
    for got, want in zip(
        torch.autograd.grad(value.sum(), [a, b]), torch.autograd.grad(exact.sum(), [a64, b64]), strict=True
    ):
        assert got.dtype == dtype
        assert (got.double() - want).norm() <= torch.finfo(dtype).eps * want.norm() + 1e-5 * want.norm()


@pytest.mark.parametrize("n", [20, 600])
@pytest.mark.parametrize("call", CALLS)
def test_autocast_changes_nothing(call, n):
    a, b, keys = (rows(n, D, seed=s, dtype=torch.float32, grad=s < 2) for s in range(3))
    outside = CALLS[call](a, b, keys)
    expected = torch.autograd.grad(outside.sum(), [a, b])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = CALLS[call](a, b, keys)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, outside)
    torch.testing.assert_close(torch.autograd.grad(inside.sum(), [a, b]), expected)


def test_backward_inside_autocast_changes_nothing_either():
    a, b = rows(600, D, dtype=torch.float32), rows(600, D, seed=1, dtype=torch.float32)
    expected = torch.autograd.grad(losses.nt_xent(a, b), [a, b])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.autograd.grad(losses.nt_xent(a, b), [a, b])
    torch.testing.assert_close(inside, expected)


@pytest.mark.parametrize("n", [20, 600])
@pytest.mark.parametrize("call", CALLS)
def test_a_second_backward_through_the_same_graph_gives_the_same(call, n):
    a, b, keys = (rows(n, D, seed=s, grad=s < 2) for s in range(3))
    loss = CALLS[call](a, b, keys).sum()
    first = torch.autograd.grad(loss, [a, b], retain_graph=True)
    second = torch.autograd.grad(loss, [a, b])
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("call", CALLS)
def test_inputs_are_never_written_to(call):
    inputs = [rows(600, D, seed=s, grad=s < 2) for s in range(3)]
    copies = [x.detach().clone() for x in inputs]
    CALLS[call](*inputs).sum().backward()
    for x, copy in zip(inputs, copies, strict=True):
        assert torch.equal(x, copy)


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_kept_without_gradient(call):
    a, b, keys = (rows(600, D, seed=s, grad=s < 2) for s in range(3))
    with torch.no_grad():
        value = CALLS[call](a, b, keys)
    assert not value.requires_grad
    torch.testing.assert_close(value, CALLS[call](a, b, keys).detach())


def test_only_one_side_may_learn():
    a, b = rows(600, D), rows(600, D, seed=1, grad=False)
    for loss in (losses.nt_xent, losses.info_nce, losses.symmetric_info_nce, losses.sigmoid):
        (frozen,) = torch.autograd.grad(loss(a, b), [a])
        (full,) = torch.autograd.grad(loss(a, b.clone().requires_grad_()), [a])
        torch.testing.assert_close(frozen, full)


@pytest.mark.parametrize("n", [20, 600])
def test_beside_a_compiled_encoder(n):
    """The encoder is compiled, the loss is not: the graph crosses from one to the other and back."""
    torch._dynamo.reset()
    encoder = torch.nn.Sequential(torch.nn.Linear(D, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).double()
    compiled = torch.compile(encoder, backend="aot_eager")
    x, y = rows(n, D, grad=False), rows(n, D, seed=1, grad=False)
    parameters = list(encoder.parameters())
    for loss in (losses.nt_xent, losses.symmetric_info_nce):
        got = torch.autograd.grad(loss(compiled(x), compiled(y)), parameters)
        want = torch.autograd.grad(loss(encoder(x), encoder(y)), parameters)
        torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces autograd functions
@pytest.mark.parametrize("n", [20, 600])
def test_inside_a_compiled_step(n):
    torch._dynamo.reset()
    a, b = rows(n, D), rows(n, D, seed=1)
    step = torch.compile(lambda a, b: losses.nt_xent(a * 2, b), backend="aot_eager")
    torch.testing.assert_close(step(a, b), losses.nt_xent(a, b))
    torch.testing.assert_close(torch.autograd.grad(step(a, b), [a]), torch.autograd.grad(losses.nt_xent(a, b), [a]))
