"""Words as numbers: any text comes back, has one beginning and one end, and means the same ever after."""

import functools
import json
import random
import sys
import unicodedata

import pytest
import tokenizers
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from likewise.data import DataError
from likewise.data.tokens import END, PADDING, SMALLEST, SPECIAL, START, Tokenizer, trimmed

CAPTIONS = ["a small red circle on white", "Red Circle", "a dog, asleep", "ein Hund schläft", "犬が寝ている"] * 3
LONG = 2000  # tokens: no text of these tests is cut

# Characters that this Python knows: of others, it may know no lower case. Surrogates are no text.
texts = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=30).filter(
    lambda text: not any(name in text for name in SPECIAL)
)


@functools.cache
def learned(vocabulary=300):
    return Tokenizer.learned(CAPTIONS, vocabulary)


def back(text):
    return learned().decode(learned().encode([text], LONG)[0])


def plain(text):
    """In lower case letter by letter, composed, and with single spaces."""
    small = "".join(letter.lower() for letter in unicodedata.normalize("NFC", text))
    return " ".join(unicodedata.normalize("NFC", small).split())


def refused(make):
    with pytest.raises(DataError) as error:
        make()
    return str(error.value)


# --- there and back ----------------------------------------------------------------------------------


@given(text=texts)
@example(text="")
@example(text="A  Dog's\n\tLIFE, 1999!")
@example(text="👩‍👩‍👧‍👦 🏳️‍🌈 🇨🇭 👍🏽 #️⃣")
@example(text="Ġ Ċ Ń ĠEND")  # letters by which the library writes bytes
@example(text="ΟΔΟΣ İstanbul STRAẞE e\u0301 ﬁ \u1100\u1161")
@example(text="< end> <END> < /s> [PAD] \x00 \ufeff \u200b \U0010fffd")
def test_any_text_comes_back_in_lower_case_and_composed(text):
    assert plain(back(text)) == plain(text)
    assert back(text) == back(text).strip()


@given(letter=st.characters(exclude_categories=["Cs", "Cn"]))
def test_no_letter_is_unknown(letter):
    """Where nothing but bytes was learned, each byte of it is a token, and a space before all."""
    text = f"x{letter}x"
    small = "".join(one.lower() for one in unicodedata.normalize("NFC", text))
    tokens = learned(SMALLEST).encode([text], LONG)[0]
    assert len(tokens) == 1 + len(f" {small}".encode()) + 1


def test_case_and_composition_are_no_difference():
    one, other = learned().encode(["CAF\u00c9 rouge", "cafe\u0301 Rouge"], LONG)
    assert one.tolist() == other.tolist()


# --- START … END PADDING -------------------------------------------------------------------------------


@given(batch=st.lists(st.one_of(texts, st.sampled_from(CAPTIONS)), max_size=5), length=st.integers(2, 12))
def test_rows_are_start_text_end_and_padding_and_a_long_text_keeps_its_end(batch, length):
    tokens = learned().encode(batch, length)
    assert tokens.dtype == torch.int64
    whole = [learned().encode([text], LONG)[0].tolist() for text in batch]
    assert tokens.shape == (len(batch), max((min(len(row), length) for row in whole), default=0))
    for row, ids in zip(tokens.tolist(), whole, strict=True):
        assert (ids[0], ids[-1]) == (START, END)
        assert min(ids[1:-1], default=END + 1) > END
        expected = [*ids[:-1][: length - 1], END]
        assert row == expected + [PADDING] * (len(row) - len(expected))


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("form", ["{} a dog", "a {} dog", "a {}{} dog", "a dog{}"])
def test_a_caption_that_spells_a_token_that_is_no_text_does_not_end_there(name, form):
    row = learned().encode([form.format(name, name)], LONG)[0]
    assert row.tolist().count(END) == row.tolist().count(START) == 1
    assert PADDING not in row.tolist()
    assert row[-1] == END
    assert learned().decode(row).split() == ["a", "dog"]


def test_a_caption_that_spells_one_is_learned_from_too():
    tokenizer = Tokenizer.learned(["a <end> of the <padding>", "<start>"] * 5, 300)
    assert [tokenizer.encode([text], LONG)[0].tolist() for text in SPECIAL] == [[START, END]] * 3
    assert tokenizer.decode(tokenizer.encode(["the end"], LONG)[0]) == "the end"


def test_a_row_is_the_same_alone_and_in_a_batch():
    tokens = learned().encode(CAPTIONS, LONG)
    for row, text in zip(tokens, CAPTIONS, strict=True):
        (alone,) = learned().encode([text], LONG)
        assert row[: len(alone)].tolist() == alone.tolist()
        assert (row[len(alone) :] == PADDING).all()
        assert learned().decode(row) == text.lower()


