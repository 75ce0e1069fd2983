"""Encoders of sequences: what a frame may see, what padding may not do, and each part from its definition."""

import math
from functools import partial

import pytest
import torch

from likewise import encoders
from likewise.encoders.frames import Frames
from likewise.encoders.heads import StepsAhead
from likewise.encoders.sequence import SEQUENCE_ENCODERS, CausalTransformer, SequenceEncoder, positions
from likewise.encoders.vit import Attention

CONTEXTS = ["gru", "transformer"]
STRIDES, HOP = (3, 2), 6
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small(context="gru", channels=2):
    torch.manual_seed(0)
    frames = partial(Frames, strides=STRIDES, width=8)
    return SequenceEncoder(frames=frames, dim=12, channels=channels, context=context).double()


def padded(sequences, length):
    """Sequences (t, c) of any length as one batch (n, length, c), NaN behind the end of each."""
    batch = torch.full((len(sequences), length, sequences[0].shape[1]), math.nan, dtype=torch.float64)
    for row, sequence in zip(batch, sequences, strict=True):
        row[: len(sequence)] = sequence
    return batch


# --- frames ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hop"), [("audio_16k", 160), ("audio_16k_small", 160), ("audio_8k", 80)])
def test_an_audio_encoder_has_a_frame_every_ten_milliseconds(name, hop):
    assert encoders.build(name, samples=1600, channels=1).hop == hop


