"""What is said of a run's health: for the signs it is about, never otherwise, once, and with what to do."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

from likewise import losses
from likewise.losses.temperature import MIN_TEMPERATURE
from likewise.training.health import Health, Signs, at_random, chance, diagnose, shape_of_batch

HEALTHY = Signs(
    step=500,
    total=1000,
    loss=3.0,
    similarity="cosine",
    temperature=0.2,
    learnable=False,
    candidates=4097.0,
    dim=128,
    length=7.0,
    largest=300.0,
    alike=0.3,
    queue_fill=1.0,
)


def found(**signs):
    return diagnose(replace(HEALTHY, **signs))


def test_a_healthy_run_is_told_nothing():
    assert diagnose(HEALTHY) == {}
    assert found(queue_fill=None, temperature=None) == {}


def test_a_queue_that_fills_explains_a_rising_loss():
    assert found(queue_fill=0.4) == {
        "filling": "the queue is still filling (40%): more negatives make a harder look-up, "
        "so a rising loss is normal here"
    }
    assert found(queue_fill=1.0) == {}
    assert found(queue_fill=None) == {}


def test_a_loss_at_chance_late_in_the_run_is_said():
    assert found(loss=8.31) == {
        "chance": "the loss, 8.310, is at chance, log 4,097 = 8.318 (random unit embeddings give 8.416): "
        "nothing is learned yet; try another optimizer.lr, a longer warm-up, or weaker augmentations"
    }


@pytest.mark.parametrize(
    "signs",
    [
        {"loss": 8.25},  # below chance
        {"loss": 9.0, "step": 199, "total": 1000},  # before a fifth of the run
        {"loss": 9.0, "step": 99, "total": 100},  # before step 100, however short the run
        {"loss": 9.0, "candidates": None},  # a loss, or a policy, whose chance is not log N
    ],
)
def test_chance_is_not_said_otherwise(signs):
    assert "chance" not in found(**signs)


def test_while_the_queue_fills_chance_is_not_held_against_a_run():
    assert set(found(loss=9.0, queue_fill=0.9)) == {"filling"}


def test_chance_is_said_from_a_fifth_of_the_run_on():
    assert "chance" in found(loss=9.0, step=200, total=1000)
    assert "chance" in found(loss=9.0, step=100, total=100)
    assert "chance" in found(loss=9.0, queue_fill=None)


def test_a_collapse_is_said():
    assert found(alike=0.973) == {
        "collapse": "embeddings collapse: two different items have a mean cosine of 0.973; "
        "lower optimizer.lr, or raise loss.temperature"
    }
    assert "collapse" in found(alike=0.96, temperature=None)
    assert found(alike=0.94) == {}
    assert found(alike=0.99, step=10) == {}, "networks begin that way"


def test_rows_of_other_lengths_under_a_dot_product_are_said():
    assert found(similarity="dot", largest=10.0) == {
        "length": "embeddings have a mean norm of 7.00, and loss.similarity = dot does not normalise them: "
        "use cosine unless you want that"
    }
    assert found(similarity="dot", largest=10.0, length=1.2) == {}
    assert found(similarity="cosine", length=7.0) == {}, "cosine normalises"
    assert found(similarity="", length=7.0, largest=10.0) == {}, "frames may be of any length"


def test_similarities_out_of_range_are_said():
    assert found(similarity="dot", length=1.0, largest=250.4) == {
        "range": "similarities are out of range: they reach 250 before the temperature divides them; "
        "use loss.similarity = cosine, or a larger temperature"
    }
    assert found(similarity="dot", length=1.0, largest=99.0) == {}


def test_a_learned_temperature_at_its_clamp_is_said():
    assert found(learnable=True, temperature=MIN_TEMPERATURE) == {
        "temperature": f"the learned temperature is at its clamp, {MIN_TEMPERATURE:g}: it can no longer sharpen the "
        "look-up; lower optimizer.lr, or fix the temperature (loss.learnable = false)"
    }
    assert found(learnable=True, temperature=MIN_TEMPERATURE * 1.1) == {}
    assert found(learnable=False, temperature=MIN_TEMPERATURE) == {}, "nobody learned it: it is meant"


def test_each_is_said_once_and_a_new_one_when_it_comes():
    health = Health()
    assert len(health.look(replace(HEALTHY, queue_fill=0.2))) == 1
    assert health.look(replace(HEALTHY, queue_fill=0.3)) == []
    (said,) = health.look(replace(HEALTHY, queue_fill=0.4, alike=0.99))
    assert said.startswith("embeddings collapse")
    assert health.look(HEALTHY) == []
    assert health.look(replace(HEALTHY, alike=0.98)) == []
    assert health.look(replace(HEALTHY, loss=9.0))[0].startswith("the loss, 9.000, is at chance")
    assert len(Health().look(replace(HEALTHY, queue_fill=0.2))) == 1, "another run is told for itself"


@pytest.mark.parametrize(("dim", "temperature"), [(128, 0.2), (128, 0.07), (32, 0.2), (512, 0.1)])
def test_random_unit_rows_give_the_loss_that_is_said_and_not_log_n(dim, temperature):
    rng, k = torch.Generator().manual_seed(0), 4095
    query, positive = (normalize(torch.randn(512, dim, generator=rng, dtype=torch.float64)) for _ in range(2))
    negatives = normalize(torch.randn(k, dim, generator=rng, dtype=torch.float64))
    loss = float(losses.info_nce(query, positive, negatives, temperature=temperature))
    # The mean score of 512 positives is 0 but for chance, which would be the largest error of this measurement.
    loss += float((query * positive).sum(dim=1).mean()) / temperature
    above = 1 / (2 * dim * temperature**2)
    assert loss == pytest.approx(at_random(k + 1, dim, temperature), abs=0.1 * above)
    assert at_random(k + 1, dim, temperature) == pytest.approx(math.log(k + 1) + above)


def test_chance_is_the_loss_of_one_who_guesses():
    same = torch.ones(5, 3)
    assert float(losses.info_nce(same, same, same.repeat(2, 1))) == pytest.approx(chance(11))


def test_geometry_is_measured_by_loops():
    rng = torch.Generator().manual_seed(0)
    query, positive = (torch.randn(12, 4, generator=rng) for _ in range(2))
    length, largest, alike = shape_of_batch(query, positive)
    assert length == pytest.approx(sum(float(row.norm()) for row in query) / 12)
    assert largest == pytest.approx(max(abs(float(q @ p)) for q in query for p in positive))
    every_other = [row / row.norm() for row in query[::2]]
    cosines = [float(a @ b) for i, a in enumerate(every_other) for j, b in enumerate(every_other) if i != j]
    assert alike == pytest.approx(sum(cosines) / len(cosines), abs=1e-6)


def test_geometry_does_not_take_two_views_of_an_item_for_two_items():
    """Where both views are queries they are neighbours; equal views of different items would look like a collapse."""
    query = torch.eye(8).repeat_interleave(2, dim=0)
    assert shape_of_batch(query, query)[2] == pytest.approx(0, abs=1e-6)
    assert shape_of_batch(torch.ones(8, 3), torch.ones(8, 3))[2] == pytest.approx(1)
    assert shape_of_batch(torch.ones(2, 3), torch.ones(2, 3))[2] == pytest.approx(0, abs=1e-6), "one row is like nobody"
