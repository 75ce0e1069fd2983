"""Encoders of text: read at the end, blind to what follows it, and each part from its definition."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise import encoders
from likewise.data.tokens import END, PADDING, START, trimmed
from likewise.encoders.text import TEXT_ENCODERS, TextTransformer, build_text
from tests.encoders.tokens import refused_tokens

VOCABULARY, LENGTH = 20, 9
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def small(dropout=0.0, depth=2):
    torch.manual_seed(0)
    sizes = {"dim": 8, "depth": depth, "heads": 2, "length": LENGTH, "vocabulary": VOCABULARY}
    encoder = TextTransformer(**sizes, dropout=dropout).double()
    for parameter in encoder.parameters():  # norms and biases too, so that none is left out unseen
        torch.nn.init.normal_(parameter, std=0.5)
    return encoder


def text(*words):
    return [START, *words, END]


def padded(rows, width=0):
    """Texts of any length as one batch (n, width), at least as wide as the longest."""
    width = max(width, *map(len, rows))
    return torch.tensor([row + [PADDING] * (width - len(row)) for row in rows])


TEXTS = [text(5, 6, 7, 8, 9, 10, 11), text(5), text(), text(7, 3, 3, 19), text(19, 18)]
words = st.lists(st.integers(END + 1, VOCABULARY - 1), max_size=LENGTH - 2)


# --- presets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dim", "depth", "length"),
    [("text_tiny", 128, 2, 32), ("text_small", 256, 4, 48), ("text_base", 512, 12, 77)],
)
def test_a_preset_has_the_parameters_of_its_sizes(name, dim, depth, length):
    with torch.device("meta"):
        encoder = build_text(name, vocabulary=1000)
    assert (encoder.dim, encoder.length, len(encoder.blocks)) == (dim, length, depth)
    of_block = (4 + 8) * dim**2 + (4 + 5 + 4) * dim  # attention and feed-forward; their biases, two norms
    count = sum(parameter.numel() for parameter in encoder.parameters())
    assert count == (1000 + length) * dim + depth * of_block + 2 * dim


def test_the_base_preset_is_clips():
    """63,428,097 of ViT-B/32 are the text's: without the projection of 512 × 512 and the temperature."""
    with torch.device("meta"):
        encoder = build_text("text_base", vocabulary=49_408)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 63_428_097 - 512**2 - 1
    assert encoder.blocks[0].attn.heads == 8


@pytest.mark.parametrize("name", list(TEXT_ENCODERS)[:2])
def test_tokens_become_rows(name):
    encoder = encoders.build_text(name, vocabulary=300)
    tokens = torch.randint(END + 1, 300, (3, encoder.length))
    tokens[:, -1] = END
    rows = encoder(tokens)
    assert rows.shape == (3, encoder.dim)
    assert rows.isfinite().all()
    torch.testing.assert_close(rows, encoder(tokens.int()))


# --- from the definition -------------------------------------------------------------------------------


def slow_norm(row, norm):
    mean = row.sum() / len(row)
    variance = ((row - mean) ** 2).sum() / len(row)
    return (row - mean) / (variance + 1e-6) ** 0.5 * norm.weight + norm.bias


def slow_attention(rows, attention):
    """Row i looks at rows 0 to i, each head at its own part of them."""
    found = []
    asked = [(attention.qkv.weight @ row + attention.qkv.bias).chunk(3) for row in rows]
    width = len(rows[0]) // attention.heads
    for i in range(len(rows)):
        parts = []
        for head in range(attention.heads):
            part = slice(head * width, (head + 1) * width)
            scores = [(asked[i][0][part] @ asked[j][1][part] / math.sqrt(width)).exp() for j in range(i + 1)]
            parts.append(sum(scores[j] * asked[j][2][part] for j in range(i + 1)) / sum(scores))
        found.append(attention.proj.weight @ torch.cat(parts) + attention.proj.bias)
    return found


def slow_feed_forward(row, layer):
    hidden = layer.fc1.weight @ row + layer.fc1.bias
    hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    return layer.fc2.weight @ hidden + layer.fc2.bias


def slow(encoder, row):
    """The feature of one text, without padding."""
    rows = [encoder.token_embed.weight[token] + encoder.pos_embed[place] for place, token in enumerate(row)]
    for block in encoder.blocks:
        seen = slow_attention([slow_norm(one, block.norm1) for one in rows], block.attn)
        rows = [one + other for one, other in zip(rows, seen, strict=True)]
        rows = [one + slow_feed_forward(slow_norm(one, block.norm2), block.mlp) for one in rows]
    return slow_norm(rows[-1], encoder.norm)


@torch.no_grad()
def test_a_feature_is_the_slow_loops_at_the_end_of_the_text():
    encoder = small()
    expected = torch.stack([slow(encoder, row) for row in TEXTS])
    torch.testing.assert_close(encoder(padded(TEXTS)), expected, **EXACT)


# --- what is seen, and what is not ---------------------------------------------------------------------


