"""The modules are the functions: same values, and what they keep between steps."""

import math

import pytest
import torch

from likewise import losses
from tests.losses.conftest import rows

A, B, C = (rows(6, 4, seed=s, grad=False) for s in range(3))
IDS, SAME, LABELS = torch.tensor([0, 1, 2, 0, 4, 5]), torch.arange(6) % 2 == 0, torch.arange(6) % 3

PAIRS = {
    "InfoNCE": (
        lambda: losses.InfoNCE(temperature=0.2, similarity="dot", policy=losses.Hardest(2), reduction="sum")(
            A, B, C, query_ids=IDS, key_ids=IDS
        ),
        lambda: losses.info_nce(
            A,
            B,
            C,
            temperature=0.2,
            similarity="dot",
            policy=losses.Hardest(2),
            reduction="sum",
            query_ids=IDS,
            key_ids=IDS,
        ),
    ),
    "NTXent": (
        lambda: losses.NTXent(temperature=0.5, policy=losses.Debiased(0.1), reduction="none")(A, B, ids=IDS),
        lambda: losses.nt_xent(A, B, temperature=0.5, policy=losses.Debiased(0.1), reduction="none", ids=IDS),
    ),
    "SymmetricInfoNCE": (
        lambda: losses.SymmetricInfoNCE(temperature=0.5, reduction="none")(A, B, ids=IDS),
        lambda: losses.symmetric_info_nce(A, B, temperature=0.5, reduction="none", ids=IDS),
    ),
    "Sigmoid": (
        lambda: losses.Sigmoid(temperature=0.5, bias=-1.0, reduction="sum")(A, B, ids=IDS),
        lambda: losses.sigmoid(A, B, temperature=0.5, bias=-1.0, reduction="sum", ids=IDS),
    ),
    "SupCon": (
        lambda: losses.SupCon(temperature=0.5, reduction="sum")(A, LABELS),
        lambda: losses.sup_con(A, LABELS, temperature=0.5, reduction="sum"),
    ),
    "PairMargin": (
        lambda: losses.PairMargin(margin=3.0, reduction="sum")(A, B, SAME),
        lambda: losses.pair_margin(A, B, SAME, margin=3.0, reduction="sum"),
    ),
    "Triplet": (
        lambda: losses.Triplet(margin=0.5, reduction="sum")(A, B, C),
        lambda: losses.triplet(A, B, C, margin=0.5, reduction="sum"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_module_is_its_function(name):
    module, function = PAIRS[name]
    torch.testing.assert_close(module(), function(), rtol=0, atol=0)


def test_modules_and_functions_have_the_same_defaults():
    torch.testing.assert_close(losses.InfoNCE()(A, B), losses.info_nce(A, B))
    torch.testing.assert_close(losses.NTXent()(A, B), losses.nt_xent(A, B))
    torch.testing.assert_close(losses.SymmetricInfoNCE()(A, B), losses.symmetric_info_nce(A, B))
    torch.testing.assert_close(losses.Sigmoid()(A, B), losses.sigmoid(A, B))
    torch.testing.assert_close(losses.SupCon()(A, LABELS), losses.sup_con(A, LABELS))
    torch.testing.assert_close(losses.PairMargin()(A, B, SAME), losses.pair_margin(A, B, SAME))
    torch.testing.assert_close(losses.Triplet()(A, B, C), losses.triplet(A, B, C))


def test_a_module_shows_its_temperature():
    assert repr(losses.NTXent(temperature=0.5)) == "NTXent(temperature=0.5)"
    assert repr(losses.InfoNCE(learnable=True)) == "InfoNCE(temperature=0.07, learnable=True)"


def log_z(query, noise, items, temperature=0.07):
    """Z ≈ (items/m) Σ_j e^{s_j} by its definition, the mean over queries."""
    unit = torch.nn.functional.normalize
    weights = (unit(query, dim=1) @ unit(noise, dim=1).T / temperature).exp()
    return math.log(items) + weights.mean().log()


def test_nce_estimates_log_z_and_keeps_its_running_mean():
    loss = losses.NCE(items=50).double()
    assert loss.log_partition.isnan()
    value = loss(A, B, C)
    torch.testing.assert_close(loss.log_partition, log_z(A, C, 50))
    torch.testing.assert_close(value, losses.nce(A, B, C, log_partition=loss.log_partition, items=50))
    loss(B, A, C)
    expected = (0.99 * log_z(A, C, 50).exp() + 0.01 * log_z(B, C, 50).exp()).log()
    torch.testing.assert_close(loss.log_partition, expected)


def test_nce_stays_as_it_is_in_evaluation_and_is_part_of_the_state():
    loss = losses.NCE(items=50).double()
    loss(A, B, C)
    before = loss.log_partition.clone()
    loss.eval()
    loss(B, A, C)
    assert torch.equal(loss.log_partition, before)
    other = losses.NCE(items=50).double()
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.log_partition, before)


def test_log_z_is_finite_where_z_is_not():
    """At temperature 0.005 equal rows have e^s = e^200, far outside float32."""
    same = torch.ones(3, 4)
    estimate = losses.estimate_log_partition(same, same, items=1000, temperature=0.005)
    assert estimate.item() == pytest.approx(math.log(1000) + 200, rel=1e-5)


def test_log_z_leaves_out_what_shares_an_id():
    query, noise = A[:2], C
    ids = {"query_ids": torch.tensor([0, 1]), "key_ids": torch.tensor([0, 0, 1, 2, 3, -1])}
    unit = torch.nn.functional.normalize
    scores = unit(query, dim=1) @ unit(noise, dim=1).T / 0.07
    kept = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 0, 1, 1, 0]]).bool()
    expected = math.log(50) + scores[kept].exp().mean().log()
    torch.testing.assert_close(losses.estimate_log_partition(query, noise, items=50, **ids), expected)


def test_a_batch_without_noise_leaves_log_z_alone():
    loss = losses.NCE(items=50).double()
    loss(A, B, C)
    before = loss.log_partition.clone()
    same = torch.zeros(6, dtype=torch.int64)
    assert loss(A, B, C, query_ids=same, key_ids=same).item() == 0
    assert torch.equal(loss.log_partition, before)
