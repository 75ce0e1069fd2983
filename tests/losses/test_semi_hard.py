"""Semi-hard negatives, chosen by loops over distances."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise import losses
from tests.losses.conftest import rows
from tests.losses.slow import is_padding, share_an_id


@torch.no_grad()
def slow(anchor, positive, candidates, query_ids=None, key_ids=None):
    """The nearest candidate farther than the positive; else the farthest; -1 where there is none."""
    chosen = []
    for i in range(len(anchor)):

        def distance(row, a=anchor[i]):
            return float(((a / a.norm() - row / row.norm()) ** 2).sum())

        allowed = [
            j
            for j in range(len(candidates))
            if query_ids is None
            or not (
                share_an_id(query_ids[i].tolist(), key_ids[j].tolist())
                or is_padding(key_ids[j].tolist())
                or is_padding(query_ids[i].tolist())
            )
        ]
        farther = [j for j in allowed if distance(candidates[j]) > distance(positive[i])]
        if farther:
            chosen.append(min(farther, key=lambda j: distance(candidates[j])))
        else:
            chosen.append(max(allowed, key=lambda j: distance(candidates[j]), default=-1))
    return chosen


@given(n=st.integers(1, 6), k=st.integers(0, 8), seed=st.integers(0, 200))
def test_the_choice_is_that_of_a_loop(n, k, seed):
    three = rows(n, 3, seed=seed), rows(n, 3, seed=seed + 1), rows(k, 3, seed=seed + 2)
    assert losses.semi_hard(*three).tolist() == slow(*three)


@given(n=st.integers(1, 6), k=st.integers(0, 8), seed=st.integers(0, 200), columns=st.integers(1, 2))
def test_a_candidate_that_shares_an_id_is_never_chosen(n, k, seed, columns):
    three = rows(n, 3, seed=seed), rows(n, 3, seed=seed + 1), rows(k, 3, seed=seed + 2)
    rng = torch.Generator().manual_seed(seed)
    query_ids, key_ids = (torch.randint(-1, 3, (count, columns), generator=rng) for count in (n, k))
    found = losses.semi_hard(*three, query_ids=query_ids, key_ids=key_ids)
    assert found.tolist() == slow(*three, query_ids, key_ids)


def test_the_nearest_of_the_farther_ones_is_chosen_not_the_hardest_of_all():
    def at(degrees):
        angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
        return torch.stack([angle.cos(), angle.sin()], dim=-1)

    anchor, positive, candidates = at([0.0]), at([40.0]), at([10.0, 90.0, 50.0, 170.0])
    assert losses.semi_hard(anchor, positive, candidates).tolist() == [2], "50 degrees: just beyond the positive's 40"
    assert losses.semi_hard(anchor, at([175.0]), candidates).tolist() == [3], "all are nearer: the farthest"


def test_lengths_do_not_matter():
    anchor, positive, candidates = rows(5, 4), rows(5, 4, seed=1), rows(9, 4, seed=2)
    lengths = torch.linspace(0.1, 30, 9, dtype=torch.float64)[:, None]
    assert torch.equal(
        losses.semi_hard(anchor * 3, positive / 9, candidates * lengths), losses.semi_hard(anchor, positive, candidates)
    )


def test_an_anchor_without_any_candidate_gets_minus_one():
    ids = torch.tensor([7, 8])
    found = losses.semi_hard(rows(2, 3), rows(2, 3, seed=1), rows(3, 3), query_ids=ids, key_ids=torch.tensor([7, 7, 7]))
    assert found[0] == -1
    assert found[1] >= 0
    assert losses.semi_hard(rows(2, 3), rows(2, 3, seed=1), rows(0, 3)).tolist() == [-1, -1]


def test_choosing_takes_no_gradient():
    assert not losses.semi_hard(rows(2, 3), rows(2, 3, seed=1), rows(4, 3, seed=2)).requires_grad


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: losses.semi_hard(rows(2, 3), rows(2, 3), rows(4, 5)), "negatives must be of shape (k, 3), got (4, 5)"),
        (
            lambda: losses.semi_hard(rows(2, 3), rows(2, 3), rows(4, 3), query_ids=torch.arange(2)),
            "query_ids and key_ids must be given together, got no key_ids",
        ),
    ],
)
def test_mistakes_are_one_sentence(call, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        call()
    assert str(error.value) == sentence