def test_an_encoder_of_sensors_has_a_frame_every_four_samples():
    assert encoders.build("sensors", samples=100, channels=6).hop == 4


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", SEQUENCE_ENCODERS)
def test_every_preset_makes_rows_of_sequences(name, context):
    encoder = encoders.build(name, samples=400, channels=3, context=context)
    sequences = torch.randn(2, 400, 3)
    assert encoder.contexts(sequences).shape == (2, 400 // encoder.hop, encoder.dim)
    assert encoder(sequences).shape == (2, encoder.dim)


@pytest.mark.parametrize("t", [1, 2, 5, 6, 7, 11, 12, 13, 17, 18, 40])
def test_there_is_a_frame_for_every_whole_hop_and_one_at_least(t):
    encoder = small()
    sequences = randn(3, t, 2)
    count = max(1, t // HOP)
    assert encoder.frames(sequences).shape == (3, count, 8)
    assert encoder.contexts(sequences).shape == (3, count, 12)
    assert encoder.frames.there(sequences).tolist() == [[True] * count] * 3


def loop_of_convolution(rows, weight, bias, stride):
    """Output j of a causal convolution: Σ over its stride and the one before of weight · sample; 0 before all."""
    outputs = []
    for j in range(len(rows) // stride):
        total = bias.clone()
        for step in range(2 * stride):
            time = (j - 1) * stride + step
            if time >= 0:
                total = total + weight[:, :, step] @ rows[time]
        outputs.append(total)
    return torch.stack(outputs)


def loop_of_norm(row, weight, bias):
    mean = row.sum() / len(row)
    variance = ((row - mean) ** 2).sum() / len(row)
    return (row - mean) / (variance + 1e-5) ** 0.5 * weight + bias


@pytest.mark.parametrize("strides", [(1,), (3,), (3, 2), (2, 1, 4)])
@pytest.mark.parametrize("t", [8, 19, 24])
def test_frames_are_the_loop_of_convolution_norm_and_relu(strides, t):
    torch.manual_seed(1)
    frames = Frames(2, strides, 5).double()
    for norm in frames.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    sequences = randn(2, t, 2)
    expected = []
    for rows in sequences:
        for convolution, norm, stride in zip(frames.convolutions, frames.norms, strides, strict=True):
            rows = loop_of_convolution(rows, convolution.weight, convolution.bias, stride)
            rows = torch.stack([loop_of_norm(row, norm.weight, norm.bias).clamp(min=0) for row in rows])
        expected.append(rows)
    torch.testing.assert_close(frames(sequences), torch.stack(expected), **EXACT)


# --- nothing of the future -------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_no_frame_and_no_context_sees_what_comes_after_it(context, training):
    """Other samples from (i + 1) · hop on, in every sequence: up to i all is the same, to the bit."""
    encoder = small(context).train(training)
    before = randn(3, 7 * HOP + 4, 2)
    for i in range(7):
        after = before.clone()
        after[:, (i + 1) * HOP :] = 5 * randn(*after[:, (i + 1) * HOP :].shape, seed=i + 1)
        for part in (encoder.frames, encoder.contexts):
            old, new = part(before), part(after)
            assert torch.equal(old[:, : i + 1], new[:, : i + 1])
            assert i == 6 or (old[:, i + 1 :] != new[:, i + 1 :]).any(dim=(0, 2)).all()


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_frame_sees_its_own_last_sample_and_a_context_the_first_of_all(context):
    """The other side of causality: what may be seen is seen."""
    encoder = small(context)
    before = randn(1, 5 * HOP, 2)
    last, first = before.clone(), before.clone()
    last[0, 3 * HOP - 1] += 1
    assert (encoder.frames(last) != encoder.frames(before)).any(dim=2)[0, :3].tolist() == [False, False, True]
    first[0, 0] += 1
    assert (encoder.contexts(first) != encoder.contexts(before)).any(dim=2).all()


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_gradient_of_a_context_reaches_no_later_sample(context):
    encoder = small(context)
    sequences = randn(1, 6 * HOP, 2).requires_grad_()
    for i, row in enumerate(encoder.contexts(sequences)[0]):
        (gradient,) = torch.autograd.grad(row.square().sum(), sequences, retain_graph=True)
        reached = gradient[0].abs().sum(dim=1).view(6, HOP).sum(dim=1) > 0
        assert reached.tolist() == [frame <= i for frame in range(6)]


def test_causal_attention_is_its_formula():
    torch.manual_seed(0)
    attention = Attention(8, 2, causal=True).double()
    tokens = randn(2, 5, 8)
    query, key, value = attention.qkv(tokens).chunk(3, dim=2)
    rows = torch.zeros(2, 5, 8, dtype=torch.float64)
    for n in range(2):
        for h in (slice(0, 4), slice(4, 8)):
            for i in range(5):
                scores = torch.stack([query[n, i, h] @ key[n, j, h] / 2 for j in range(i + 1)])  # √4 = 2
                weights = scores.exp() / scores.exp().sum()
                rows[n, i, h] = sum(weights[j] * value[n, j, h] for j in range(i + 1))
    torch.testing.assert_close(attention(tokens), attention.proj(rows), **EXACT)


def test_a_transformer_knows_the_order_of_its_frames():
    """Of one block and without positions, the last context would be that of the earlier frames in any order."""
    torch.manual_seed(0)
    context = CausalTransformer(8, 12, depth=1).double()
    frames = randn(1, 5, 8)
    swapped = frames[:, [2, 1, 0, 3, 4]]
    assert (context(frames)[:, -1] - context(swapped)[:, -1]).abs().max() > 1e-4


def test_positions_are_sines_and_cosines_of_falling_pitch():
    found = positions(torch.zeros(1, 300, 6, dtype=torch.float64))
    for place in (0, 1, 7, 299):
        for pair in range(3):
            angle = place / 10_000 ** (2 * pair / 6)
            assert found[place, 2 * pair : 2 * pair + 2].tolist() == pytest.approx(
                [math.sin(angle), math.cos(angle)], abs=1e-4
            )


# --- padding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_padded_sequence_gives_what_it_gives_alone(context, training):
    encoder = small(context).train(training)
    lengths = [5 * HOP, 3 * HOP, 2 * HOP + 5, HOP - 1, 1]
    alone = [randn(length, 2, seed=length) for length in lengths]
    batch = padded(alone, 5 * HOP + 3)
    contexts, features, there = encoder.contexts(batch), encoder(batch), encoder.frames.there(batch)
    assert there.sum(dim=1).tolist() == [5, 3, 2, 1, 1]
    for row, sequence in enumerate(alone):
        expected = encoder.contexts(sequence[None])[0]
        assert there[row].tolist() == [i < len(expected) for i in range(5)]
        torch.testing.assert_close(contexts[row, : len(expected)], expected, **EXACT)
        torch.testing.assert_close(features[row], encoder(sequence[None])[0], **EXACT)


@pytest.mark.parametrize("context", CONTEXTS)
def test_what_stands_behind_the_end_is_irrelevant(context):
    """NaN marks the end; anything else in the place of the padding changes no frame that was there."""
    encoder = small(context)
    batch = padded([randn(3 * HOP, 2), randn(6 * HOP, 2, seed=1)], 6 * HOP)
    filled = batch.nan_to_num(nan=1000.0)
    assert torch.equal(encoder.frames(batch)[0, :3], encoder.frames(filled)[0, :3])
    assert torch.equal(encoder.contexts(batch)[0, :3], encoder.contexts(filled)[0, :3])
    assert encoder.contexts(batch).isfinite().all()


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_feature_is_the_mean_of_the_contexts_that_are_there(context):
    encoder = small(context)
    batch = padded([randn(3 * HOP + 2, 2), randn(7 * HOP, 2, seed=1), randn(2, 2, seed=2)], 7 * HOP)
    contexts = encoder.contexts(batch)
    expected = []
    for row, count in enumerate((3, 7, 1)):
        total = torch.zeros(12, dtype=torch.float64)
        for i in range(count):
            total = total + contexts[row, i]
        expected.append(total / count)
    torch.testing.assert_close(encoder(batch), torch.stack(expected), **EXACT)


def test_features_come_in_the_dtype_of_the_encoder():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert small().to(dtype)(torch.randn(2, 20, 2, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("context", CONTEXTS)
def test_gradients_of_a_padded_batch_are_finite_and_reach_every_parameter(context):
    encoder = small(context)
    encoder(padded([randn(1, 2), randn(4 * HOP, 2, seed=1)], 4 * HOP)).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


# --- steps ahead -----------------------------------------------------------------------------------


def test_steps_ahead_are_one_matrix_a_step():
    torch.manual_seed(0)
    head = StepsAhead(5, 3, horizon=4).double()
    contexts = randn(2, 6, 5)
    expected = head(contexts)
    assert expected.shape == (2, 6, 4, 3)
    assert [tuple(p.shape) for p in head.parameters()] == [(12, 5)]
    for k, matrix in enumerate(head.steps.weight.split(3)):  # W_1, W_2, …
        for n in range(2):
            for t in range(6):
                torch.testing.assert_close(expected[n, t, k], matrix @ contexts[n, t], **EXACT)


# --- errors ----------------------------------------------------------------------------------------

CASES = {
    "sequences must be of shape (n, t, 2), got (3, 20)": lambda: small()(torch.zeros(3, 20).double()),
    "sequences must be of shape (n, t, 2), got (3, 2, 20)": lambda: small()(torch.zeros(3, 2, 20).double()),
    "sequences must be of shape (n, t, 2), got (3, 0, 2)": lambda: small()(torch.zeros(3, 0, 2).double()),
    "sequences must be of shape (n, t, 1), got (3, 20, 2)": lambda: small(channels=1).contexts(torch.zeros(3, 20, 2)),
    "channels must be a whole number >= 1, got 0": lambda: small(channels=0),
    "context must be one of gru, transformer, got 'transforme'; did you mean 'transformer'?": lambda: small(
        "transforme"
    ),
    "horizon must be a whole number >= 1, got 0": lambda: StepsAhead(5, 3, horizon=0),
}


@pytest.mark.parametrize("sentence", CASES)
def test_errors_to_the_letter(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        CASES[sentence]()
    assert str(error.value) == sentence
