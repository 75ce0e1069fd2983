"""CPC's question against the loops of its paper: steps ahead, contexts, candidates."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise import dictionaries, ranks
from likewise.dictionaries import Found
from likewise.losses import tiles as tiling
from likewise.losses.catalog import LOSSES, build_loss
from likewise.losses.look_up import LookUp
from likewise.pairs.batch import Batch
from likewise.pairs.future import Future
from likewise.recipe import Loss
from tests.losses import slow
from tests.losses.conftest import assert_same, rows

N, FRAMES, HORIZON, DIM = 4, 6, 3, 5
ITEMS = [7, 0, 3, 12]
LENGTHS = [6, 4, 1, 5]  # frames that are there; one sequence has no future at all
NEGATIVES = ["both", "others", "same"]


class Everything(Future):
    """Every frame is a candidate: the positive, padding and all."""

    def draw(self, ids, rng):
        return torch.arange(len(ids))

    def draw_within(self, ids, rows, total, rng):
        return torch.arange(ids.shape[1]).expand(len(ids), -1)


class Only(Future):
    """These rows are the candidates, and nothing else."""

    def __init__(self, chosen, **options):
        super().__init__(**options)
        self.chosen = torch.tensor(chosen)

    def draw(self, ids, rng):
        return self.chosen

    def draw_within(self, ids, rows, total, rng):
        return self.chosen.expand(len(ids), -1)


def a_batch(rows=slice(0, N), step=5):
    nothing = torch.empty(0)
    return Batch(step, rows, torch.tensor(ITEMS)[rows], nothing, nothing, nothing, nothing)


def ids_of(pairs, *, items=ITEMS, first=(0, 0, 0, 0), lengths=LENGTHS, frames=FRAMES):
    there = torch.arange(frames) < torch.tensor(lengths)[:, None]
    return pairs.frame_ids(torch.tensor(items), torch.tensor(first), there)


def ask(pairs, query, found, ids, batch=None, size=N):
    return pairs.look_ups(query, found, ids, None, a_batch() if batch is None else batch, size=size, seed=1)


def score(look_ups, *, similarity="dot", temperature=1.0, policy=""):
    """As a step does it: the mean over steps ahead."""
    loss = build_loss(Loss(kind="info_nce", similarity=similarity, temperature=temperature, policy=policy), 10)
    values = [LOSSES["info_nce"].score(loss.double(), look_up) * look_up.weight for look_up in look_ups]
    return torch.stack(values).mean()


def frames_drawn(look_up, pool):
    """Which frames (m, s) were drawn for each sequence, by what they hold: no two frames are equal."""
    drawn = look_up.found.negatives.detach()
    drawn = drawn.expand(N, *drawn.shape) if drawn.ndim == 2 else drawn
    places = (drawn[:, :, None, None] == pool.detach().view(N, FRAMES, DIM)).all(dim=4)
    assert (places.sum(dim=(2, 3)) == 1).all()
    return [[divmod(int(place), FRAMES) for place in row.flatten(1).int().argmax(dim=1)] for row in places]


def slow_cpc(query, key, pool, drawn, negatives, *, first=(0, 0, 0, 0), items=ITEMS, similarity, temperature):
    """−log of e^{z_{t+k}ᵀ W_k c_t} over its sum with those of the candidates, for each k and each context t.

    `drawn[k][n]` are the candidates of sequence n, as (sequence, frame). No candidate is the frame t + k
    itself, padding, nor, of `others`, a frame of the same item.
    """
    of_steps = []
    for k in range(1, HORIZON + 1):
        of_contexts = []
        for n in range(N):
            for t in range(FRAMES):
                if t + k >= LENGTHS[n]:
                    continue
                expected = query[n, t, k - 1]
                positive = slow.score(expected, key[n * FRAMES + t + k], temperature, similarity)
                total = positive.exp()
                for m, s in drawn[k - 1][n]:
                    itself = items[m] == items[n] and first[m] + s == first[n] + t + k
                    if itself or s >= LENGTHS[m] or (negatives == "others" and items[m] == items[n]):
                        continue
                    total = total + slow.score(expected, pool[m * FRAMES + s], temperature, similarity).exp()
                of_contexts.append(-torch.log(positive.exp() / total))
        of_steps.append(torch.stack(of_contexts).mean())
    return torch.stack(of_steps).mean()


@pytest.fixture(params=["as one tile", "in tiles"])
def path(request, monkeypatch):
    if request.param == "in tiles":
        monkeypatch.setattr(tiling, "_side", lambda device: 3)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("first", [(0, 0, 0, 0), (2, 9, 0, 4)], ids=["from the beginning", "two windows of an item"])
@pytest.mark.parametrize("kind", [Future, Everything], ids=["drawn", "every frame"])
@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize(("similarity", "temperature"), [("dot", 1.0), ("cosine", 0.1), ("euclidean", 0.7)])
def test_the_loss_and_its_gradients_are_those_of_the_triple_loop(negatives, kind, first, similarity, temperature):
    """Positives and negatives are leaves of their own, so that each has its gradient seen; `same` reads positives."""
    items = ITEMS if not any(first) else [7, 0, 3, 7]  # frames 2–7 and 4–8 of item 7: they overlap
    pairs = kind(HORIZON, 9, negatives)
    query, key = rows(N, FRAMES, HORIZON, DIM), rows(N * FRAMES, DIM, seed=1)
    pool = key if negatives == "same" else key.detach().clone().requires_grad_()
    ids = ids_of(pairs, items=items, first=first)
    look_ups = ask(pairs, query, Found(key, pool, ids), ids)
    drawn = [frames_drawn(look_up, pool) for look_up in look_ups]
    options = {"similarity": similarity, "temperature": temperature}
    expected = slow_cpc(query, key, pool, drawn, negatives, first=first, items=items, **options)
    inputs = [query, key] if pool is key else [query, key, pool]
    assert_same(score(look_ups, **options), expected, inputs)
    if kind is Future:
        assert all(LENGTHS[m] > s for of_step in drawn for of_row in of_step for m, s in of_row)
        assert drawn[0] != drawn[1], "drawn anew for each step ahead"


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("negatives", ["both", "others"])
def test_keys_that_are_both_positive_and_negative_have_both_gradients(negatives):
    pairs = Future(HORIZON, 9, negatives)
    query, key = rows(N, FRAMES, HORIZON, DIM), rows(N * FRAMES, DIM, seed=1)
    ids = ids_of(pairs)
    look_ups = ask(pairs, query, dictionaries.InBatch().lookup(key, ids), ids)
    drawn = [frames_drawn(look_up, key) for look_up in look_ups]
    expected = slow_cpc(query, key, key, drawn, negatives, similarity="dot", temperature=1.0)
    assert_same(score(look_ups), expected, [query, key])


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("negatives", ["both", "others"])
def test_frames_of_a_queue_are_looked_up_without_gradient(negatives):
    """MoCo over sequences: older windows of some of the same items are in the queue."""
    pairs = Future(HORIZON, 9, negatives)
    query, key = rows(N, FRAMES, HORIZON, DIM), rows(N * FRAMES, DIM, seed=1)
    older = rows(N * FRAMES, DIM, seed=2, grad=False)
    look_ups = ask(pairs, query, Found(key, older, ids_of(pairs)), ids_of(pairs))
    drawn = [frames_drawn(look_up, older) for look_up in look_ups]
    expected = slow_cpc(query, key, older, drawn, negatives, similarity="cosine", temperature=0.2)
    assert_same(score(look_ups, similarity="cosine", temperature=0.2), expected, [query, key])


def test_an_empty_queue_has_nothing_to_tell_from():
    pairs = Future(HORIZON, 9)
    query, key = rows(N, FRAMES, HORIZON, DIM), rows(N * FRAMES, DIM, seed=1)
    nothing = Found(key, key.detach()[:0], ids_of(pairs)[:0])
    look_ups = ask(pairs, query, nothing, ids_of(pairs))
    assert score(look_ups) == 0
    assert [look_up.negatives_a_query() for look_up in look_ups] == [0, 0, 0]
    assert [look_up.accuracy("dot") for look_up in look_ups] == [1, 1, 1]


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_a_step_farther_ahead_than_any_sequence_counts_zero_and_has_no_gradient(negatives):
    pairs = Future(9, 4, negatives)
    query, key = rows(N, FRAMES, 9, DIM), rows(N * FRAMES, DIM, seed=1)
    ids = ids_of(pairs)
    look_ups = ask(pairs, query, Found(key, key, ids), ids)
    assert [bool(look_up.is_valid.any()) for look_up in look_ups] == [True] * 5 + [False] * 4
    for look_up in look_ups[5:]:
        value = score([look_up])
        assert value == 0
        assert all((g == 0).all() for g in torch.autograd.grad(value, [query, key]))
        assert look_up.negatives_a_query() == 0
        assert look_up.accuracy("dot") == 0


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_what_stands_in_the_place_of_padding_is_irrelevant(negatives):
    pairs = Everything(HORIZON, 9, negatives)
    ids = ids_of(pairs)
    there = (ids if ids.ndim == 1 else ids[:, 0]) >= 0
    values = []
    for filled in (0.0, 1000.0):
        query = rows(N, FRAMES, HORIZON, DIM, grad=False).where(there.view(N, FRAMES, 1, 1), filled)
        key = rows(N * FRAMES, DIM, seed=1, grad=False).where(there[:, None], filled).requires_grad_()
        values.append(score(ask(pairs, query, Found(key, key, ids), ids)))
        assert (torch.autograd.grad(values[-1], key)[0][~there] == 0).all()
    assert torch.equal(*values)


# --- faults of others, each by its name --------------------------------------------------------------


def test_fault_10_softmax_over_the_wrong_axis():
    """Two contexts A, B and two candidates; scores of A: log 3 (its own) and 0, of B: log 5 and 0 (its own).

    Over the candidates of each context: log(1 + 1/3) and log(1 + 5). Over the contexts of each candidate it
    would be log(1 + 5/3) and log 2.
    """
    query, key = torch.zeros(2, 2, 1, 2, dtype=torch.float64), torch.zeros(2, 2, 2, dtype=torch.float64)
    key[0, 1], key[1, 1] = torch.eye(2)
    query[0, 0, 0, 0], query[1, 0, 0, 0] = math.log(3), math.log(5)
    pairs = Only([1, 3], horizon=1)  # the second frames of both
    ids = ids_of(pairs, items=[0, 1], first=(0, 0), lengths=[2, 2], frames=2)
    key = key.flatten(0, 1).requires_grad_()
    value = score(ask(pairs, query, Found(key, key, ids), ids, size=2)).item()
    assert value == pytest.approx((math.log(4 / 3) + math.log(6)) / 2, abs=1e-12)
    assert value != pytest.approx((math.log(8 / 3) + math.log(2)) / 2, abs=0.1)


@pytest.mark.parametrize(("negatives", "left"), [("both", 11), ("others", 8), ("same", 3)])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_fault_10_the_positive_drawn_as_a_negative(negatives, left, temperature):
    """Aligned orthonormal frames, every one a candidate: log(1 + left · e^{−1/τ}), as if the positive was not there.

    Were it, the cold loss would be ln 2 and not 0.
    """
    eye = torch.eye(12, dtype=torch.float64, requires_grad=True)  # three sequences of four frames
    query = torch.stack([eye.roll(-k, dims=0) for k in (1, 2)], dim=1).view(3, 4, 2, 12).detach()
    pairs = Everything(2, 12, negatives)
    ids = ids_of(pairs, items=[5, 1, 2], first=(0, 3, 0), lengths=[4, 4, 4], frames=4)
    look_ups = ask(pairs, query, Found(eye, eye, ids), ids, size=3)
    value = score(look_ups, temperature=temperature).item()
    assert value == pytest.approx(math.log1p(left * math.exp(-1 / temperature)), abs=1e-12)
    assert [look_up.negatives_a_query() for look_up in look_ups] == [left, left]
    assert [look_up.accuracy("dot") for look_up in look_ups] == [1, 1]


@pytest.mark.parametrize("negatives", ["both", "same"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_fault_10_step_t_excluded_instead_of_t_plus_k(negatives, k):
    """One context at t = 0. Its own frame is a negative like any other; the frame it looks for is none."""
    query = torch.zeros(1, k + 1, k, 1, dtype=torch.float64)
    query[0, 0, k - 1] = 1
    key = torch.zeros(k + 1, 1, dtype=torch.float64)
    key[0], key[k] = math.log(5), math.log(2)
    key.requires_grad_()

    def value_among(chosen):
        pairs = Only([chosen], horizon=k, negatives=negatives)
        ids = ids_of(pairs, items=[4], first=(0,), lengths=[k + 1], frames=k + 1)
        look_up = ask(pairs, query, Found(key, key, ids), ids, size=1)[-1]
        assert look_up.is_valid.tolist() == [True] + [False] * k
        return score([look_up]).item()

    assert value_among(0) == pytest.approx(math.log(1 + 5 / 2), abs=1e-12)
    assert value_among(k) == 0


# --- over ranks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_the_weighted_mean_over_ranks_is_the_loss_of_one_process(monkeypatch, negatives):
    """Ranks have unequally many contexts: 6 and 4 frames of theirs on one, 1 and 5 on the other."""
    pairs = Future(HORIZON, 9, negatives)
    query, key = rows(N, FRAMES, HORIZON, DIM), rows(N * FRAMES, DIM, seed=1)
    ids = ids_of(pairs)
    whole = ask(pairs, query, Found(key, key, ids), ids)
    contexts = torch.stack([look_up.is_valid.sum().double() / 2 for look_up in whole])
    monkeypatch.setattr(ranks, "count", lambda: 2)
    monkeypatch.setattr(ranks, "mean", lambda counts: contexts)
    of_ranks = []
    for part in (slice(0, 2), slice(2, 4)):
        frames = slice(part.start * FRAMES, part.stop * FRAMES)
        look_ups = ask(pairs, query[part], Found(key[frames], key, ids), ids[frames], a_batch(part))
        of_ranks.append(score(look_ups))
    assert_same(torch.stack(of_ranks).mean(), score(whole), [query, key])


# --- what is counted of a look-up --------------------------------------------------------------------


@st.composite
def look_ups(draw):
    """Queries with ids of one or two columns, some of them padding, and shared negatives or some for each group."""
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shared, columns = draw(st.booleans()), draw(st.sampled_from([(), (2,)]))
    k = draw(st.integers(0 if shared else 1, 6))  # a queue may be empty; a sequence has frames
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))

    def numbers(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def ids(*shape):
        return torch.randint(-1, draw(st.integers(1, 6)), (*shape, *columns), generator=generator)

    n, of_keys = groups * each, (k,) if shared else (groups, k)
    found = Found(numbers(n, 3), numbers(*of_keys, 3), ids(*of_keys))
    return LookUp(numbers(n, 3), found, ids(n), None, distinct=False)


def negatives_left(look_up):
    """(i, the keys that count for query i) for every query that is no padding."""
    negatives, ids = look_up.found.negatives, look_up.found.negative_ids
    if negatives.ndim == 3:
        each = len(look_up.query) // len(negatives)
        negatives, ids = negatives.repeat_interleave(each, dim=0), ids.repeat_interleave(each, dim=0)
    else:
        negatives, ids = ([of_all] * len(look_up.query) for of_all in (negatives, ids))
    for i, own in enumerate(look_up.ids.tolist()):
        if slow.is_padding(own):
            continue
        yield (
            i,
            [
                key
                for key, other in zip(negatives[i], ids[i].tolist(), strict=True)
                if not slow.share_an_id(own, other) and not slow.is_padding(other)
            ],
        )


@settings(max_examples=60)
@given(look_up=look_ups(), similarity=st.sampled_from(["dot", "cosine", "euclidean"]))
def test_negatives_and_right_answers_are_counted_as_loops_count_them(look_up, similarity):
    left = list(negatives_left(look_up))
    count = sum(len(keys) for _, keys in left) / max(1, len(left))
    assert look_up.negatives_a_query() == pytest.approx(count)
    right = 0
    for i, keys in left:
        positive = slow.score(look_up.query[i], look_up.found.positive[i], 1.0, similarity)
        right += all(slow.score(look_up.query[i], key, 1.0, similarity) < positive for key in keys)
    assert look_up.accuracy(similarity) == pytest.approx(right / max(1, len(left)))


def test_a_tie_is_no_right_answer():
    """An encoder that has collapsed finds nothing, not everything."""
    ones = torch.ones(3, 2)
    look_up = LookUp(ones, Found(ones, ones, torch.arange(3)), torch.arange(3), None, distinct=True)
    assert look_up.accuracy("dot") == 0


def test_candidates_follow_from_seed_and_step():
    pairs, query, key = Future(2, 9), rows(N, FRAMES, 2, DIM), rows(N * FRAMES, DIM, seed=1)
    ids = ids_of(pairs)

    def drawn(step, seed):
        found = pairs.look_ups(query, Found(key, key, ids), ids, None, a_batch(step=step), size=N, seed=seed)
        return [look_up.found.negative_ids.tolist() for look_up in found]

    assert drawn(3, 1) == drawn(3, 1)
    assert drawn(3, 1) != drawn(4, 1)
    assert drawn(3, 1) != drawn(3, 2)
