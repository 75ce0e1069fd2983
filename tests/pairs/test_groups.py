"""Two items of one group are a pair."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likewise.pairs.groups import Groups
from likewise.pairs.views import Views


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@given(groups=st.lists(st.integers(-1, 4), min_size=1, max_size=20), seed=st.integers(0, 1000))
def test_a_partner_is_another_item_of_the_group_unless_the_item_is_alone(groups, seed):
    items = torch.arange(len(groups))
    partners = Groups(torch.tensor(groups)).partners(items, rng(seed)).tolist()
    for item, partner in enumerate(partners):
        assert groups[partner] == groups[item]
        alone = groups[item] == -1 or groups.count(groups[item]) == 1
        assert (partner == item) == alone


def test_every_other_item_of_the_group_is_as_likely():
    """Chi-square with 5 degrees of freedom: above 20.5 once in a thousand draws."""
    groups = torch.tensor([1, 0, 1, 1, 0, 1, 1, 2, 1, 1])  # seven of group 1, item 5 among them
    draws = 7000
    partners = Groups(groups).partners(torch.full((draws,), 5), rng())
    others = [item for item in range(10) if groups[item] == 1 and item != 5]
    counts = partners.bincount(minlength=10)
    assert counts[others].sum() == draws
    expected = draws / len(others)
    assert float(((counts[others] - expected) ** 2 / expected).sum()) < 20.5


def test_the_draw_is_the_generators_and_a_repeated_item_draws_anew():
    groups, items = Groups(torch.zeros(50, dtype=torch.int64)), torch.arange(50)
    assert torch.equal(groups.partners(items, rng(1)), groups.partners(items, rng(1)))
    assert not torch.equal(groups.partners(items, rng(1)), groups.partners(items, rng(2)))
    assert groups.partners(torch.zeros(20, dtype=torch.int64), rng()).unique().numel() > 5


def test_a_row_draws_the_same_whatever_the_other_rows_are():
    """So ranks, who draw for the whole batch, and one process draw the same."""
    groups = Groups(torch.tensor([0, 0, 0, 1, 1, 1, -1, 2]))
    one = groups.partners(torch.tensor([0, 4, 6, 2]), rng())
    other = groups.partners(torch.tensor([3, 4, 7, 2]), rng())
    assert one[[1, 3]].tolist() == other[[1, 3]].tolist()


def test_group_minus_one_is_no_group():
    groups = Groups(torch.tensor([-1, -1, -1, 3, 3]))
    assert groups.partners(torch.arange(5), rng()).tolist() == [0, 1, 2, 4, 3]


def test_ids_are_the_item_and_its_group():
    groups = Groups(torch.tensor([7, 7, -1, 9], dtype=torch.int32))
    ids = groups.ids(torch.tensor([3, 0, 2]), torch.tensor([3, 0, 2]))
    assert ids.tolist() == [[3, 9], [0, 7], [2, -1]]
    assert ids.dtype == torch.int64
    assert ids.shape[1] == groups.columns


def test_views_pair_an_item_with_itself_under_its_own_id():
    items = torch.tensor([4, 1, 1])
    assert Views().partners(items, rng()).tolist() == items.tolist()
    assert Views().ids(items, items).tolist() == items.tolist()
    assert Views().columns == 1


@pytest.mark.parametrize(
    ("groups", "got"), [(torch.zeros(3), "torch.float32 of (3,)"), (torch.zeros(2, 3).long(), "torch.int64 of (2, 3)")]
)
def test_groups_that_are_no_whole_numbers_are_refused(groups, got):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        Groups(groups)
    assert str(error.value) == f"groups must be whole numbers of shape (n,), got {got}"
