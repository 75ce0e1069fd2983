"""NNCLR and MoCo v3: one step against loops from the papers' formulas, on networks of a few numbers."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from tests.losses import slow

ASKED = {
    "encoder.name": "tests.training.plain_encoder:plain",
    "encoder.head": "linear",
    "encoder.predictor": "linear",
    "encoder.dim": 6,
    "training.batch_size": 8,
    "training.steps": 4,
    "training.precision": "64-true",
    "data.workers": 0,
}


def trainer(method, folder, **more):
    return Trainer(make_plan("digits", method, ASKED | more, progress=False), folder, Observer())


def embedded(tower, views):
    """Predictions and embeddings of views, by the tower's own parts."""
    embeddings = tower.head(tower.encoder(views))
    return tower.predictor(embeddings), embeddings


def symmetric_loss(queries, keys, candidates, ids, temperature):
    """The mean over both views of each item of −log e^{s+} / (e^{s+} + Σ e^{s−}), candidates of other items only."""
    terms = []
    for query, key, own in zip(queries, keys, ids, strict=True):
        positive = slow.score(query, key, temperature, "cosine").exp()
        others = [
            slow.score(query, other, temperature, "cosine").exp()
            for other, item in zip(candidates, ids, strict=True)
            if item != own
        ]
        terms.append(-(positive / (positive + sum(others))).log())
    return sum(terms) / len(terms)


def test_nnclr_looks_predictions_up_among_the_neighbours_of_the_batch(tmp_path):
    run = trainer("nnclr", tmp_path)
    learner, tower = run.learner, run.learner.tower
    learner.step(run.batches.at(0), 4)  # fills the queue
    stored = learner.dictionary.queue.keys[: learner.dictionary.queue.filled].clone()
    batch = run.batches.at(1)
    views = [learner.views(batch, side) for side in ("first", "second")]
    (p1, z1), (p2, z2) = (embedded(tower, each) for each in views)

    def neighbour(key):
        cosines = normalize(stored, dim=1) @ normalize(key, dim=0)
        return stored[max(range(len(stored)), key=lambda place: float(cosines[place]))]

    one, other = [neighbour(key) for key in z1.detach()], [neighbour(key) for key in z2.detach()]
    ids = batch.ids.tolist() * 2
    expected = symmetric_loss([*p1, *p2], [*other, *one], [*other, *one], ids, 0.1)
    wanted = torch.autograd.grad(expected, list(tower.parameters()))
    taken = learner.step(batch, 4)
    torch.testing.assert_close(taken.loss, expected.detach())
    for parameter, gradient in zip(tower.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_moco_v3_looks_predictions_up_among_the_copys_keys_and_scales_by_the_temperature(tmp_path):
    run = trainer("moco_v3", tmp_path)
    learner, tower = run.learner, run.learner.tower
    learner.step(run.batches.at(0), 4)  # the copy is no longer the encoder
    batch = run.batches.at(1)
    views = [learner.views(batch, side) for side in ("first", "second")]
    (p1, _), (p2, _) = (embedded(tower, each) for each in views)
    copy = learner.copy.copy
    k1, k2 = (copy.head(copy.encoder(each)).detach() for each in views)
    ids = batch.ids.tolist() * 2
    expected = symmetric_loss([*p1, *p2], [*k2, *k1], [*k2, *k1], ids, 0.2)
    # the sum of both directions, times 2τ
    wanted = torch.autograd.grad(2 * expected * 2 * 0.2, list(tower.parameters()))
    taken = learner.step(batch, 4)
    torch.testing.assert_close(taken.loss, expected.detach())
    for parameter, gradient in zip(tower.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_moco_v3s_copy_slows_down_to_a_standstill(tmp_path):
    rows = trainer("moco_v3", tmp_path, **{"training.log_every": 1}).run().metrics
    momentum = [1 - 0.01 * (1 + math.cos(math.pi * step / 4)) / 2 for step in range(4)]
    assert [row["key_momentum"] for row in rows] == pytest.approx(momentum)


def test_the_patch_projection_of_a_vit_stays_at_its_start(tmp_path):
    options = {"encoder.name": "vit_tiny", "training.batch_size": 4, "encoder.head": "mlp_bn"}
    run = trainer("moco_v3", tmp_path, **options)
    patches = run.learner.tower.encoder.patch_embed
    before = [parameter.clone() for parameter in patches.parameters()]
    run.learner.step(run.batches.at(0), 4)
    assert all(torch.equal(*pair) for pair in zip(patches.parameters(), before, strict=True))
    assert run.learner.tower.encoder.blocks[0].attn.qkv.weight.grad.any()


@pytest.mark.parametrize(
    ("method", "source", "sentence"),
    [
        ("cpc", "sounds", "encoder.predictor needs two views of an item, but pairs future has one window"),
        ("simclr", "digits", "encoder.predictor is for queries only, but loss nt_xent uses every row as query"),
    ],
)
def test_a_predictor_is_refused_where_queries_and_keys_are_the_same_rows(method, source, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_plan(source, method, {"encoder.predictor": "mlp"}, progress=False)