# --- learned -------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1000))
def test_the_same_captions_in_another_order_give_the_same_tokenizer(seed):
    shuffled = random.Random(seed).sample(CAPTIONS, len(CAPTIONS))
    assert Tokenizer.learned(iter(shuffled), 280).text == learned(280).text


def test_what_occurs_more_often_is_learned_first():
    """One new token beyond the bytes: the commonest pair of them, which is a space and a letter."""
    for letter, other in ("ab", "ba"):
        tokenizer = Tokenizer.learned([letter] * 3 + [other] * 2, SMALLEST + 1)
        assert tokenizer.encode([letter, other], LONG).ne(PADDING).sum(dim=1).tolist() == [3, 4]


def test_its_state_is_text_that_reloads_to_the_same_tokens():
    again = Tokenizer(learned().text)
    assert again.text == learned().text
    assert again.vocabulary == learned().vocabulary
    unseen = [*CAPTIONS, "🦊 quick", "ÀÉÎ", "<end>"]
    assert torch.equal(again.encode(unseen, 20), learned().encode(unseen, 20))
    assert json.loads(again.text)["model"]["type"] == "BPE"


@pytest.mark.parametrize("vocabulary", [SMALLEST, SMALLEST + 1, 290, 5000])
def test_the_vocabulary_is_at_most_what_was_asked(vocabulary):
    tokenizer = Tokenizer.learned(CAPTIONS, vocabulary)
    assert SMALLEST <= tokenizer.vocabulary <= vocabulary
    assert tokenizer.vocabulary == vocabulary or vocabulary == 5000  # so many, the captions do not give
    assert tokenizer.encode(CAPTIONS, LONG).max() < tokenizer.vocabulary


def test_without_captions_every_byte_is_a_token():
    assert Tokenizer.learned([]).vocabulary == SMALLEST


# --- tokenizers of others --------------------------------------------------------------------------------

BERTS = ["[PAD]", "[CLS]", "[SEP]"]


def wordpiece(first, special=None, then=(), **options):
    """A tokenizer.json of WordPiece, whose vocabulary has `first` in front; `special` are declared to be no text."""
    words = [
        "[UNK]",
        "a",
        "dog",
        "red",
        "circle",
        "##s",
        "sleep",
        "##ing",
        "[",
        "]",
        "<",
        ">",
        "/",
        "pad",
        "cls",
        "sep",
    ]
    names = [*first, *words, *then]
    model = tokenizers.models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    inner = tokenizers.Tokenizer(model)
    inner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.decoder = tokenizers.decoders.WordPiece()
    inner.add_special_tokens(list(first if special is None else special))
    if options.get("cuts"):  # as the files of sentence-transformers do
        inner.enable_truncation(4)
        inner.enable_padding(length=10, pad_id=inner.token_to_id("[PAD]"), pad_token="[PAD]")
    return inner.to_str(), names


@pytest.mark.parametrize(("first", "ids"), [(BERTS, (1, 2)), (["[PAD]", "x", "[SEP]", "[CLS]"], (3, 2))])
def test_rows_have_the_special_tokens_of_the_file(first, ids):
    text, names = wordpiece(first)
    tokenizer = Tokenizer(text)
    assert (tokenizer.start, tokenizer.end) == ids
    assert (tokenizer.text, tokenizer.vocabulary) == (text, len(names))
    tokens = tokenizer.encode(["A red circle", "dogs, SLEEPING dogs"], LONG)
    start, end, padding = (names[number] for number in (tokenizer.start, tokenizer.end, PADDING))
    assert [[names[token] for token in row] for row in tokens] == [
        [start, "a", "red", "circle", end, padding, padding, padding, padding],
        [start, "dog", "##s", "[UNK]", "sleep", "##ing", "dog", "##s", end],
    ]
    assert [tokenizer.decode(row) for row in tokens] == ["a red circle", "dogs [UNK] sleeping dogs"]
    assert torch.equal(trimmed(tokens[:1]), tokens[:1, :5])


def test_rows_are_those_of_the_files_own_template():
    text, _ = wordpiece([*BERTS, "x"])
    inner = tokenizers.Tokenizer.from_str(text)
    inner.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    inner.enable_padding(pad_id=0, pad_token="[PAD]")
    texts = ["a red circle", "", "dogs sleeping, a dog"]
    expected = [encoding.ids for encoding in inner.encode_batch(texts)]
    assert Tokenizer(inner.to_str()).encode(texts, LONG).tolist() == expected


