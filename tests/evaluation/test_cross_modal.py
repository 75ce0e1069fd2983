"""Cross-modal ranks against a slow loop in whole numbers, closed forms, and ties that rounding would break."""

import itertools
import math
from fractions import Fraction
from statistics import median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.evaluation import cross_modal as module
from likewise.evaluation.cross_modal import CrossModal, Direction, cross_modal
from likewise.guide import see


def rows(n, dim=6, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def whole(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def both(n):
    return torch.arange(n)[:, None].expand(n, 2)


def alike(query, row):
    """Orders rows as the cosine with the query does: its square with its sign, times |query|²; exact, ties too."""
    dot = sum(a * b for a, b in zip(query, row, strict=True))
    return Fraction(dot * abs(dot), sum(b * b for b in row) or 1)


def slow(queries, candidates, pairs, ks):
    ranks = []
    for i, query in enumerate(queries):
        partners = {text for image, text in pairs if image == i}
        if not partners:
            continue
        scores = [alike(query, row) for row in candidates]
        best = max(scores[j] for j in partners)
        ranks.append(1 + sum(scores[j] >= best for j in range(len(candidates)) if j not in partners))
    return Direction(
        recall={k: sum(rank <= k for rank in ranks) / len(ranks) for k in ks},
        median_rank=float(median(ranks)),
        queries=len(ranks),
        candidates=len(candidates),
        left_out=len(queries) - len(ranks),
    )


@settings(max_examples=80)
@given(
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    d=st.integers(1, 4),
    p=st.integers(1, 20),
    height=st.integers(0, 5),
    kind=st.sampled_from([torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    seed=st.integers(0, 999),
)
def test_ranks_are_those_of_a_slow_loop_in_whole_numbers_whatever_the_block(n, m, d, p, height, kind, seed):
    """Few whole numbers: many ties, rows of zeros, rows of one direction and two lengths."""
    images, texts = whole(5, n, d, seed=seed) - 2, whole(5, m, d, seed=seed + 1) - 2
    pairs = torch.stack([whole(n, p, seed=seed + 2), whole(m, p, seed=seed + 3)], dim=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCORES_AT_ONCE", height * m)
        found = cross_modal(images.to(kind), texts.to(kind), pairs, ks=(1, 2, 4))
    images, texts, pairs = images.tolist(), texts.tolist(), pairs.tolist()
    back = [(text, image) for image, text in pairs]
    assert found == CrossModal(slow(images, texts, pairs, (1, 2, 4)), slow(texts, images, back, (1, 2, 4)))


def test_rows_paired_with_themselves_are_all_found_whatever_their_length():
    images = rows(50)
    found = cross_modal(images, images * torch.linspace(0.1, 9, 50, dtype=torch.float64)[:, None], both(50))
    perfect = Direction(recall={1: 1.0, 5: 1.0, 10: 1.0}, median_rank=1.0, queries=50, candidates=50, left_out=0)
    assert found == CrossModal(perfect, perfect)


def test_rows_paired_with_their_opposites_are_found_last():
    found = cross_modal(rows(50), -rows(50), both(50), ks=(1, 49, 50))
    assert found.image_to_text.recall == found.text_to_image.recall == {1: 0.0, 49: 0.0, 50: 1.0}
    assert found.image_to_text.median_rank == 50


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("height", [1, 7, 50])
def test_a_constant_encoder_gets_no_credit_until_k_reaches_all(monkeypatch, kind, height):
    """One row of a product is rounded otherwise than many: without an allowance equal rows have unequal scores."""
    monkeypatch.setattr(module, "SCORES_AT_ONCE", height * 50)
    lengths = torch.linspace(1, 9 if kind != torch.bfloat16 else 1, 50, dtype=kind)[:, None]
    for seed in range(5):
        image, text = rows(1, 512, seed).to(kind), rows(1, 512, seed + 1).to(kind)
        found = cross_modal(image * lengths, text * lengths, both(50), ks=(1, 49, 50))
        assert found.image_to_text.recall == found.text_to_image.recall == {1: 0.0, 49: 0.0, 50: 1.0}
        assert found.image_to_text.median_rank == found.text_to_image.median_rank == 50


def test_a_small_lead_is_a_lead():
    """The allowance is for rounding: a lead of 1e-5 in single precision counts."""
    texts = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    texts[1, 1] = math.sqrt(2e-5)  # its cosine with (1, 0) is 1 − 1e-5
    found = cross_modal(torch.tensor([[1.0, 0.0]]), texts, torch.tensor([[0, 0]]))
    assert found.image_to_text.median_rank == 1


def test_chance_finds_k_of_n():
    found = cross_modal(rows(1000, 64), rows(1000, 64, seed=1), both(1000), ks=(100, 500))
    for direction in (found.image_to_text, found.text_to_image):
        assert direction.recall[100] == pytest.approx(0.1, abs=0.04)
        assert direction.recall[500] == pytest.approx(0.5, abs=0.07)
        assert direction.median_rank == pytest.approx(500.5, abs=70)


def test_chance_is_that_of_all_rankings_also_with_several_partners():
    pairs = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 2], [2, 0], [2, 1], [2, 3], [3, 4]])
    found = cross_modal(rows(4), rows(5, seed=1), pairs, ks=(1, 2, 4, 9)).image_to_text.chance
    for k, share in found.items():
        firsts = [set(order[:k]) for order in itertools.permutations(range(5))]
        partners = [{text for image, text in pairs.tolist() if image == i} for i in range(4)]
        assert share == pytest.approx(sum(bool(own & first) for own in partners for first in firsts) / (4 * 120))


IMAGES = torch.eye(3, dtype=torch.float64)


def test_the_best_of_several_texts_counts_and_the_others_do_not_stand_in_its_way():
    texts = torch.tensor([[9, 1, 0], [8, 3, 0], [7, 0, 4], [6, 9, 0], [5, 0, 9]], dtype=torch.float64)
    # By cosine with image 0: texts 0, 1, 2, 3, 4. Its own are 1, 2 and 4: only 0 is before the best of them.
    found = cross_modal(IMAGES, texts, torch.tensor([[0, 1], [0, 2], [0, 4], [1, 0], [2, 3]]), ks=(1, 2))
    # Image 1 is after 3 and 1 when it asks for 0; image 2 is after 4 and 2, and ties with 0 and 1: ranks 2, 3, 5.
    assert found.image_to_text == Direction({1: 0.0, 2: 1 / 3}, 3.0, 3, 5, 0)
    # Texts 1 and 2 find image 0 first and 4 second; 0 finds image 1 second; 3 scores 0 with image 2, its last.
    assert found.text_to_image == Direction({1: 2 / 5, 2: 4 / 5}, 2.0, 5, 3, 0)


def test_a_text_shared_by_images_is_right_with_each_of_them():
    texts = torch.tensor([[3, 2, 1], [0, 1, 3]], dtype=torch.float64)
    shared = cross_modal(IMAGES, texts, torch.tensor([[0, 0], [1, 0], [2, 1]]), ks=(1,))
    perfect = {1: 1.0}
    assert (shared.image_to_text.recall, shared.text_to_image.recall) == (perfect, perfect)
    alone = cross_modal(IMAGES, texts, torch.tensor([[1, 0], [2, 1]]), ks=(1,))
    assert alone.text_to_image.recall == {1: 0.5}, "image 0 is before image 1 unless it is right as well"


def test_queries_without_a_partner_are_left_out_and_counted_but_stay_candidates():
    images, texts = rows(6), rows(6)
    texts[5] = texts[0]  # in the way of 0, though it belongs to no image
    found = cross_modal(images, texts, torch.tensor([[0, 0], [2, 2], [3, 3]]), ks=(1,))
    assert found.image_to_text == Direction({1: 2 / 3}, 1.0, queries=3, candidates=6, left_out=3)
    assert found.text_to_image == Direction({1: 1.0}, 1.0, queries=3, candidates=6, left_out=3)


def test_a_pair_said_twice_is_said_once_and_order_does_not_matter():
    images, texts = rows(20), rows(30, seed=1)
    pairs = torch.stack([whole(20, 40), whole(30, 40, seed=1)], dim=1)
    again = torch.cat([pairs, pairs.flip(0)]).int()
    assert cross_modal(images, texts, again) == cross_modal(images, texts, pairs)


@pytest.mark.parametrize("at_once", [1, 90, 29 * 30, 31 * 30])
def test_blocks_change_nothing_nor_does_a_last_block_of_one(monkeypatch, at_once):
    images, texts = rows(30), rows(30, seed=1)
    pairs = torch.stack([whole(30, 60), whole(30, 60, seed=1)], dim=1)
    expected = cross_modal(images, texts, pairs)
    monkeypatch.setattr(module, "SCORES_AT_ONCE", at_once)
    assert cross_modal(images, texts, pairs) == expected


def test_no_more_scores_are_held_than_a_block_has(monkeypatch):
    monkeypatch.setattr(module, "SCORES_AT_ONCE", 70)
    held, multiply = [], torch.Tensor.__matmul__

    def spied(self, other):
        held.append(multiply(self, other))
        return held[-1]

    monkeypatch.setattr(torch.Tensor, "__matmul__", spied)
    cross_modal(rows(15), rows(15), both(15))
    assert [len(scores) for scores in held] == [4, 4, 4, 3] * 2


def test_embeddings_that_require_gradients_and_differ_in_precision_are_taken():
    images = rows(9).requires_grad_()
    assert cross_modal(images, images.detach().float(), both(9)).image_to_text.recall[1] == 1


CASES = {
    f"image embeddings must be finite, got NaN or infinity {see('not finite')}": lambda: cross_modal(
        rows(3) * math.nan, rows(3), both(3)
    ),
    f"text embeddings must be finite, got NaN or infinity {see('not finite')}": lambda: cross_modal(
        rows(3), rows(3) / 0, both(3)
    ),
    "image embeddings must be of shape (n, d) with n >= 1, got (6,)": lambda: cross_modal(rows(3)[0], rows(3), both(3)),
    "text embeddings must be of shape (n, d) with n >= 1, got (0, 6)": lambda: cross_modal(rows(3), rows(0), both(3)),
    "images and texts must have the same d, got 6 and 5": lambda: cross_modal(rows(3), rows(3, 5), both(3)),
    "pairs must be of shape (p, 2) with p >= 1, got (3,)": lambda: cross_modal(rows(3), rows(3), torch.arange(3)),
    "pairs must be of shape (p, 2) with p >= 1, got (2, 3)": lambda: cross_modal(
        rows(3), rows(3), both(3)[:2, [0, 1, 1]]
    ),
    "pairs must be of shape (p, 2) with p >= 1, got (0, 2)": lambda: cross_modal(rows(3), rows(3), both(0)),
    "pairs must be whole numbers, got torch.float32": lambda: cross_modal(rows(3), rows(3), both(3).float()),
    "pairs must be rows of the 3 images and 4 texts, counted from 0, got (3, 1)": lambda: cross_modal(
        rows(3), rows(4), torch.tensor([[2, 3], [3, 1]])
    ),
    "pairs must be rows of the 3 images and 4 texts, counted from 0, got (0, 4)": lambda: cross_modal(
        rows(3), rows(4), torch.tensor([[0, 4]])
    ),
    "pairs must be rows of the 3 images and 4 texts, counted from 0, got (0, -1)": lambda: cross_modal(
        rows(3), rows(4), torch.tensor([[0, -1]])
    ),
    "ks must be whole numbers >= 1, got (1, 0)": lambda: cross_modal(rows(3), rows(3), both(3), ks=(1, 0)),
    "ks must be whole numbers >= 1, got ()": lambda: cross_modal(rows(3), rows(3), both(3), ks=()),
}


@pytest.mark.parametrize("sentence", CASES)
def test_mistakes_are_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence]()
    assert str(error.value) == sentence
