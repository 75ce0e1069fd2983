"""Mutual information: textbook cases, three forms that agree, and a bound that keeps its ceiling."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise import losses
from likewise.evaluation import information
from likewise.evaluation.information import infonce_bound, mutual_information

FORMS = [
    information.mutual_information,
    information.mutual_information_by_entropies,
    information.mutual_information_by_conditioning,
]


@pytest.mark.parametrize("form", FORMS)
def test_identical_bits_share_one_bit(form):
    assert form([[0.5, 0], [0, 0.5]]) == pytest.approx(1)
    assert form([[0, 0.5], [0.5, 0]]) == pytest.approx(1)  # an inverted bit tells as much


@pytest.mark.parametrize("form", FORMS)
def test_independent_bits_share_nothing(form):
    assert form([[0.25, 0.25], [0.25, 0.25]]) == pytest.approx(0, abs=1e-12)
    assert form([[0.06, 0.14], [0.24, 0.56]]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_the_umbrella_table(form):
    """Rain or not by umbrella or not, 0.2, 0.5, 0.3 and 0: the empty corner is what one tells of the other."""
    assert form([[0.2, 0.5], [0.3, 0.0]]) == pytest.approx(0.396, abs=5e-4)


@pytest.mark.parametrize("form", FORMS)
def test_eight_equal_values_share_three_bits_or_log_8_nats(form):
    table = torch.eye(8, dtype=torch.float64) / 8
    assert form(table) == pytest.approx(3)
    assert form(table, base=math.e) == pytest.approx(math.log(8))


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=5))
def test_the_three_forms_agree_and_stay_within_the_entropies(weights):
    total = sum(map(sum, weights))
    if total < 1e-3:
        weights, total = [[1.0, 1, 1], [1, 1, 1]], 6
    table = [[w / total for w in row] for row in weights]
    first, second, third = (form(table) for form in FORMS)
    assert first == pytest.approx(second, abs=1e-9)
    assert first == pytest.approx(third, abs=1e-9)
    rows = [sum(row) for row in table]
    columns = [sum(column) for column in zip(*table, strict=True)]
    assert -1e-9 <= first <= min(information.entropy(rows), information.entropy(columns)) + 1e-9


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ([[0.5, -0.5], [0.5, 0.5]], "probabilities must not be negative or NaN, got -0.5"),
        ([[0.5, math.nan], [0.25, 0.25]], "probabilities must not be negative or NaN, got nan"),
        ([[0.5, 0.5], [0.5, 0.5]], "probabilities must sum to 1, got 2"),
        ([[0.5, 0.25], [0.25]], "probabilities must be numbers in rows of one length, got [[0.5, 0.25], [0.25]]"),
        ("even", "probabilities must be numbers in rows of one length, got 'even'"),
        ([0.5, 0.5], "joint must be a table of two axes, got shape (2,)"),
    ],
)
def test_a_table_that_is_none_is_refused(table, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        mutual_information(table)
    assert str(error.value) == sentence


@pytest.mark.parametrize("base", [1, 0, math.nan, "e"])
def test_a_base_must_be_above_one(base):
    with pytest.raises(ValueError, match=f"base must be a number above 1, got {base!r}"):
        mutual_information([[1.0]], base=base)


def test_the_bound_is_log_n_minus_the_loss():
    assert infonce_bound(0.0, 256) == pytest.approx(math.log(256))
    assert infonce_bound(math.log(256), 256) == pytest.approx(0)
    bound = infonce_bound(torch.tensor(1.5, requires_grad=True), 100)
    bound.backward()  # maximising it trains the encoder
    assert bound.item() == pytest.approx(math.log(100) - 1.5)


def test_the_bound_never_shows_more_than_its_ceiling():
    eye = torch.eye(32, dtype=torch.float64)
    loss = losses.info_nce(eye, eye, temperature=0.01)
    assert infonce_bound(loss, 32).item() <= math.log(32)


@pytest.mark.parametrize("candidates", [0, -1, 2.5, True])
def test_candidates_must_be_counted(candidates):
    with pytest.raises(ValueError, match="candidates must be a whole number >= 1, got"):
        infonce_bound(1.0, candidates)


def test_the_bound_of_the_true_density_ratio_stays_below_the_truth():
    """Correlated Gaussians of known mutual information, scored by their own log-ratio p(y | x) / p(y)."""
    generator = torch.Generator().manual_seed(0)
    d, rho, n = 4, 0.8, 512
    truth = -d / 2 * math.log(1 - rho**2)
    bounds = []
    for _ in range(20):
        x = torch.randn(n, d, generator=generator, dtype=torch.float64)
        y = rho * x + math.sqrt(1 - rho**2) * torch.randn(n, d, generator=generator, dtype=torch.float64)
        # log p(y | x) − log p(y) = (ρ x·y − ½ρ²(|x|² + |y|²)) / (1 − ρ²) + const: an inner product.
        queries = torch.cat([rho * x, torch.ones(n, 1)], dim=1) / (1 - rho**2)
        keys = torch.cat([y, -(rho**2) / 2 * y.square().sum(dim=1, keepdim=True)], dim=1)
        bounds.append(infonce_bound(losses.info_nce(queries, keys, similarity="dot", temperature=1.0), n).item())
    mean = sum(bounds) / len(bounds)
    error = (sum((b - mean) ** 2 for b in bounds) / (len(bounds) - 1) / len(bounds)) ** 0.5
    assert mean < truth + 3 * error
    assert mean > 0.9 * truth
