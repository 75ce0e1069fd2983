"""Each loss equals a slow double loop written from its formula: values and gradients, to 1e-10."""

import numpy as np
import pytest
import torch

from likewise import losses
from likewise.losses import Debiased, Hardest, HardWeighted
from tests.losses import slow
from tests.losses.conftest import assert_same, rows

SIMILARITIES = ["cosine", "dot", "euclidean"]
POLICIES = [
    None,
    Hardest(1),
    Hardest(3),
    Hardest(99),
    Debiased(0.1),
    Debiased(0.9),
    HardWeighted(0.5),
    HardWeighted(0.0),
]
POLICIES += [HardWeighted(1.0, prior=0.1), HardWeighted(2.0, prior=0.6)]
IDS = {
    "none": None,
    "distinct": torch.tensor([4, 9, 2, 7, 1, 0, 8]),
    "repeated": torch.tensor([4, 4, 2, 7, 2, 0, 4]),
    "padded": torch.tensor([4, -1, 2, 2, -1, 0, 8]),
    "columns": torch.tensor([[0, 5], [1, 5], [2, 6], [3, -1], [4, -1], [-1, -1], [5, 7]]),
}


def temperature(value=0.3):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("ids", IDS)
def test_info_nce_in_batch(path, similarity, ids):
    query, positive, t = rows(7, 4), rows(7, 4, seed=1), temperature(0.7)
    options = {"temperature": t, "similarity": similarity, "query_ids": IDS[ids]}
    fast = losses.info_nce(query, positive, reduction="none", **options)
    assert_same(fast, slow.info_nce(query, positive, **options), [query, positive, t])


@pytest.mark.parametrize("keys_learn", [True, False])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("ids", ["none", "repeated", "columns"])
def test_info_nce_among_shared_negatives(path, similarity, ids, keys_learn):
    query, positive, t = rows(5, 4), rows(5, 4, seed=1), temperature(0.7)
    negatives = rows(7, 4, seed=2, grad=keys_learn)
    query_ids = None if IDS[ids] is None else IDS[ids][:5]
    options = {"temperature": t, "similarity": similarity, "query_ids": query_ids, "key_ids": IDS[ids]}
    fast = losses.info_nce(query, positive, negatives, reduction="none", **options)
    inputs = [query, positive, t, *([negatives] if keys_learn else [])]
    assert_same(fast, slow.info_nce(query, positive, negatives, **options), inputs)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("policy", [None, Hardest(2), HardWeighted(1.0)])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_info_nce_among_negatives_of_its_own(similarity, policy, columns):
    query, positive, negatives, t = rows(4, 3), rows(4, 3, seed=1), rows(4, 6, 3, seed=2), temperature(0.7)
    generator = torch.Generator().manual_seed(3)
    query_ids = torch.randint(-1, 4, (4, *columns), generator=generator)
    key_ids = torch.randint(-1, 4, (4, 6, *columns), generator=generator)
    for ids in ({}, {"query_ids": query_ids, "key_ids": key_ids}):
        options = {"temperature": t, "similarity": similarity, "policy": policy, **ids}
        fast = losses.info_nce(query, positive, negatives, reduction="none", **options)
        assert_same(fast, slow.info_nce(query, positive, negatives, **options), [query, positive, negatives, t])


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("ids", ["none", "repeated", "padded"])
@pytest.mark.parametrize("keys", ["batch", "shared with gradient", "shared without"])
def test_info_nce_policies(path, policy, ids, keys):
    query, positive, t = rows(7, 4), rows(7, 4, seed=1), temperature()
    if keys == "batch":
        negatives, key_ids = None, None
    else:
        negatives, key_ids = rows(7, 4, seed=2, grad="without" not in keys), IDS[ids]
    options = {"temperature": t, "query_ids": IDS[ids], "key_ids": key_ids, "policy": policy}
    fast = losses.info_nce(query, positive, negatives, reduction="none", **options)
    inputs = [query, positive, t, *([negatives] if keys == "shared with gradient" else [])]
    assert_same(fast, slow.info_nce(query, positive, negatives, **options), inputs)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("ids", IDS)
def test_nt_xent(path, policy, ids):
    a, b, t = rows(7, 4), rows(7, 4, seed=1), temperature()
    fast = losses.nt_xent(a, b, temperature=t, ids=IDS[ids], policy=policy, reduction="none")
    assert_same(fast, slow.nt_xent(a, b, temperature=t, ids=IDS[ids], policy=policy), [a, b, t])


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_temperatures_of_every_kind_mean_the_same(path, policy):
    """A Python float, a float32 parameter, a tensor with an axis: none is rounded on the way."""
    a, b = rows(7, 4), rows(7, 4, seed=1)
    for value in (0.3, torch.tensor(0.3), torch.tensor([0.3], dtype=torch.float64), np.float32(0.3)):
        number = value.item() if isinstance(value, torch.Tensor) else float(value)
        fast = losses.nt_xent(a, b, temperature=value, policy=policy, reduction="none")
        assert_same(fast, slow.nt_xent(a, b, temperature=number, policy=policy), [a, b])


