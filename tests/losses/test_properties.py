"""Whatever the shapes, dtypes and ids: the slow loop's value, finite gradients, nothing depends on memory layout."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from likewise import losses
from likewise.losses import streamed
from likewise.losses import tiles as tiling
from likewise.losses.masks import Mask
from tests.losses import slow

SETTINGS = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
sizes = st.integers(1, 9)
seeds = st.integers(0, 10**6)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16])
policies = st.one_of(
    st.none(),
    st.builds(losses.Hardest, st.integers(1, 12)),
    st.builds(losses.Debiased, st.floats(0.0, 0.9)),
    st.builds(losses.HardWeighted, st.floats(0.0, 3.0), st.sampled_from([0.0, 0.2])),
)


@pytest.fixture(params=["as it comes", "as one tile", "in tiles"], autouse=True)
def tiles(request, monkeypatch):
    if request.param != "as it comes":
        monkeypatch.setattr(streamed, "SMALL", 0)
        monkeypatch.setattr(streamed, "SMALL_ONE_WAY", 0)
    if request.param == "in tiles":
        monkeypatch.setattr(tiling, "_side", lambda device: 2)


@st.composite
def tensors(draw, n, d, dtype):
    """(n, d) rows, some of them zero, some of them every second row or column of something larger."""
    generator = torch.Generator().manual_seed(draw(seeds))
    layout = draw(st.sampled_from(["contiguous", "transposed", "strided"]))
    if layout == "transposed":
        rows = torch.randn(d, n, generator=generator).to(dtype).T
    elif layout == "strided":
        rows = torch.randn(2 * n, 3 * d, generator=generator).to(dtype)[::2, ::3]
    else:
        rows = torch.randn(n, d, generator=generator).to(dtype)
    if draw(st.booleans()):
        rows[draw(st.integers(0, n - 1))] = 0
    return rows.requires_grad_()


def ids_of(draw, n, columns):
    shape = (n,) if columns == 0 else (n, columns)
    return torch.randint(
        draw(st.integers(-3, -1)), draw(st.integers(0, 12)), shape, generator=torch.Generator().manual_seed(draw(seeds))
    )


def check(loss, reference, inputs, dtype, policy=None):
    """The slow loop's values; finite gradients, and in float64 its gradients too, where nothing ties or is clamped."""
    exact = dtype == torch.float64
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if exact else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(loss.double(), reference.detach(), **tolerance)
    weights = torch.linspace(-1, 2, len(loss), dtype=loss.dtype)
    got = torch.autograd.grad((loss * weights).sum(), inputs, allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in got)
    if exact and policy is None and reference.requires_grad and all(x.norm(dim=1).all() for x in inputs):
        want = torch.autograd.grad((reference * weights).sum(), inputs, allow_unused=True)
        for g, w, x in zip(got, want, inputs, strict=True):
            zero = torch.zeros_like(x)
            torch.testing.assert_close(zero if g is None else g, zero if w is None else w, rtol=1e-8, atol=1e-8)


@SETTINGS
@given(data=st.data(), n=sizes, k=st.integers(0, 9), d=sizes, dtype=dtypes, policy=policies, columns=st.integers(0, 3))
def test_info_nce_among_shared_negatives(data, n, k, d, dtype, policy, columns):
    query, positive = data.draw(tensors(n, d, dtype)), data.draw(tensors(n, d, dtype))
    negatives = data.draw(tensors(k, d, dtype)) if k else torch.empty(0, d, dtype=dtype)
    if data.draw(st.booleans()):
        negatives = negatives.detach()
    ids = {"query_ids": ids_of(data.draw, n, columns), "key_ids": ids_of(data.draw, k, columns)}
    options = {"temperature": 0.2, "policy": policy, **(ids if data.draw(st.booleans()) else {})}
    loss = losses.info_nce(query, positive, negatives, reduction="none", **options)
    reference = slow.info_nce(query.double(), positive.double(), negatives.double(), **options)
    inputs = [query, positive, *([negatives] if negatives.requires_grad else [])]
    check(loss, reference, inputs, dtype, policy)


@SETTINGS
@given(
    data=st.data(),
    groups=st.integers(1, 4),
    each=st.integers(1, 3),
    k=st.integers(1, 6),
    d=sizes,
    dtype=dtypes,
    policy=policies,
    columns=st.integers(0, 3),
)
def test_info_nce_among_the_negatives_of_a_group(data, groups, each, k, d, dtype, policy, columns):
    """Negatives (m, k, d) are those of n / m queries in a row: as if each query had been given its own copy."""
    n = groups * each
    query, positive = data.draw(tensors(n, d, dtype)), data.draw(tensors(n, d, dtype))
    negatives = data.draw(tensors(groups * k, d, dtype))
    key_ids = ids_of(data.draw, groups * k, columns).unflatten(0, (groups, k))
    options, ids = {"temperature": 0.2, "policy": policy}, {"query_ids": ids_of(data.draw, n, columns)}
    own = negatives.double().unflatten(0, (groups, k)).repeat_interleave(each, dim=0)
    if data.draw(st.booleans()):
        given, copied = ids | {"key_ids": key_ids}, ids | {"key_ids": key_ids.repeat_interleave(each, dim=0)}
    else:
        given, copied = {}, {}
    loss = losses.info_nce(query, positive, negatives.unflatten(0, (groups, k)), reduction="none", **options, **given)
    reference = slow.info_nce(query.double(), positive.double(), own, **options, **copied)
    check(loss, reference, [query, positive, negatives], dtype, policy)


