"""The memory bank: one slot an item, written after the step and nowhere else."""

import pytest
import torch
from torch.nn.functional import normalize

from likewise import dictionaries, losses


def bank(items=6, dim=4, negatives=9, **options):
    return dictionaries.MemoryBank(items, dim, negatives, **options).double()


def keys(n, dim=4, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_slots_start_as_unit_rows():
    assert bank().slots.norm(dim=1).sub(1).abs().max() < 1e-6


@pytest.mark.parametrize("momentum", [0.0, 0.5, 1.0])
def test_an_update_mixes_and_normalises(momentum):
    memory, ids = bank(momentum=momentum), torch.tensor([4, 1])
    old, key = memory.slots.clone(), keys(2)
    memory.update(key, ids)
    expected = old.clone()
    for row, item in enumerate(ids.tolist()):
        mixed = [momentum * o + (1 - momentum) * k for o, k in zip(old[item], key[row] / key[row].norm(), strict=True)]
        length = sum(float(x) ** 2 for x in mixed) ** 0.5
        expected[item] = torch.tensor([float(x) / length for x in mixed])
    torch.testing.assert_close(memory.slots, expected)


def test_the_bank_is_not_written_in_backward():
    """Fault 9: slots written inside `backward`, before everything that reads them is done."""
    memory, ids, query = bank(), torch.arange(3), keys(3).requires_grad_()
    before = memory.slots.clone()
    found = memory.lookup(query.detach(), ids, torch.Generator().manual_seed(1))
    losses.info_nce(query, *found[:2], query_ids=ids, key_ids=found.negative_ids).backward()
    assert torch.equal(memory.slots, before)


def test_noise_that_draws_the_positive_does_not_count():
    """Fault 9: noise that may draw the positive."""
    memory, ids = bank(items=2, negatives=64), torch.tensor([0, 1])
    found = memory.lookup(keys(2), ids, torch.Generator().manual_seed(0))
    assert {0, 1} == set(found.negative_ids.tolist()), "both were drawn"
    query = keys(2)
    loss = losses.info_nce(query, *found[:2], query_ids=ids, key_ids=found.negative_ids, reduction="none")
    for row in range(2):
        others = found.negatives[found.negative_ids != row]
        expected = losses.info_nce(query[row : row + 1], found.positive[row : row + 1], others)
        torch.testing.assert_close(loss[row], expected)


def test_a_short_batch_is_written_to_its_own_rows():
    """Fault 9: a last short batch written to wrong rows."""
    memory = bank(momentum=0.0)
    before = memory.slots.clone()
    memory.update(keys(1), torch.tensor([5]))
    assert torch.equal(memory.slots[:5], before[:5])
    torch.testing.assert_close(memory.slots[5:], normalize(keys(1), dim=1))


def test_of_an_item_that_came_twice_the_last_key_counts():
    memory, key = bank(momentum=0.0), keys(3)
    memory.update(key, torch.tensor([2, 0, 2]))
    torch.testing.assert_close(memory.slots[2], normalize(key[2], dim=0))
    assert memory.rows[[0, 2]].tolist() == [1, 2]


def test_equal_generators_draw_equal_noise_and_the_draw_is_uniform():
    memory = bank(items=5, negatives=50_000)
    key, ids = keys(1), torch.tensor([0])
    one, other = (memory.lookup(key, ids, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one.negative_ids, other.negative_ids)
    shares = one.negative_ids.bincount(minlength=5) / 50_000
    assert (shares - 0.2).abs().max() < 0.01


def test_meters_and_state():
    memory, other = bank(), bank()
    memory.update(keys(2), torch.tensor([0, 1]))
    memory.update(keys(2), torch.tensor([1, 2]))
    assert memory.meters() == {"size": 6.0, "fill": 0.5, "age": 4 / 3, "oldest": 2.0}
    other.load_state_dict(memory.state_dict())
    assert other.meters() == memory.meters()
    assert memory.steps() == [0, 1]
    assert memory.stored(1).rows.tolist() == [0, 1]


def test_an_id_without_a_slot_is_refused():
    with pytest.raises(ValueError, match=r"^ids must be slots 0 to 5, got 3 to 6$"):
        bank().update(keys(2), torch.tensor([3, 6]))
