"""What the losses must give where the answer is known without a computer."""

import math

import pytest
import torch

from likewise import losses
from tests.losses.conftest import rows


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_equal_rows_leave_nothing_but_chance(path, n):
    """All rows equal: a query finds its positive among N candidates by chance, log N."""
    same = torch.ones(n, 3, dtype=torch.float64)
    assert losses.nt_xent(same, same).item() == pytest.approx(math.log(2 * n - 1), abs=1e-12)
    assert losses.info_nce(same, same).item() == pytest.approx(math.log(n), abs=1e-12)
    assert losses.symmetric_info_nce(same, same).item() == pytest.approx(math.log(n), abs=1e-12)
    assert losses.info_nce(same, same, same).item() == pytest.approx(math.log(n + 1), abs=1e-12)


def test_aligned_orthonormal_pairs_are_found_with_certainty(path):
    eye = torch.eye(6)
    for loss in (losses.nt_xent, losses.info_nce, losses.symmetric_info_nce):
        assert 0 <= loss(eye, eye, temperature=0.01).item() < 1e-30


def test_aligned_orthonormal_pairs_at_any_temperature(path):
    """Positive score 1/τ, k negatives of score 0: log(1 + k e^{−1/τ}), to the last digit however small."""
    eye = torch.eye(6, dtype=torch.float64)
    for temperature in (0.03, 0.1, 1.0):
        leak = math.exp(-1 / temperature)
        assert losses.info_nce(eye, eye, temperature=temperature).item() == pytest.approx(math.log1p(5 * leak))
        assert losses.nt_xent(eye, eye, temperature=temperature).item() == pytest.approx(math.log1p(10 * leak))


@pytest.mark.parametrize(("d", "temperature"), [(64, 0.2), (128, 0.1), (128, 0.5)])
def test_random_unit_rows_start_at_log_n_and_a_little(d, temperature):
    """Random directions: scores have variance 1/(dτ²), and the loss starts at log N + 1/(2dτ²), not log N."""
    n = 4096
    values = [
        losses.nt_xent(
            rows(n, d, seed=seed, dtype=torch.float32, grad=False),
            rows(n, d, seed=seed + 100, dtype=torch.float32, grad=False),
            temperature=temperature,
        ).item()
        for seed in range(3)
    ]
    expected = math.log(2 * n - 1) + 1 / (2 * d * temperature**2)
    positive_score_error = 1 / (temperature * math.sqrt(d) * math.sqrt(n * len(values)))
    assert sum(values) / len(values) == pytest.approx(expected, abs=4 * positive_score_error + 0.01)


def test_the_gradient_for_scores_is_probability_minus_truth(path):
    """∂L/∂s+ = P+ − 1 and ∂L/∂s−_j = P_j: keys that are the axes make each score a coordinate of the query."""
    scores = rows(1, 5)
    axes = torch.eye(5, dtype=torch.float64)
    loss = losses.info_nce(scores, axes[:1], axes[1:], similarity="dot", temperature=1.0)
    loss.backward()
    probability = scores.detach().softmax(dim=1)
    torch.testing.assert_close(scores.grad, probability - axes[:1], rtol=1e-12, atol=1e-12)


def test_the_gradient_for_a_queue_is_an_attention_read():
    """For a unit query: (softmax(qK'ᵀ/τ) K' − k+) / τ over the candidates K' = [k+; K]."""
    unit = torch.nn.functional.normalize
    query = unit(rows(4, 8).detach(), dim=1).requires_grad_()
    positive, queue = (unit(rows(m, 8, seed=m, grad=False), dim=1) for m in (4, 9))
    losses.info_nce(query, positive, queue, similarity="dot", temperature=0.2, reduction="sum").backward()
    for i in range(4):
        candidates = torch.cat([positive[i : i + 1], queue])
        attention = (query[i].detach() @ candidates.T / 0.2).softmax(dim=0)
        torch.testing.assert_close(query.grad[i], (attention @ candidates - positive[i]) / 0.2)


def test_a_query_without_negatives_has_loss_zero(path):
    query, positive = rows(3, 4), rows(3, 4, seed=1)
    ids = torch.tensor([7, 7, 7])
    nothing = torch.empty(0, 4, dtype=torch.float64)
    policies = (None, losses.Hardest(2), losses.Debiased(0.1), losses.HardWeighted(1.0), losses.HardWeighted(1.0, 0.1))
    for policy in policies:
        alone = [
            losses.info_nce(query, positive, query_ids=ids, policy=policy),
            losses.info_nce(query, positive, positive, query_ids=ids, key_ids=ids, policy=policy),
            losses.info_nce(query, positive, nothing, policy=policy),
            losses.info_nce(query, positive, nothing.expand(3, 0, 4), policy=policy),
            losses.info_nce(query[:1], positive[:1], policy=policy),
            losses.nt_xent(query, positive, ids=ids, policy=policy),
            losses.nt_xent(query[:1], positive[:1], policy=policy),
        ]
        for loss in alone:
            assert loss.item() == 0
            gradients = torch.autograd.grad(loss, [query, positive], allow_unused=True)
            assert all(g is None or not g.any() for g in gradients)
    assert losses.nce(query, positive, nothing, log_partition=0.0, items=9).item() == 0


def test_hardest_of_all_is_no_policy_and_weight_zero_neither(path):
    a, b = rows(7, 4), rows(7, 4, seed=1)
    plain = losses.nt_xent(a, b)
    for policy in (losses.Hardest(12), losses.HardWeighted(0.0), losses.Debiased(0.0)):
        torch.testing.assert_close(losses.nt_xent(a, b, policy=policy), plain)


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_euclidean_distances_keep_their_digits(noise):
    """Near neighbours far from the origin, in float32: as exact as differences taken one by one."""
    item = rows(300, 32, grad=False) * 3
    centres = torch.where(torch.arange(300)[:, None] % 2 == 0, 100.0, -100.0)
    query, keys = ((item + centres + noise * rows(300, 32, seed=s, grad=False)).float() for s in (1, 2))
    distance = (query.double()[:, None] - keys.double()).square().sum(dim=2)
    expected = torch.nn.functional.cross_entropy(-distance, torch.arange(300))
    loss = losses.info_nce(query, keys, similarity="euclidean", temperature=1.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-7)


def test_rows_too_short_to_have_a_direction_give_finite_gradients():
    a, b = (rows(5, 4, seed=s, dtype=torch.float32, grad=False) for s in (0, 1))
    for scale in (0.0, 1e-30, 1e-21, 1e-13):
        a[2] = scale
        query = a.clone().requires_grad_()
        losses.info_nce(query, b).backward()
        assert query.grad.isfinite().all()


def test_the_noise_classifier_is_undecided_where_model_and_noise_agree():
    """e^s/Z = m p: every key is a coin toss, (1 + m) log 2."""
    eye = torch.eye(4, dtype=torch.float64)
    query, positive, noise = eye[:1], eye[1:2], eye[2:]  # all scores 0
    log_partition = -math.log(2 * (1 / 10))  # 1/Z = m p, with m = 2 and p = 1/10
    loss = losses.nce(query, positive, noise, log_partition=log_partition, items=10)
    assert loss.item() == pytest.approx(3 * math.log(2))