@SETTINGS
@given(data=st.data(), n=sizes, d=sizes, dtype=dtypes, policy=policies, columns=st.integers(0, 3))
def test_info_nce_in_batch(data, n, d, dtype, policy, columns):
    query, positive = data.draw(tensors(n, d, dtype)), data.draw(tensors(n, d, dtype))
    ids = {"query_ids": ids_of(data.draw, n, columns), "key_ids": ids_of(data.draw, n, columns)}
    options = {"temperature": 0.2, "policy": policy, **(ids if data.draw(st.booleans()) else {})}
    loss = losses.info_nce(query, positive, reduction="none", **options)
    reference = slow.info_nce(query.double(), positive.double(), **options)
    check(loss, reference, [query, positive], dtype, policy)


@SETTINGS
@given(data=st.data(), n=sizes, d=sizes, dtype=dtypes, policy=policies, columns=st.integers(0, 3))
def test_nt_xent(data, n, d, dtype, policy, columns):
    a, b = data.draw(tensors(n, d, dtype)), data.draw(tensors(n, d, dtype))
    ids = ids_of(data.draw, n, columns) if data.draw(st.booleans()) else None
    loss = losses.nt_xent(a, b, temperature=0.2, ids=ids, policy=policy, reduction="none")
    check(loss, slow.nt_xent(a.double(), b.double(), temperature=0.2, ids=ids, policy=policy), [a, b], dtype, policy)


@SETTINGS
@given(data=st.data(), n=sizes, d=sizes, dtype=dtypes, columns=st.integers(0, 3))
def test_symmetric_info_nce_and_sigmoid(data, n, d, dtype, columns):
    a, b = data.draw(tensors(n, d, dtype)), data.draw(tensors(n, d, dtype))
    ids = ids_of(data.draw, n, columns) if data.draw(st.booleans()) else None
    loss = losses.symmetric_info_nce(a, b, temperature=0.2, ids=ids, reduction="none")
    check(loss, slow.symmetric_info_nce(a.double(), b.double(), temperature=0.2, ids=ids), [a, b], dtype)
    loss = losses.sigmoid(a, b, temperature=0.2, bias=-2.0, ids=ids, reduction="none")
    check(loss, slow.sigmoid(a.double(), b.double(), temperature=0.2, bias=-2.0, ids=ids), [a, b], dtype)


@SETTINGS
@given(data=st.data(), n=st.integers(2, 9), d=st.integers(2, 9))
def test_nt_xent_does_not_know_the_order_of_its_items(data, n, d):
    generator = torch.Generator().manual_seed(data.draw(seeds))
    a, b = (torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2))
    shuffle = torch.randperm(n, generator=generator)
    torch.testing.assert_close(losses.nt_xent(a, b), losses.nt_xent(a[shuffle], b[shuffle]))
    torch.testing.assert_close(losses.nt_xent(a, b), losses.nt_xent(b, a))


@SETTINGS
@given(data=st.data(), n=st.integers(1, 9), k=st.integers(1, 9), d=st.integers(1, 9))
def test_one_more_negative_never_lowers_the_loss(data, n, k, d):
    generator = torch.Generator().manual_seed(data.draw(seeds))
    query, positive, negatives = (torch.randn(m, d, generator=generator, dtype=torch.float64) for m in (n, n, k))
    with_all = losses.info_nce(query, positive, negatives, reduction="none")
    with_fewer = losses.info_nce(query, positive, negatives[1:], reduction="none")
    assert (with_all >= with_fewer - 1e-12).all()


@SETTINGS
@given(n=st.integers(1, 40), k=st.integers(0, 40), side=st.integers(1, 7))
def test_tiles_cover_the_matrix_once_and_none_is_larger_than_its_memory(monkeypatch, n, k, side):
    monkeypatch.setattr(tiling, "_side", lambda device: side)
    query, keys = torch.arange(1.0, n + 1)[:, None], torch.arange(1.0, k + 1)[:, None]
    whole, covered = torch.zeros(n, k), torch.zeros(n, k)
    for rows, columns, chunk, scores in tiling.tiles(query, keys, Mask()):
        assert scores.numel() <= side * side
        assert torch.equal(chunk, keys[columns])
        whole[rows, columns] = scores
        covered[rows, columns] += 1
    assert (covered == 1).all()
    assert torch.equal(whole, query @ keys.T)
