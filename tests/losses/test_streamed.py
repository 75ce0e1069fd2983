"""Large problems, as they really run: in tiles, in any precision, on any graph."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from likewise import losses
from likewise.losses import streamed
from likewise.losses import tiles as tiling
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


def plain_among(query, positive, negatives, query_ids, key_ids, temperature):
    """The formula with products for similarities, from the whole matrix."""
    own = (query * positive).sum(dim=1, keepdim=True)
    hidden = (query_ids[:, None] == key_ids) | (key_ids == -1)
    scores = torch.cat([own, (query @ negatives.T).masked_fill(hidden, -math.inf)], dim=1) / temperature
    return cross_entropy(scores, torch.zeros(len(query), dtype=torch.int64), reduction="none")


def among(n, k, d, dtype=torch.float64):
    """Queries, positives and shared negatives, with ids: some of them match, some are padding."""
    generator = torch.Generator().manual_seed(n + k)
    inputs = [rows(m, d, seed=seed, dtype=dtype) for seed, m in enumerate((n, n, k))]
    query_ids = torch.randint(-1, 2 * k, (n,), generator=generator)
    return inputs, query_ids, torch.randint(-1, 2 * k, (k,), generator=generator)


@pytest.mark.parametrize("side", [None, 16], ids=["as one tile", "in tiles"])
@pytest.mark.parametrize(("size", "temperature"), [(1.0, 1.0), (1.0, 0.005), (30.0, 0.005)])
def test_products_of_any_size_have_the_gradients_of_the_formula(monkeypatch, side, size, temperature):
    """Scores of a few, of ±500 and of tens of thousands: weights that are kept are relative to the row's highest."""
    if side:
        monkeypatch.setattr(tiling, "_side", lambda device: side)
    (query, positive, negatives), query_ids, key_ids = among(50, 20, 3)
    query = (size * query.detach()).requires_grad_()
    largest = (query @ negatives.T).detach().abs().max() / temperature
    assert largest > (3 if temperature == 1 else 500)
    ids = {"query_ids": query_ids, "key_ids": key_ids}
    options = {"similarity": "dot", "temperature": temperature, "reduction": "none"}
    expected = plain_among(query, positive, negatives, query_ids, key_ids, temperature).where(query_ids >= 0, 0)
    loss = losses.info_nce(query, positive, negatives, **ids, **options)
    assert_same(loss, expected, [query, positive, negatives], 1e-12 * float(largest) / temperature)


def test_products_of_500_are_as_exact_as_float32_can_be():
    inputs, query_ids, key_ids = among(50, 20, 3, torch.float32)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    ids = {"query_ids": query_ids, "key_ids": key_ids}
    loss = losses.info_nce(*inputs, **ids, similarity="dot", temperature=0.005)
    exact = plain_among(*wide, query_ids, key_ids, 0.005)[query_ids >= 0].mean()
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    for got, want in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(exact, wide), strict=True):
        assert want.norm() > 0
        assert (got.double() - want).norm() <= 1e-4 * want.norm()


def test_a_row_whose_candidates_are_all_hidden_has_no_loss_and_no_gradient_however_large_its_products():
    query, positive, negatives = (rows(m, 4, seed=m) for m in (3, 3, 5))
    ids = {"query_ids": torch.tensor([7, 7, 1]), "key_ids": torch.full((5,), 7)}
    loss = losses.info_nce(query, positive, negatives, similarity="dot", temperature=0.001, reduction="none", **ids)
    gradients = torch.autograd.grad(loss.sum(), [query, positive, negatives])
    assert loss[:2].tolist() == [0, 0]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][:2] == 0).all()


TALL = {
    "learned": (True, None),
    "fixed": (False, None),
    "hardest": (True, losses.Hardest(3)),
    "hard-weighted": (True, losses.HardWeighted(0.5)),
}


@pytest.mark.parametrize("slabs", [1, 2])
@pytest.mark.parametrize("kind", TALL)
def test_many_queries_and_few_negatives_are_tall_tiles(monkeypatch, kind, slabs):
    """As in CPC: 3,000 frames and 24 candidates, in two tiles of all candidates; whichever way products are cut."""
    monkeypatch.setattr(tiling, "_side", lambda device: 256)
    for module in (tiling, streamed):
        monkeypatch.setattr(module, "slabs_for", lambda like: slabs)
    assert tiling.tile_shape(3000, 24, torch.device("cpu")) == (2730, 24)
    learned, policy = TALL[kind]
    inputs, query_ids, key_ids = among(3000, 24, 8)
    query, positive, negatives = inputs
    own = (query * positive).sum(dim=1, keepdim=True) / 2
    hidden = (query_ids[:, None] == key_ids) | (key_ids == -1)
    scores = (query @ negatives.T / 2).masked_fill(hidden, -math.inf)
    mass = scores.logsumexp(dim=1)
    if kind == "hardest":
        mass = scores.topk(3, dim=1).values.logsumexp(dim=1)
    if kind == "hard-weighted":
        mass = (~hidden).sum(dim=1).double().log() + (1.5 * scores).logsumexp(dim=1) - (0.5 * scores).logsumexp(dim=1)
    expected = torch.log(own[:, 0].exp() + mass.exp()) - own[:, 0]
    loss = losses.info_nce(
        query,
        positive,
        negatives if learned else negatives.detach(),
        similarity="dot",
        temperature=2.0,
        policy=policy,
        query_ids=query_ids,
        key_ids=key_ids,
        reduction="none",
    )
    assert_same(loss, expected.where(query_ids >= 0, 0), inputs if learned else inputs[:2], 1e-9)


@pytest.mark.parametrize("layout", ["one column of a horizon", "transposed", "every second row"])
def test_negatives_that_learn_beside_rows_of_any_layout(layout):
    """Queries of one step ahead are a view into those of all: their gradient lands where they came from."""
    base = {"one column of a horizon": (40, 3, 6), "transposed": (6, 40), "every second row": (80, 6)}[layout]
    cut = {
        "one column of a horizon": lambda x: x.unbind(dim=1)[1],
        "transposed": lambda x: x.T,
        "every second row": lambda x: x[::2],
    }[layout]
    query, positive, negatives = rows(*base), rows(*base, seed=1), rows(11, 6, seed=2)
    ids = torch.arange(40) % 15, torch.arange(11) - 1
    options = {"query_ids": ids[0], "key_ids": ids[1], "similarity": "dot", "temperature": 1.0, "reduction": "none"}
    expected = plain_among(cut(query), cut(positive), negatives, *ids, 1.0)
    assert_same(
        losses.info_nce(cut(query), cut(positive), negatives, **options), expected, [query, positive, negatives]
    )


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
    "shared": lambda a, b, keys: losses.info_nce(
        a, b, b.roll(1, dims=0)[: len(b) // 2], similarity="dot", temperature=4.0, reduction="none"
    ),
    "groups": lambda a, b, keys: losses.info_nce(
        a, b, b.roll(1, dims=0).unflatten(0, (10, -1)), similarity="dot", temperature=4.0, reduction="none"
    ),
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