@pytest.mark.parametrize("value", [0.5, 0.02])  # without and with a running maximum
@pytest.mark.parametrize("ids", IDS)
def test_symmetric_info_nce(path, value, ids):
    a, b, t = rows(7, 4), rows(7, 4, seed=1), temperature(value)
    fast = losses.symmetric_info_nce(a, b, temperature=t, ids=IDS[ids], reduction="none")
    assert_same(fast, slow.symmetric_info_nce(a, b, temperature=t, ids=IDS[ids]), [a, b, t])


@pytest.mark.parametrize("ids", IDS)
def test_sigmoid(path, ids):
    a, b, t = rows(7, 4), rows(7, 4, seed=1), temperature()
    bias = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
    fast = losses.sigmoid(a, b, temperature=t, bias=bias, ids=IDS[ids], reduction="none")
    assert_same(fast, slow.sigmoid(a, b, temperature=t, bias=bias, ids=IDS[ids]), [a, b, t, bias])


@pytest.mark.parametrize("ids", ["none", "repeated"])
@pytest.mark.parametrize("noise", ["uniform", "one number", "each its own"])
@pytest.mark.parametrize("keys_learn", [True, False])
def test_nce(path, ids, noise, keys_learn):
    query, positive, t = rows(5, 4), rows(5, 4, seed=1), temperature()
    negatives, previous = rows(7, 4, seed=2, grad=keys_learn), rows(5, 4, seed=3, grad=False)
    options = {"temperature": t, "log_partition": 1.7, "previous": previous, "proximal": 0.3}
    options |= {
        "uniform": {"items": 50},
        "one number": {"noise_log_prob": -4.0},
        "each its own": {"noise_log_prob": (rows(5, seed=4, grad=False) - 3, rows(7, seed=5, grad=False) - 3)},
    }[noise]
    if IDS[ids] is not None:
        options |= {"query_ids": IDS[ids][:5], "key_ids": IDS[ids]}
    fast = losses.nce(query, positive, negatives, reduction="none", **options)
    inputs = [query, positive, t, *([negatives] if keys_learn else [])]
    assert_same(fast, slow.nce(query, positive, negatives, **options), inputs)


@pytest.mark.parametrize("value", [0.3, 0.02])
def test_sup_con(path, value):
    features, t = rows(8, 4), temperature(value)
    labels = torch.tensor([3, 1, 3, 7, 1, 3, -1, -1])  # 7 has no partner, -1 is no label
    fast = losses.sup_con(features, labels, temperature=t, reduction="none")
    reference = slow.sup_con(features, labels, temperature=t)
    found = ~reference.isnan()
    assert found.tolist() == [True, True, True, False, True, True, False, False]
    assert not fast[~found].any()
    assert_same(fast[found], reference[found], [features, t])
    mean = losses.sup_con(features, labels, temperature=t)
    torch.testing.assert_close(mean, reference[found].mean(), rtol=1e-10, atol=1e-10)


def test_pair_margin():
    a, b = rows(6, 4), rows(6, 4, seed=1)
    same = torch.tensor([True, False, True, False, False, True])
    for margin in (1.0, 4.0):
        fast = losses.pair_margin(a, b, same, margin=margin, reduction="none")
        assert_same(fast, slow.pair_margin(a, b, same, margin=margin), [a, b])


def test_pair_margin_has_subgradient_zero_where_rows_coincide():
    a = rows(2, 4)
    b = a.detach().clone().requires_grad_()
    losses.pair_margin(a, b, torch.tensor([True, False])).backward()
    assert not a.grad.any()
    assert not b.grad.any()


def test_triplet():
    anchor, positive, negative = rows(6, 4), rows(6, 4, seed=1), rows(6, 4, seed=2)
    for margin in (0.2, 2.0):
        fast = losses.triplet(anchor, positive, negative, margin=margin, reduction="none")
        assert_same(fast, slow.triplet(anchor, positive, negative, margin=margin), [anchor, positive, negative])


def test_reductions_are_those_of_the_rows(path):
    a, b = rows(7, 4), rows(7, 4, seed=1)
    for loss in (losses.nt_xent, losses.symmetric_info_nce, losses.info_nce, losses.sigmoid):
        each = loss(a, b, reduction="none")
        torch.testing.assert_close(loss(a, b, reduction="sum"), each.sum())
        torch.testing.assert_close(loss(a, b), each.mean())


def test_the_mean_leaves_padding_out(path):
    a, b = rows(7, 4), rows(7, 4, seed=1)
    kept = IDS["padded"] != -1
    for loss, ids in ((losses.nt_xent, "ids"), (losses.symmetric_info_nce, "ids"), (losses.info_nce, "query_ids")):
        padded = loss(a, b, **{ids: IDS["padded"]})
        torch.testing.assert_close(padded, loss(a[kept], b[kept], **{ids: IDS["padded"][kept]}))
