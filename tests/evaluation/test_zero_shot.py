"""Zero-shot accuracy against a slow loop, closed forms, and ties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, top_k_accuracy_score
from torch.nn.functional import normalize

from likewise.evaluation import cross_modal as module
from likewise.evaluation.zero_shot import ZeroShot, zero_shot
from likewise.guide import see


def rows(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels(n, classes=8, seed=9):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))


def unit(row):
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


def slow(images, labels, prompts):
    """The rank of each label, from the formula: class vectors are means of unit rows, made unit rows."""
    vectors = [
        unit([sum(column) / len(texts) for column in zip(*map(unit, texts), strict=True)]) for texts in prompts.tolist()
    ]
    ranks = []
    for image, label in zip(images.tolist(), labels.tolist(), strict=True):
        if label >= 0:
            scores = [sum(a * b for a, b in zip(unit(image), vector, strict=True)) for vector in vectors]
            ranks.append(sum(score >= scores[label] for score in scores))
    return ranks


@settings(max_examples=40)
@given(
    n=st.integers(1, 30),
    c=st.integers(1, 9),
    t=st.integers(1, 4),
    d=st.integers(2, 6),
    height=st.integers(0, 9),
    seed=st.integers(0, 999),
)
def test_shares_are_those_of_a_slow_loop_whatever_the_block(n, c, t, d, height, seed):
    images, prompts, asked = rows(n, d, seed=seed), rows(c, t, d, seed=seed + 1), labels(n, c + 1, seed) - 1
    asked[0] = c - 1
    # Templates of unlike lengths: each has the same weight.
    prompts *= torch.linspace(0.1, 50, t, dtype=torch.float64)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCORES_AT_ONCE", height * c)
        found = zero_shot(images, asked, prompts)
    ranks, known = slow(images, asked, prompts), asked[asked >= 0].tolist()
    right = [rank == 1 for rank in ranks]
    per_class = [
        sum(r for r, k in zip(right, known, strict=True) if k == label) / known.count(label) for label in set(known)
    ]
    assert found.accuracy == sum(right) / len(ranks)
    assert found.top5 == sum(rank <= min(5, c) for rank in ranks) / len(ranks)
    assert found.balanced_accuracy == pytest.approx(sum(per_class) / len(per_class), abs=1e-12)
    assert (found.images, found.classes, found.templates) == (len(ranks), c, t)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_shares_are_those_of_scikit_learn():
    images, prompts, asked = rows(200, 6), rows(8, 3, 6, seed=1), labels(200)
    asked[asked == 3] = 4  # a class that no image has may be predicted, and does not count
    scores = normalize(images, dim=1) @ normalize(normalize(prompts, dim=2).mean(dim=1), dim=1).T
    predicted, known = scores.argmax(dim=1).numpy(), asked.numpy()
    found = zero_shot(images, asked, prompts)
    assert found.accuracy == pytest.approx(accuracy_score(known, predicted))
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(known, predicted))
    assert found.top5 == pytest.approx(top_k_accuracy_score(known, scores.numpy(), k=5, labels=range(8)))
    assert found.accuracy != pytest.approx(found.balanced_accuracy)


def test_images_at_their_class_are_all_right_and_at_its_opposite_all_wrong():
    prompts = torch.eye(8).repeat_interleave(2, dim=0).view(8, 2, 8)
    asked = labels(40)
    assert zero_shot(torch.eye(8)[asked], asked, prompts) == ZeroShot(1.0, 1.0, 1.0, 40, 8, 2)
    assert zero_shot(-torch.eye(8)[asked], asked, prompts) == ZeroShot(0.0, 0.0, 0.0, 40, 8, 2)


def test_templates_of_any_length_have_the_same_weight():
    """Class vectors are at 45° and 54.2°; means of rows as they come would be at 5.7° and 45°."""
    prompts = torch.tensor([[[10.0, 0.0], [0.0, 1.0]], [[3.0, 1.0], [0.0, 2.0]]])
    images = torch.tensor([[3.0, 2.9], [1.0, 1.3]])  # at 44.0° and 52.4°
    assert zero_shot(images, torch.tensor([0, 1]), prompts).accuracy == 1


def test_a_class_vector_is_made_a_unit_row_again():
    """Prompts that disagree have a short mean, which must not cost their class."""
    prompts = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    image = torch.tensor([[1.0, 1.2]])  # cosines .996 and .768; with the mean as it comes .704 and .768
    assert zero_shot(image, torch.tensor([0]), prompts).accuracy == 1


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("height", [1, 7, 2**10])
def test_a_constant_encoder_gets_no_credit(monkeypatch, kind, height):
    monkeypatch.setattr(module, "SCORES_AT_ONCE", height * 50)
    images, prompts, asked = rows(40, 512).to(kind), rows(1, 1, 512, seed=1).expand(50, 3, 512).to(kind), labels(40, 50)
    assert zero_shot(images, asked, prompts) == ZeroShot(0.0, 0.0, 0.0, 40, 50, 3)
    assert zero_shot(images, asked % 5, prompts[:5]) == ZeroShot(0.0, 1.0, 0.0, 40, 5, 3), "k reaches all"


def test_two_classes_of_one_name_are_both_wrong():
    prompts = torch.eye(3)[[0, 1, 1]][:, None]
    found = zero_shot(torch.eye(3)[[0, 1, 1]], torch.tensor([0, 1, 2]), prompts)
    assert (found.accuracy, found.balanced_accuracy) == (1 / 3, 1 / 3)


def test_chance_is_one_of_c():
    found = zero_shot(rows(4000, 64), labels(4000, 20), rows(20, 1, 64, seed=1))
    assert found.accuracy == pytest.approx(1 / 20, abs=0.015)
    assert found.balanced_accuracy == pytest.approx(1 / 20, abs=0.015)
    assert found.top5 == pytest.approx(5 / 20, abs=0.03)


def test_balanced_accuracy_gives_each_class_that_occurs_the_same_weight():
    prompts = torch.eye(5)[:, None]
    images = torch.eye(5)[[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
    found = zero_shot(images, torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 3, 3]), prompts)
    assert (found.accuracy, found.balanced_accuracy) == (0.8, 0.5)


def test_images_without_a_label_are_left_out():
    images, asked, prompts = rows(40, 6), labels(40), rows(8, 3, 6, seed=1)
    asked[::3] = -1
    kept = asked >= 0
    found = zero_shot(images, asked, prompts)
    assert found == zero_shot(images[kept], asked[kept], prompts)
    assert found.images == 26


def test_embeddings_that_require_gradients_and_differ_in_precision_are_taken():
    prompts = torch.eye(4, dtype=torch.float64)[:, None].requires_grad_()
    assert zero_shot(torch.eye(4).half(), torch.arange(4, dtype=torch.int32), prompts).accuracy == 1


def test_prompts_in_half_precision_are_not_averaged_in_it():
    images, asked, prompts = rows(2000, 64).float(), labels(2000), rows(8, 3, 64, seed=1).bfloat16()
    assert zero_shot(images, asked, prompts) == zero_shot(images, asked, prompts.float())


CASES = {
    f"image embeddings must be finite, got NaN or infinity {see('not finite')}": lambda: zero_shot(
        rows(3, 6) * math.nan, labels(3), rows(8, 2, 6)
    ),
    f"prompts must be finite, got NaN or infinity {see('not finite')}": lambda: zero_shot(
        rows(3, 6), labels(3), rows(8, 2, 6) / 0
    ),
    "image embeddings must have at least one label, got none": lambda: zero_shot(
        rows(3, 6), labels(3) * 0 - 1, rows(8, 2, 6)
    ),
    "image embeddings must be (n, d) with labels (n,), got (3, 6) and (2,)": lambda: zero_shot(
        rows(3, 6), labels(2), rows(8, 2, 6)
    ),
    "labels must be whole numbers, got torch.float32": lambda: zero_shot(rows(3, 6), labels(3).float(), rows(8, 2, 6)),
    "labels must be below 8, the number of classes, got 8": lambda: zero_shot(
        rows(3, 6), torch.tensor([0, 8, 1]), rows(8, 2, 6)
    ),
    "prompts must be of shape (c, t, d) with c, t >= 1, got (8, 6)": lambda: zero_shot(
        rows(3, 6), labels(3), rows(8, 6)
    ),
    "prompts must be of shape (c, t, d) with c, t >= 1, got (8, 0, 6)": lambda: zero_shot(
        rows(3, 6), labels(3), rows(8, 0, 6)
    ),
    "prompts must be of shape (c, t, d) with c, t >= 1, got (0, 2, 6)": lambda: zero_shot(
        rows(3, 6), labels(3), rows(0, 2, 6)
    ),
    "images and prompts must have the same d, got 6 and 5": lambda: zero_shot(rows(3, 6), labels(3), rows(8, 2, 5)),
}


@pytest.mark.parametrize("sentence", CASES)
def test_mistakes_are_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence]()
    assert str(error.value) == sentence