@settings(max_examples=50)
@given(behind=st.lists(st.integers(0, VOCABULARY - 1), min_size=5, max_size=5))
def test_what_stands_behind_the_end_changes_nothing(behind):
    """Not even a further end or beginning."""
    encoder = small()
    assert torch.equal(encoder(torch.tensor([text(5, 6) + behind])), encoder(padded([text(5, 6)], LENGTH)))


@torch.no_grad()
@pytest.mark.parametrize("place", range(6))
def test_every_token_up_to_the_end_changes_the_feature(place):
    encoder = small()
    row = text(5, 6, 7, 8, 9)
    other = [*row[:place], 15, *row[place + 1 :]]
    one, changed = encoder(padded([row, other]))
    assert (one - changed).abs().max() > 1e-3


@torch.no_grad()
def test_the_order_of_the_words_matters():
    """One block: without positions, the end would see the same words in any order."""
    one, other = small(depth=1)(padded([text(5, 6, 7), text(7, 6, 5)]))
    assert (one - other).abs().max() > 1e-3


def test_the_gradient_reaches_no_token_behind_the_end():
    encoder = small()
    encoder(padded([text(5, 6)], LENGTH)).square().sum().backward()
    reached = encoder.token_embed.weight.grad.abs().sum(dim=1) > 0
    assert reached.nonzero().flatten().tolist() == [START, END, 5, 6]
    assert (encoder.pos_embed.grad.abs().sum(dim=1) > 0).tolist() == [True] * 4 + [False] * 5


@settings(max_examples=50)
@given(batch=st.lists(words, min_size=1, max_size=5))
def test_batches_trimmed_padded_or_taken_apart_give_the_same(batch):
    encoder = small()
    rows = [text(*row) for row in batch]
    wide = padded(rows, LENGTH)
    expected = torch.cat([encoder(torch.tensor([row])) for row in rows])
    torch.testing.assert_close(encoder(wide), expected, **EXACT)
    torch.testing.assert_close(encoder(trimmed(wide)), expected, **EXACT)


# --- training ------------------------------------------------------------------------------------------


@torch.no_grad()
def test_dropout_is_only_in_training():
    tokens = padded(TEXTS)
    encoder, without = small(dropout=0.3), small()
    assert not torch.equal(encoder.train()(tokens), encoder(tokens))
    assert torch.equal(encoder.eval()(tokens), without.eval()(tokens))
    assert torch.equal(without.train()(tokens), without.eval()(tokens))


@torch.no_grad()
def test_dropout_is_at_the_tokens_and_behind_attention_and_feed_forward_of_every_block():
    encoder = small(dropout=0.3)
    shares = {name: part.p for name, part in encoder.named_modules() if isinstance(part, torch.nn.Dropout)}
    assert shares == {"dropout": 0.3, "blocks.0.dropout": 0.3, "blocks.1.dropout": 0.3}
    seen = []
    for name in shares:
        encoder.get_submodule(name).register_forward_hook(lambda *_, name=name: seen.append(name))
    encoder(padded(TEXTS))
    assert seen == ["dropout", *["blocks.0.dropout"] * 2, *["blocks.1.dropout"] * 2]


def test_every_parameter_learns():
    encoder = small(dropout=0.1)
    (encoder(padded(TEXTS)) ** 3).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_weights_start_small_and_biases_at_zero():
    torch.manual_seed(0)
    encoder = build_text("text_tiny", vocabulary=4000)
    assert float(encoder.token_embed.weight.std()) == pytest.approx(0.02, rel=0.02)
    assert float(encoder.pos_embed.std()) == pytest.approx(0.01, rel=0.05)
    for name, parameter in encoder.blocks.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" not in name:
            assert float(parameter.std()) == pytest.approx(128**-0.5, rel=0.05), name


# --- errors --------------------------------------------------------------------------------------------

NAMES = "text_tiny, text_small, text_base, bert_tiny, bert_mini, minilm, bert_base"
CASES = {
    **refused_tokens(small, LENGTH),
    "dropout must be a share from 0 to below 1, got 1": lambda: small(dropout=1.0),
    "dropout must be a share from 0 to below 1, got -0.1": lambda: small(dropout=-0.1),
    "dropout must be a share from 0 to below 1, got nan": lambda: small(dropout=math.nan),
    "vocabulary must be a whole number >= 1, got 0": lambda: build_text("text_tiny", 0),
    "vocabulary must be a whole number >= 1, got True": lambda: build_text("text_tiny", True),
    "vocabulary must be a whole number >= 1, got 300.0": lambda: build_text("text_tiny", 300.0),
    f"text encoder must be one of {NAMES}, got 'text_smal'; did you mean 'text_small'?": lambda: build_text(
        "text_smal", 300
    ),
    f"text encoder must be one of {NAMES}, got 'gpt'": lambda: build_text("gpt", 300),
}


@pytest.mark.parametrize("sentence", CASES)
def test_errors_to_the_letter(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        CASES[sentence]()
    assert str(error.value) == sentence
