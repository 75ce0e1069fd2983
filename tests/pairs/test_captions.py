"""An image and one of its captions are a pair, and who says the same is nobody's negative."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise import losses
from likewise.data.tokens import PADDING, Tokenizer
from likewise.modalities.text import matches
from likewise.pairs.across import Across

TEXTS = (("a dog", "a small dog, asleep"), ("a cat",), ("A Dog", "two dogs", "a dog"), ("a red fox",))


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def flat(captions):
    """All captions, item by item."""
    return [text for texts in captions for text in texts]


@functools.cache
def tokenizer():
    return Tokenizer.learned(flat(TEXTS), 300)


def pairs_of(captions, groups=None):
    tokens = tokenizer().encode(flat(captions), 32)
    return Across(captions, tokens, None if groups is None else torch.tensor(groups))


items = st.lists(
    st.lists(st.sampled_from(["a", "A", "b", "c", "É", "é", "e\u0301"]), min_size=1, max_size=4), min_size=1
)


# --- draws ---------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(captions=items, seed=st.integers(0, 1000))
def test_a_partner_is_a_caption_of_the_item_and_never_of_another(captions, seed):
    owners = [item for item, texts in enumerate(captions) for _ in texts]
    rows = torch.arange(len(captions)).repeat(5)
    partners = pairs_of(captions).partners(rows, rng(seed))
    assert [owners[partner] for partner in partners.tolist()] == rows.tolist()


@pytest.mark.parametrize(("count", "bound"), [(2, 10.9), (3, 13.9), (5, 18.5), (7, 22.5)])
def test_every_caption_of_an_item_is_as_likely(count, bound):
    """Chi-square with a degree of freedom less than captions: above the bound once in a thousand draws."""
    draws = 5000
    captions = [["a"], ["b"] * count, ["c", "d"]]
    counts = pairs_of(captions).partners(torch.ones(draws, dtype=torch.int64), rng()).bincount(minlength=count + 3)
    drawn = counts[1 : 1 + count]
    assert drawn.sum() == draws
    assert float(((drawn - draws / count) ** 2 / (draws / count)).sum()) < bound


def test_the_draw_is_the_generators_and_a_repeated_item_draws_anew():
    pairs, rows = pairs_of([list("abcdefgh")] * 30), torch.arange(30)
    assert torch.equal(pairs.partners(rows, rng(1)), pairs.partners(rows, rng(1)))
    assert not torch.equal(pairs.partners(rows, rng(1)), pairs.partners(rows, rng(2)))
    assert pairs.partners(torch.zeros(50, dtype=torch.int64), rng()).unique().numel() == 8


def test_a_row_draws_the_same_whatever_the_other_rows_are():
    """So ranks, who draw for the whole batch, and one process draw the same."""
    pairs = pairs_of([["a"], list("abc"), list("abcd"), ["a", "b"]] * 4)
    one = pairs.partners(torch.tensor([0, 5, 6, 2, 3]), rng())
    other = pairs.partners(torch.tensor([3, 5, 4, 2, 3]), rng())
    assert one[[1, 3, 4]].tolist() == other[[1, 3, 4]].tolist()


# --- ids -----------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(captions=items, seed=st.integers(0, 1000), data=st.data())
def test_ids_are_shared_by_items_of_a_group_and_by_equal_captions(captions, seed, data):
    """Equal: but for case and composition, which no token tells apart."""
    size = len(captions)
    groups = data.draw(st.none() | st.lists(st.integers(0, 3), min_size=size, max_size=size))
    pairs = pairs_of(captions, groups)
    owners = list(range(size)) if groups is None else groups
    rows = torch.arange(size).repeat(2)
    partners = pairs.partners(rows, rng(seed))
    ids = pairs.ids(rows, partners)
    assert ids.shape == (2 * size, pairs.columns)
    assert ids.dtype == torch.int64
    drawn = [flat(captions)[partner].lower().replace("e\u0301", "é") for partner in partners.tolist()]
    for i, one in enumerate(ids.tolist()):
        for j, other in enumerate(ids.tolist()):
            assert (one[0] == other[0]) == (owners[rows[i]] == owners[rows[j]])
            assert (one[1] == other[1]) == (drawn[i] == drawn[j])


def test_captions_of_the_same_tokens_share_their_id():
    texts = (("CAF\u00c9", "cafe\u0301"), ("Caf\u00e9",), ("cafe",))
    tokens = tokenizer().encode(flat(texts), 32)
    pairs = Across(texts, tokens)
    ids = pairs.ids(torch.tensor([0, 0, 1, 2]), torch.arange(4))[:, 1].tolist()
    for i in range(4):
        for j in range(4):
            assert (ids[i] == ids[j]) == torch.equal(tokens[i], tokens[j])


@pytest.mark.parametrize(
    ("captions", "groups", "distinct"),
    [
        ([["a"], ["b", "c"]], None, True),
        ([["a"], ["b", "c"]], [5, 3], True),
        ([["a"], ["b", "c"]], [5, 5], False),
        ([["a"], ["b", "a"]], None, False),
        ([["a"], ["b", "A"]], None, False),
        ([["é"], ["b", "E\u0301"]], [0, 1], False),
    ],
)
def test_they_are_distinct_where_nothing_is_shared(captions, groups, distinct):
    pairs = pairs_of(captions, groups)
    assert pairs.distinct(each_once=True) is distinct
    assert pairs.distinct(each_once=False) is distinct


def test_captions_that_differ_only_where_nobody_reads_are_two():
    """Of a long caption the beginning is read, but what was written decides which captions are the same."""
    texts = [["a dog and a cat"], ["a dog and a hen"], ["a hen"]]
    pairs = Across(texts, tokenizer().encode(flat(texts), 4))
    assert torch.equal(*pairs.tokens[:2])
    assert pairs.ids(torch.arange(3), torch.arange(3))[:, 1].unique().numel() == 3
    assert pairs.distinct(each_once=True)


@settings(max_examples=50)
@given(captions=items, seed=st.integers(0, 1000), data=st.data())
def test_ids_of_distinct_pairs_never_meet(captions, seed, data):
    size = len(captions)
    groups = data.draw(st.none() | st.permutations(range(size)) | st.just([0] * size))
    pairs = pairs_of(captions, groups)
    rows = torch.arange(size)
    ids = pairs.ids(rows, pairs.partners(rows, rng(seed)))
    meet = any(len(set(column)) < size for column in ids.T.tolist())
    assert not (pairs.distinct(each_once=True) and meet)


# --- tokens --------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(seed=st.integers(0, 1000), rows=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_what_is_read_are_the_drawn_captions_as_long_as_the_longest(seed, rows):
    pairs = Across(TEXTS, tokenizer().encode(flat(TEXTS), 32))
    partners = pairs.partners(torch.tensor(rows), rng(seed))
    tokens = pairs.read(partners)
    drawn = [flat(TEXTS)[partner] for partner in partners.tolist()]
    assert all(text in TEXTS[row] for text, row in zip(drawn, rows, strict=True))
    assert [tokenizer().decode(row) for row in tokens] == [text.lower() for text in drawn]
    assert torch.equal(tokens, tokenizer().encode(drawn, 32))
    assert (tokens[:, -1] != PADDING).any()


# --- negatives -----------------------------------------------------------------------------------------


def test_items_that_share_a_caption_or_a_group_are_not_each_others_negatives():
    """Items 0 and 2 are of one caption, 1 and 3 of one group; each of the others is a negative."""
    pairs = pairs_of([["A dog"], ["a cat"], ["a dog"], ["a fox"], ["a hen"]], [0, 1, 2, 1, 4])
    rows = torch.arange(5)
    ids = pairs.ids(rows, pairs.partners(rows, rng()))
    images, texts = torch.randn(2, 5, 6, generator=rng(), dtype=torch.float64)
    alike = {(0, 2), (2, 0), (1, 3), (3, 1)}
    total = 0.0
    for i in range(5):
        for a, b in ((images, texts), (texts, images)):
            terms = [(torch.cosine_similarity(a[i], b[j], dim=0) / 0.1).exp() for j in range(5) if (i, j) not in alike]
            own = (torch.cosine_similarity(a[i], b[i], dim=0) / 0.1).exp()
            total -= float((own / sum(terms)).log())
    found = losses.symmetric_info_nce(images, texts, temperature=0.1, ids=ids)
    assert float(found) == pytest.approx(total / 10, rel=1e-12)
    assert float(losses.symmetric_info_nce(images, texts, temperature=0.1)) > total / 10 + 1e-3


# --- matches -------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(captions=items)
def test_matches_are_every_caption_once_and_all_items_that_have_it(captions):
    texts, pairs = matches(captions)
    said = [[text.lower().replace("e\u0301", "é") for text in of_item] for of_item in captions]
    first = []  # as it was written where it came first
    for text, as_said in zip(flat(captions), flat(said), strict=True):
        if as_said not in [one for _, one in first]:
            first.append((text, as_said))
    assert texts == [text for text, _ in first]
    expected = [
        [item, row] for item, of_item in enumerate(said) for row, (_, as_said) in enumerate(first) if as_said in of_item
    ]
    assert pairs.tolist() == expected


def test_matches_of_a_few():
    texts, pairs = matches(TEXTS)
    assert texts == ["a dog", "a small dog, asleep", "a cat", "two dogs", "a red fox"]
    assert pairs.tolist() == [[0, 0], [0, 1], [1, 2], [2, 0], [2, 3], [3, 4]]


# --- errors --------------------------------------------------------------------------------------------

CASES = {
    "captions must have at least one text for each item, got an item without any": lambda: pairs_of([["a"], []]),
    "tokens must have one row a caption, 3, got 2": lambda: Across((("a", "b"), ("c",)), torch.ones(2, 4).long()),
}


@pytest.mark.parametrize("sentence", CASES)
def test_errors_to_the_letter(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        CASES[sentence]()
    assert str(error.value) == sentence


def test_no_items_are_refused():
    with pytest.raises(
        ValueError, match=r"^captions must have at least one text for each item, got an item without any$"
    ):
        Across((), torch.ones(0, 4).long())