def test_a_long_text_keeps_its_end_and_is_counted():
    tokenizer = Tokenizer(wordpiece([*BERTS, "x"])[0])
    tokens, cut = tokenizer.encode_counting(["a dog", "a red dog sleeping"], 5)
    assert cut == 1
    assert tokens[:, 0].tolist() == [tokenizer.start] * 2
    assert tokens[0, 3:].tolist() == [tokenizer.end, PADDING]
    assert tokens[1, 4] == tokenizer.end


def test_a_length_in_the_file_is_ignored():
    with_length, without = (Tokenizer(wordpiece(BERTS, cuts=cuts)[0]) for cuts in (True, False))
    texts = ["a red red red red circle", "dog"]
    assert torch.equal(with_length.encode(texts, LONG), without.encode(texts, LONG))
    assert with_length.encode_counting(texts, 6)[1] == 1


@pytest.mark.parametrize("name", BERTS)
def test_a_caption_that_spells_a_special_token_of_the_file_does_not_end_there(name):
    tokenizer = Tokenizer(wordpiece([*BERTS, "x"])[0])
    spelled, plain = tokenizer.encode([f"a {name} dog{name}", "a dog"], LONG)
    assert spelled.tolist() == plain.tolist()


def test_special_tokens_may_be_in_the_vocabulary_only():
    tokenizer = Tokenizer(wordpiece([*BERTS, "x"], special=[])[0])
    assert (tokenizer.start, tokenizer.end) == (1, 2)
    (row,) = tokenizer.encode(["[SEP]"], LONG).tolist()  # in pieces, so none of them is removed
    assert (len(row), row.count(tokenizer.end)) == (5, 1)


def test_ours_have_start_and_end():
    assert (learned().start, learned().end) == (START, END)


@pytest.mark.parametrize(
    ("first", "got"),
    [
        ([], "none of them"),
        (["[CLS]", "[SEP]"], "[CLS] as 0, [SEP] as 1"),
        (["[PAD]", "<s>", "</s>"], "[PAD] as 0"),
        (["x", *SPECIAL], "<padding> as 1, <start> as 2, <end> as 3"),
    ],
)
def test_a_tokenizer_without_special_tokens_is_refused(first, got):
    assert refused(lambda: Tokenizer(wordpiece(first)[0])) == (
        "a tokenizer must have the special tokens <padding>, <start>, <end> or [PAD], [CLS], [SEP], "
        f"the first of them as 0, got {got}"
    )


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary", [SMALLEST - 1, 0, -5, 300.0, True, "many", None])
def test_a_vocabulary_that_cannot_be_is_refused(vocabulary):
    sentence = refused(lambda: Tokenizer.learned(CAPTIONS, vocabulary))
    assert sentence == f"vocabulary must be a whole number >= 259, since every byte is a token, got {vocabulary}"


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_tokenizer_that_is_broken_is_refused_in_one_sentence(cut):
    sentence = refused(lambda: Tokenizer(learned().text[:cut]))
    assert sentence.startswith("a tokenizer must be JSON as the tokenizers library writes it, got: EOF while parsing ")
    assert "\n" not in sentence


def test_json_that_is_no_tokenizer_is_refused():
    assert refused(lambda: Tokenizer("[]")) == (
        "a tokenizer must be JSON as the tokenizers library writes it, got: "
        "invalid type: sequence, expected struct Tokenizer at line 1 column 2"
    )


def test_a_missing_package_is_one_sentence(monkeypatch):
    text = learned().text
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    sentence = "text needs tokenizers: pip install 'likewise[captions]'"
    assert refused(lambda: Tokenizer(text)) == sentence
    assert refused(lambda: Tokenizer.learned(CAPTIONS)) == sentence


# --- trimmed -------------------------------------------------------------------------------------------


@given(lengths=st.lists(st.integers(2, 9), min_size=1, max_size=6), width=st.integers(9, 12))
def test_trimmed_leaves_out_the_columns_that_only_pad(lengths, width):
    rows = [[START] + [END + 1] * (length - 2) + [END] + [PADDING] * (width - length) for length in lengths]
    columns = [column for column in zip(*rows, strict=True) if any(token != PADDING for token in column)]
    assert trimmed(torch.tensor(rows)).tolist() == torch.tensor(columns).T.tolist()


def test_encoded_tokens_are_trimmed_already():
    tokens = learned().encode(CAPTIONS, LONG)
    assert torch.equal(trimmed(tokens), tokens)
    assert trimmed(tokens[1:2]).shape[1] < tokens.shape[1]
