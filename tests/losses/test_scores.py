"""What a step makes of its look-up, against loops over single numbers written from the definitions."""

import itertools

import pytest
import torch

from likewise import dictionaries, losses, ranks
from likewise.dictionaries import Found
from likewise.losses import margin
from likewise.losses.catalog import LOSSES, build_loss
from likewise.losses.look_up import LookUp
from likewise.losses.masks import as_columns, share_an_id
from likewise.losses.policies import parse_policy
from likewise.recipe import Loss, RecipeError
from tests.losses import slow
from tests.losses.conftest import rows

N, DIM = 6, 4
ITEMS = torch.tensor([3, 0, 7, 5, 1, 9])
GROUPS = torch.stack([ITEMS, torch.tensor([0, 1, 0, 2, 1, -1])], dim=1)


def look_up(query, found, ids, *, labels=None):
    return LookUp(query, found, ids, labels, distinct=ids.ndim == 1)


def in_batch(ids=ITEMS, **more):
    query, key = rows(N, DIM), rows(N, DIM, seed=1)
    return look_up(query, dictionaries.InBatch().lookup(key, ids), ids, **more)


def queued(ids=ITEMS, others=9):
    """A queue that also holds older keys of some of the items themselves."""
    queue = dictionaries.KeyQueue(others, DIM, columns=2 if ids.ndim == 2 else 1).double()
    for first in range(0, 12, len(ids)):
        queue.update(rows(len(ids), DIM, seed=20 + first, grad=False), ids + (first > 0))
    return look_up(rows(N, DIM), queue.lookup(rows(N, DIM, seed=1, grad=False), ids), ids)


def score(kind, step, items=50, **options):
    return LOSSES[kind].score(build_loss(Loss(kind=kind, **options), items).double(), step)


def same_ids(a, b):
    return share_an_id(as_columns(a), as_columns(b))


