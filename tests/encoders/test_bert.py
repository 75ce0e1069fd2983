"""BERT: the features of transformers and of the formulas, blind to padding, under the names of published files."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from likewise import encoders
from likewise.data.tokens import END, PADDING, START, trimmed
from likewise.encoders.bert import Bert
from likewise.encoders.text import TEXT_ENCODERS, build_text
from tests.encoders.tokens import refused_tokens

VOCABULARY, LENGTH = 20, 9
EXACT = {"rtol": 1e-10, "atol": 1e-10}
POOLINGS = ("mean", "first")
PRESETS = [
    ("bert_tiny", 128, 2, 2, 128),
    ("bert_mini", 256, 4, 4, 256),
    ("minilm", 384, 6, 12, 512),
    ("bert_base", 768, 12, 12, 512),
]
TEXTS = [[START, *words, END] for words in ([5, 6, 7, 8, 9, 10, 11], [5], [], [7, 3, 3, 19], [19, 18])]


def small(**options):
    torch.manual_seed(0)
    sizes = {"dim": 8, "depth": 2, "heads": 2, "length": LENGTH, "vocabulary": VOCABULARY}
    encoder = Bert(**(sizes | options)).double()
    for parameter in encoder.parameters():  # norms and biases too, so that none is left out unseen
        nn.init.normal_(parameter, std=0.5)
    return encoder


def padded(rows, width=0):
    """Texts of any length as one batch (n, width), at least as wide as the longest."""
    width = max(width, *map(len, rows))
    return torch.tensor([row + [PADDING] * (width - len(row)) for row in rows])


# --- presets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dim", "depth", "heads", "length"), PRESETS)
def test_a_preset_has_the_parameters_of_its_sizes(name, dim, depth, heads, length):
    with torch.device("meta"):
        encoder = build_text(name, vocabulary=1000)
    assert (encoder.dim, encoder.length, encoder.pooling) == (dim, length, "mean")
    assert [layer.attention.self.heads for layer in encoder.encoder.layer] == [heads] * depth
    of_layer = (4 + 8) * dim**2 + (4 + 5 + 4) * dim  # attention and feed-forward; their biases, two norms
    count = sum(parameter.numel() for parameter in encoder.parameters())
    assert count == (1000 + length + 2 + 2) * dim + depth * of_layer
    assert TEXT_ENCODERS[name].keywords["length"] == length


def test_the_base_preset_is_googles():
    """109,482,240 parameters of bert-base-uncased include its pooler."""
    with torch.device("meta"):
        encoder = build_text("bert_base", vocabulary=30_522)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 109_482_240 - 768**2 - 768


@pytest.mark.parametrize("name", ["bert_tiny", "bert_mini"])
def test_tokens_become_rows(name):
    encoder = encoders.build_text(name, vocabulary=300, dropout=0.1).eval()
    tokens = torch.randint(END + 1, 300, (3, encoder.length))
    rows = encoder(tokens)
    assert rows.shape == (3, encoder.dim)
    assert rows.isfinite().all()
    torch.testing.assert_close(rows, encoder(tokens.int()))


# --- beside transformers -------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    ("dim", "depth", "heads", "length", "intermediate"),
    [(128, 2, 2, 128, None), (384, 6, 12, 512, None), (64, 3, 4, 40, 100)],
)
def test_a_feature_is_that_of_transformers(tmp_path, pooling, dim, depth, heads, length, intermediate):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=dim,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=intermediate or 4 * dim,
        max_position_embeddings=length,
    )
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    for parameter in theirs.parameters():  # norms and biases too
        parameter.add_(torch.randn_like(parameter), alpha=0.05)
    theirs.save_pretrained(tmp_path)
    ours = Bert(
        dim=dim,
        depth=depth,
        heads=heads,
        length=length,
        vocabulary=1000,
        intermediate=intermediate,
        dropout=0.1,
        pooling=pooling,
    ).eval()
    encoders.load_weights(ours, tmp_path / "model.safetensors")
    tokens = torch.randint(1, 1000, (6, length))
    ends = torch.tensor([length, length - 1, length // 2, 7, 2, 1])
    tokens[torch.arange(length) >= ends[:, None]] = PADDING
    mask = (tokens != PADDING).long()
    rows = theirs(input_ids=tokens, attention_mask=mask).last_hidden_state
    expected = rows[:, 0] if pooling == "first" else (rows * mask[..., None]).sum(dim=1) / ends[:, None]
    difference = (ours(tokens) - expected).abs().max()

    assert difference < 1e-5


# --- from the definition -------------------------------------------------------------------------------


def slow_linear(row, layer):
    return layer.weight @ row + layer.bias


def slow_norm(row, norm):
    mean = row.sum() / len(row)
    variance = ((row - mean) ** 2).sum() / len(row)
    return (row - mean) / (variance + 1e-12) ** 0.5 * norm.weight + norm.bias


def slow_attention(rows, attention):
    """Every row looks at every row, each head at its own part of them."""
    asked, keys, values = (
        [slow_linear(row, layer) for row in rows] for layer in (attention.query, attention.key, attention.value)
    )
    width = len(rows[0]) // attention.heads
    seen = []
    for query in asked:
        parts = []
        for head in range(attention.heads):
            part = slice(head * width, (head + 1) * width)
            scores = [(query[part] @ key[part] / math.sqrt(width)).exp() for key in keys]
            parts.append(sum(score * value[part] for score, value in zip(scores, values, strict=True)) / sum(scores))
        seen.append(torch.cat(parts))
    return seen


def slow_layer(rows, layer):
    seen = slow_attention(rows, layer.attention.self)
    output = layer.attention.output
    rows = [
        slow_norm(row + slow_linear(one, output.dense), output.LayerNorm) for row, one in zip(rows, seen, strict=True)
    ]
    hidden = [slow_linear(row, layer.intermediate.dense) for row in rows]
    hidden = [row * (1 + torch.erf(row / math.sqrt(2))) / 2 for row in hidden]
    output = layer.output
    return [
        slow_norm(row + slow_linear(one, output.dense), output.LayerNorm) for row, one in zip(rows, hidden, strict=True)
    ]


def slow(encoder, tokens):
    """The feature of one text, without padding."""
    tables = encoder.embeddings
    rows = [
        tables.word_embeddings.weight[token]
        + tables.position_embeddings.weight[place]
        + tables.token_type_embeddings.weight[0]
        for place, token in enumerate(tokens)
    ]
    rows = [slow_norm(row, tables.LayerNorm) for row in rows]
    for layer in encoder.encoder.layer:
        rows = slow_layer(rows, layer)
    return rows[0] if encoder.pooling == "first" else sum(rows) / len(rows)


@torch.no_grad()
def test_a_layer_is_the_slow_loop():
    encoder = small(depth=1, intermediate=5)
    rows = torch.randn(3, 6, 8, dtype=torch.double)
    lengths = torch.tensor([6, 4, 1])
    layer = encoder.encoder.layer[0]
    fast = layer(rows, torch.arange(6) < lengths[:, None])
    for one, row, length in zip(fast, rows, lengths, strict=True):
        torch.testing.assert_close(one[:length], torch.stack(slow_layer(list(row[:length]), layer)), **EXACT)


@torch.no_grad()
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_feature_is_the_slow_loops(pooling):
    encoder = small(pooling=pooling)
    expected = torch.stack([slow(encoder, row) for row in TEXTS])
    torch.testing.assert_close(encoder(padded(TEXTS)), expected, **EXACT)


# --- padding -------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    batch=st.lists(st.lists(st.integers(END + 1, VOCABULARY - 1), max_size=LENGTH - 2), min_size=1, max_size=5),
    pooling=st.sampled_from(POOLINGS),
)
def test_batches_trimmed_padded_or_taken_apart_give_the_same(batch, pooling):
    encoder = small(pooling=pooling)
    rows = [[START, *(word for word in row if word != PADDING), END] for row in batch]
    wide = padded(rows, LENGTH)
    expected = torch.cat([encoder(torch.tensor([row])) for row in rows])
    torch.testing.assert_close(encoder(wide), expected, **EXACT)
    torch.testing.assert_close(encoder(trimmed(wide)), expected, **EXACT)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_gradient_reaches_no_padding(pooling):
    encoder = small(pooling=pooling)
    encoder(padded([[START, 5, 6, END]], LENGTH)).square().sum().backward()
    tables = encoder.embeddings
    reached = tables.word_embeddings.weight.grad.abs().sum(dim=1) > 0
    assert reached.nonzero().flatten().tolist() == [START, END, 5, 6]
    assert (tables.position_embeddings.weight.grad.abs().sum(dim=1) > 0).tolist() == [True] * 4 + [False] * 5


def test_a_row_of_padding_alone_is_zeros_and_its_gradient_finite():
    encoder = small()
    rows = encoder(padded([[START, END], []]))
    assert not rows[1].any()
    rows.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@torch.no_grad()
@pytest.mark.parametrize("place", range(5))
def test_every_token_changes_the_feature_of_the_first(place):
    encoder = small(pooling="first")
    row = [START, 5, 6, 7, END]
    one, changed = encoder(torch.tensor([row, [*row[:place], 15, *row[place + 1 :]]]))
    assert (one - changed).abs().max() > 1e-3


@torch.no_grad()
def test_the_order_of_the_words_matters():
    one, other = small(depth=1)(torch.tensor([[START, 5, 6, 7, END], [START, 7, 6, 5, END]]))
    assert (one - other).abs().max() > 1e-3


# --- training ------------------------------------------------------------------------------------------


@torch.no_grad()
def test_dropout_is_only_in_training():
    tokens = padded(TEXTS)
    encoder, without = small(dropout=0.3), small()
    assert not torch.equal(encoder.train()(tokens), encoder(tokens))
    assert torch.equal(encoder.eval()(tokens), encoder(tokens))
    assert torch.equal(encoder(tokens), without.eval()(tokens))
    assert torch.equal(without.train()(tokens), without.eval()(tokens))


@torch.no_grad()
def test_dropout_is_where_berts_is(monkeypatch):
    encoder, shares = small(dropout=0.3), []
    attend = nn.functional.scaled_dot_product_attention

    def watched(*args, dropout_p, **options):
        shares.append(("attention", dropout_p))
        return attend(*args, dropout_p=dropout_p, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", watched)
    for name, part in encoder.named_modules():
        if isinstance(part, nn.Dropout):
            part.register_forward_hook(lambda part, *_, name=name: shares.append((name, part.p)))
    encoder(padded(TEXTS))
    expected = ["embeddings.dropout"]
    for i in range(2):
        layer = f"encoder.layer.{i}"
        expected += ["attention", f"{layer}.attention.output.dropout", f"{layer}.output.dropout"]
    assert shares == [(name, 0.3) for name in expected]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_parameter_learns(pooling):
    encoder = small(dropout=0.1, pooling=pooling)
    (encoder(padded(TEXTS)) ** 3).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # The bias of keys adds the same to all scores of a query, which the softmax takes away.
        if not name.endswith("key.bias"):
            assert parameter.grad.abs().max() > 1e-6, name


@torch.no_grad()
def test_weights_start_small_and_biases_at_zero():
    torch.manual_seed(0)
    for name, parameter in build_text("bert_tiny", vocabulary=4000).named_parameters():
        if name.endswith("LayerNorm.weight"):
            assert (parameter == 1).all(), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert float(parameter.std()) == pytest.approx(0.02, rel=0.1), name


# --- names and files -----------------------------------------------------------------------------------

NAMES = [
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.LayerNorm.weight",
    "embeddings.LayerNorm.bias",
    "encoder.layer.0.attention.self.query.weight",
    "encoder.layer.0.attention.self.query.bias",
    "encoder.layer.0.attention.self.key.weight",
    "encoder.layer.0.attention.self.key.bias",
    "encoder.layer.0.attention.self.value.weight",
    "encoder.layer.0.attention.self.value.bias",
    "encoder.layer.0.attention.output.dense.weight",
    "encoder.layer.0.attention.output.dense.bias",
    "encoder.layer.0.attention.output.LayerNorm.weight",
    "encoder.layer.0.attention.output.LayerNorm.bias",
    "encoder.layer.0.intermediate.dense.weight",
    "encoder.layer.0.intermediate.dense.bias",
    "encoder.layer.0.output.dense.weight",
    "encoder.layer.0.output.dense.bias",
    "encoder.layer.0.output.LayerNorm.weight",
    "encoder.layer.0.output.LayerNorm.bias",
]


def test_names_are_those_of_transformers():
    assert list(small(depth=1).state_dict()) == NAMES


def published(encoder, prefix="", old=False):
    """The weights of an encoder in a file as others write it, with what it has beside them."""
    state = encoder.state_dict()
    if old:
        state = {
            key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): state[key] for key in state
        }
    more = {
        "embeddings.position_ids": torch.arange(LENGTH)[None],
        "embeddings.token_type_ids": torch.zeros(1, LENGTH, dtype=torch.int64),
        "pooler.dense.weight": torch.randn(8, 8),
        "pooler.dense.bias": torch.randn(8),
    }
    heads = {"cls.predictions.bias": torch.randn(VOCABULARY), "cls.seq_relationship.weight": torch.randn(2, 8)}
    return {prefix + key: tensor.clone() for key, tensor in (state | more).items()} | heads


@torch.no_grad()
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("prefix", ["", "bert.", "module.bert.", "model."])
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_published_file_loads(tmp_path, prefix, old, suffix):
    encoder, other = small(), Bert(dim=8, depth=2, heads=2, length=LENGTH, vocabulary=VOCABULARY).double()
    path = tmp_path / f"model{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(published(encoder, prefix, old), path)
    encoders.load_weights(other, path)
    assert torch.equal(other(padded(TEXTS)), encoder(padded(TEXTS)))


@torch.no_grad()
def test_of_more_positions_the_first_are_used(tmp_path):
    long, short = small(), small(length=4)
    save_file(long.state_dict(), tmp_path / "model.safetensors")
    encoders.load_weights(short, tmp_path / "model.safetensors")
    tokens = padded([row for row in TEXTS if len(row) <= 4])
    assert torch.equal(short(tokens), long(tokens))


def refusal(make):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make()
    return str(error.value)


def test_files_that_do_not_fit_are_refused_in_one_sentence(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(small(depth=1).state_dict(), path)

    def loading(**options):
        encoder = small(depth=1, **options) if "depth" not in options else small(**options)
        before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
        sentence = refusal(lambda: encoders.load_weights(encoder, path))
        assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
        return sentence.removeprefix(f"{path} must ")

    assert loading(vocabulary=30) == (
        "have embeddings of 30 tokens, got 20: "
        "give the tokenizer.json that belongs to it with --set text.tokenizer=FILE"
    )
    assert loading(length=12) == (
        "have weights of the encoder's shapes, got embeddings.position_embeddings.weight (9, 8) for (12, 8)"
    )
    assert loading(depth=2) == (
        "have all weights of the encoder, got none for encoder.layer.1.attention.self.query.weight, "
        "encoder.layer.1.attention.self.query.bias, encoder.layer.1.attention.self.key.weight and 13 more"
    )
    save_file(small(depth=2).state_dict(), path)
    assert loading() == (
        "be weights of this encoder, got more than it has: encoder.layer.1.attention.output.LayerNorm.bias, "
        "encoder.layer.1.attention.output.LayerNorm.weight, encoder.layer.1.attention.output.dense.bias and 13 more"
    )


# --- errors --------------------------------------------------------------------------------------------

CASES = {
    **refused_tokens(small, LENGTH),
    "dropout must be a share from 0 to below 1, got 1": lambda: small(dropout=1.0),
    "dropout must be a share from 0 to below 1, got nan": lambda: small(dropout=math.nan),
    "vocabulary must be a whole number >= 1, got 0": lambda: build_text("bert_tiny", 0),
    "depth must be a whole number >= 1, got 1.0": lambda: small(depth=1.0),
    "intermediate must be a whole number >= 1, got 0": lambda: small(intermediate=0),
    "dim must be a multiple of the number of heads, 3, got 8": lambda: small(heads=3),
    "pooling must be one of mean, first, got 'max'": lambda: small(pooling="max"),
}


@pytest.mark.parametrize("sentence", CASES)
def test_errors_to_the_letter(sentence):
    assert refusal(CASES[sentence]) == sentence