def assert_equal_with_gradient(value, expected, *inputs):
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    assert value.shape == ()

    def gradients(of):
        return torch.autograd.grad(of, inputs, retain_graph=True)

    for ours, theirs in zip(gradients(value), gradients(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ids", [ITEMS, GROUPS], ids=["items", "groups"])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_info_nce_looks_up_in_the_queue(ids, similarity):
    step = queued(ids)
    expected = slow.info_nce(
        step.query,
        *step.found[:2],
        temperature=0.3,
        similarity=similarity,
        query_ids=ids,
        key_ids=step.found.negative_ids,
    )
    value = score("info_nce", step, temperature=0.3, similarity=similarity)
    assert_equal_with_gradient(value, expected.mean(), step.query)


def test_info_nce_in_the_batch_has_every_other_key_as_negative():
    step = in_batch()
    expected = slow.info_nce(step.query, step.found.positive, temperature=0.3).mean()
    assert_equal_with_gradient(score("info_nce", step, temperature=0.3), expected, step.query, step.found.positive)


def test_info_nce_in_an_empty_queue_is_zero():
    queue = dictionaries.KeyQueue(8, DIM).double()
    step = look_up(rows(N, DIM), queue.lookup(rows(N, DIM, seed=1), ITEMS), ITEMS)
    assert score("info_nce", step) == 0
    assert step.negatives_a_query() == 0


def neighbours(a, b, ids):
    """Both views of an item as queries, as a step hands them over: item by item."""
    query, key = (torch.stack(pair, dim=1).flatten(0, 1) for pair in ((a, b), (b, a)))
    twice = ids.repeat_interleave(2, dim=0)
    return look_up(query, dictionaries.InBatch().lookup(key, twice), twice)


@pytest.mark.parametrize("ids", [ITEMS, GROUPS], ids=["items", "groups"])
@pytest.mark.parametrize("policy", ["", "hardest:3", "debiased:0.1", "hard_weighted:0.5:0.1"])
def test_nt_xent_of_neighbours_is_nt_xent_and_so_is_its_form_for_ranks(monkeypatch, ids, policy):
    a, b = rows(N, DIM), rows(N, DIM, seed=1)
    step = neighbours(a, b, ids)
    masked = None if ids.ndim == 1 else ids
    expected = slow.nt_xent(a, b, temperature=0.3, ids=masked, policy=parse_policy(policy)).mean()
    value = score("nt_xent", step, temperature=0.3, policy=policy)
    assert_equal_with_gradient(value, expected, a, b)
    torch.testing.assert_close(
        value, losses.nt_xent(a, b, temperature=0.3, ids=masked, policy=parse_policy(policy)), rtol=1e-12, atol=0
    )
    monkeypatch.setattr(ranks, "count", lambda: 2)
    assert_equal_with_gradient(score("nt_xent", step, temperature=0.3, policy=policy), expected, a, b)


@pytest.mark.parametrize("ids", [ITEMS, GROUPS], ids=["items", "groups"])
def test_both_directions(ids):
    step = in_batch(ids)
    masked = None if ids.ndim == 1 else ids
    given = step.query, step.found.positive
    expected = slow.symmetric_info_nce(*given, temperature=0.3, ids=masked).mean()
    assert_equal_with_gradient(score("symmetric_info_nce", step, temperature=0.3), expected, *given)
    expected = slow.sigmoid(*given, temperature=0.3, ids=masked).mean()
    assert_equal_with_gradient(score("sigmoid", step, temperature=0.3), expected, *given)


def test_nce_tells_a_slot_from_drawn_ones_and_stays_near_the_slot_as_it_was():
    bank = dictionaries.MemoryBank(12, DIM, negatives=7).double()
    query = rows(N, DIM)
    found = bank.lookup(query.detach(), ITEMS, torch.Generator().manual_seed(4))
    step = look_up(query, found, ITEMS)
    loss = build_loss(Loss(kind="nce", temperature=0.3, proximal=2.0), items=12).double()
    value = LOSSES["nce"].score(loss, step)
    # Of the first batch: Z = items · mean e^s over all pairs of a query and a slot that is not its own.
    terms = [
        slow.score(query[i], found.negatives[j], 0.3, "cosine").exp()
        for i, j in itertools.product(range(N), range(7))
        if found.negative_ids[j] != ITEMS[i]
    ]
    log_partition = torch.log(12 * torch.stack(terms).mean()).detach()
    expected = slow.nce(
        query,
        *found[:2],
        log_partition=log_partition.float().double(),
        items=12,
        temperature=0.3,
        query_ids=ITEMS,
        key_ids=found.negative_ids,
        previous=found.positive,
        proximal=2.0,
    )
    torch.testing.assert_close(value, expected.mean(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("at_once", [2**16, 1], ids=["in one block", "row by row"])
@pytest.mark.parametrize("ids", [ITEMS, GROUPS], ids=["items", "groups"])
def test_pair_margin_takes_every_pair_of_the_batch_and_averages_same_and_other_apart(monkeypatch, ids, at_once):
    monkeypatch.setattr(margin, "PAIRS_AT_ONCE", at_once)
    step = in_batch(ids)
    all_rows, all_ids = [*step.query, *step.found.positive], ids.tolist() * 2
    same, other = [], []
    for i in range(2 * N):
        for j in range(i + 1, 2 * N):
            alike = slow.share_an_id(all_ids[i], all_ids[j])
            loss = slow.pair_margin(all_rows[i][None], all_rows[j][None], [alike], margin=2.5)[0]
            (same if alike else other).append(loss)
    assert len(same) == (N if ids.ndim == 1 else N + 2 * 4), "partners, and two groups of two with both their views"
    expected = torch.stack(same).mean() + torch.stack(other).mean()
    value = score("pair_margin", step, margin=2.5)
    assert_equal_with_gradient(value, expected, step.query, step.found.positive)


def test_pair_margin_of_a_batch_of_one_group_has_no_others_to_push():
    ids = torch.stack([torch.arange(N), torch.zeros(N, dtype=torch.int64)], dim=1)
    step = in_batch(ids)
    all_rows = [*step.query, *step.found.positive]
    expected = torch.stack([((a - b) ** 2).sum() / 2 for a, b in itertools.combinations(all_rows, 2)]).mean()
    assert_equal_with_gradient(score("pair_margin", step), expected, step.query, step.found.positive)


@pytest.mark.parametrize("make", [in_batch, queued])
@pytest.mark.parametrize("ids", [ITEMS, GROUPS], ids=["items", "groups"])
def test_triplet_takes_the_semi_hard_negative_of_each_query(make, ids):
    step = make(ids)
    positive, negatives, negative_ids = step.found
    chosen = []
    for i in range(N):
        cosines = {
            j: float(torch.cosine_similarity(step.query[i].detach(), negatives[j].detach(), dim=0))
            for j in range(len(negatives))
            if not slow.share_an_id(ids[i].tolist(), negative_ids[j].tolist())
        }
        near = float(torch.cosine_similarity(step.query[i].detach(), positive[i].detach(), dim=0))
        farther = {j: cosine for j, cosine in cosines.items() if cosine < near}
        chosen.append(max(farther, key=farther.get) if farther else min(cosines, key=cosines.get))
    expected = slow.triplet(step.query, positive, negatives[chosen], margin=0.9).mean()
    assert expected > 0
    assert_equal_with_gradient(score("triplet", step, margin=0.9), expected, step.query)


def test_triplet_counts_zero_for_a_query_without_a_negative():
    """Never may an item of the query's own group, or no row at all, stand in for one."""
    queue = dictionaries.KeyQueue(8, DIM).double()
    query = rows(N, DIM)
    empty = look_up(query, queue.lookup(rows(N, DIM, seed=1), ITEMS), ITEMS)
    value = score("triplet", empty, margin=5.0)
    assert value == 0
    assert torch.autograd.grad(value, query)[0].abs().max() == 0
    ids = torch.stack([torch.arange(3), torch.tensor([4, 4, 4])], dim=1)
    key, other = rows(3, DIM, seed=1), rows(1, DIM, seed=2)
    own_group = Found(key, torch.cat([key, other]), torch.cat([ids, torch.tensor([[9, 4]])]))
    assert score("triplet", look_up(query[:3], own_group, ids), margin=5.0) == 0


def test_sup_con_is_over_both_views_of_all_items():
    labels = torch.tensor([0, 1, 0, 2, 1, -1])
    step = in_batch(labels=labels)
    features = torch.cat([step.query, step.found.positive])
    each = slow.sup_con(features, labels.repeat(2), temperature=0.3)
    expected = each[~each.isnan()].mean()
    assert each.isnan().sum() == 2, "label -1 has no positives, not even its own other view"
    value = score("sup_con", step, temperature=0.3)
    assert_equal_with_gradient(value, expected, step.query, step.found.positive)


def test_negatives_are_counted_without_those_that_share_an_id():
    step = in_batch(GROUPS)
    assert step.negatives_a_query() == pytest.approx((4 + 4 + 4 + 5 + 4 + 5) / 6)
    assert in_batch().negatives_a_query() == N - 1


@pytest.mark.parametrize("nobody", [-1, -7])
def test_a_negative_id_is_nobodys(nobody):
    ids = torch.tensor([nobody, 2])
    assert same_ids(ids, ids).tolist() == [[False, False], [False, True]]
    a, b = torch.tensor([[1, nobody]]), torch.tensor([[2, nobody], [1, 5], [9, 1]])
    assert same_ids(a, b).tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", None),
        ("hardest:16", losses.Hardest(16)),
        ("debiased:0.1", losses.Debiased(0.1)),
        ("hard_weighted:0.5", losses.HardWeighted(0.5)),
        ("hard_weighted:0.5:0.1", losses.HardWeighted(0.5, 0.1)),
    ],
)
def test_a_policy_is_a_name_and_its_numbers(text, policy):
    assert parse_policy(text) == policy


POLICIES = {
    "hardes:16": "unknown loss.policy 'hardes'; did you mean hardest?",
    "hardest": "loss.policy must be like hardest:16 or debiased:0.1, got 'hardest' (",
    "hardest:1.5": "loss.policy must be like hardest:16 or debiased:0.1, got 'hardest:1.5' (",
    "hardest:0": "loss.policy must be like hardest:16 or debiased:0.1, got 'hardest:0' (",
    "debiased:much": "loss.policy must be like hardest:16 or debiased:0.1, got 'debiased:much' (",
    "debiased:2": "loss.policy must be like hardest:16 or debiased:0.1, got 'debiased:2' (",
    "debiased:0.1:0.2": "loss.policy must be like hardest:16 or debiased:0.1, got 'debiased:0.1:0.2' (",
}


@pytest.mark.parametrize("text", POLICIES)
def test_a_policy_that_is_none_is_refused_in_one_sentence(text):
    with pytest.raises(RecipeError) as error:
        parse_policy(text)
    assert str(error.value).startswith(POLICIES[text])
    assert "\n" not in str(error.value)


def test_a_loss_that_cannot_be_is_a_recipe_error():
    with pytest.raises(RecipeError, match=r"^temperature must be positive and finite, got -1$"):
        build_loss(Loss(temperature=-1.0), 10)
    with pytest.raises(RecipeError, match="similarity must be one of"):
        build_loss(Loss(similarity="manhattan"), 10)
    with pytest.raises(RecipeError, match="margin"):
        build_loss(Loss(kind="triplet", margin=-1.0), 10)


def test_only_info_nce_has_a_choice_of_similarity():
    compared_by = {name: kind.similarity(Loss(kind=name, similarity="dot")) for name, kind in LOSSES.items()}
    assert compared_by == {name: "dot" if name == "info_nce" else "cosine" for name in LOSSES}


def test_only_a_learnable_loss_has_a_parameter():
    for kind in LOSSES:
        assert not list(build_loss(Loss(kind=kind), 10).parameters())
    for kind in set(LOSSES) - {"pair_margin", "triplet"}:
        assert len(list(build_loss(Loss(kind=kind, learnable=True), 10).parameters())) >= 1
