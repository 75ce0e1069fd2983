"""Encoders and heads by name, ours and others'."""

import sys
import textwrap

import pytest
import torch
from torch import nn

from likewise import encoders
from likewise.encoders.batch_norm import SplitBatchNorm2d
from likewise.encoders.sequence import SEQUENCE_ENCODERS
from likewise.encoders.vit import VisionTransformer


def test_every_name_builds():
    for name in encoders.ENCODERS:
        data = {"features": 7} if name == "mlp" else {"samples": 800} if name in SEQUENCE_ENCODERS else {}
        with torch.device("meta"):
            encoder = encoders.build(name, **data)
        assert isinstance(encoder, nn.Module)
        assert encoder.dim in (128, 192, 256, 384, 512, 2048)


def test_mlp_takes_vectors_and_has_no_batch_statistics():
    encoder = encoders.build("mlp", features=5)
    rows = torch.randn(6, 5)
    assert encoder(rows).shape == (6, encoder.dim)
    torch.testing.assert_close(encoder(rows)[:2], encoder(rows[:2]))
    assert not encoders.has_batch_norm(encoder)


def test_bn_splits_split_every_batch_norm():
    encoder = encoders.build("resnet_tiny", bn_splits=4)
    norms = [part for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)]
    assert all(isinstance(part, SplitBatchNorm2d) and part.splits == 4 for part in norms)
    assert list(encoder.state_dict()) == list(encoders.build("resnet_tiny").state_dict())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A module of the user's in the current directory, which is not on the path, as for an installed command."""
    code = """
        import torch
        from torch import nn

        class Small(nn.Module):
            def __init__(self, channels, size):
                super().__init__()
                self.layers = nn.Sequential(
                    nn.Flatten(), nn.Linear(channels * size * size, 6), nn.BatchNorm1d(6), nn.Dropout()
                )
            def forward(self, images):
                return self.layers(images)

        class Known(nn.Identity):
            dim = 11

        class Nested:
            small = Small

        def fixed():
            return nn.Sequential(nn.Flatten(), nn.LazyLinear(9))

        def extra(*, size, width=4, **others):
            assert not others
            return nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, width))

        def vectors(features):
            return nn.Linear(features, 3)

        class Series(nn.Module):
            def __init__(self, channels, samples):
                super().__init__()
                self.layers = nn.Sequential(nn.Flatten(), nn.Linear(samples * channels, 5))
            def forward(self, sequences):
                return self.layers(sequences)

        def sequence(): return nn.Flatten(2)
        def pair(): return nn.GRU(32, 4)
        def text(): return "no module"
        def narrow(): return nn.Conv2d(5, 2, 1)
        def raises(): raise RuntimeError("my own fault")
        number = 3
    """
    (tmp_path / "my_encoder.py").write_text(textwrap.dedent(code))
    (tmp_path / "my_broken.py").write_text("import a_module_that_is_not_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield
    for name in ("my_encoder", "my_broken"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("name", "dim"), [("Small", 6), ("Known", 11), ("Nested.small", 6), ("fixed", 9), ("extra", 4)]
)
def test_a_module_from_elsewhere_is_an_encoder(name, dim):
    encoder = encoders.build(f"my_encoder:{name}", channels=3, size=8)
    assert encoder.dim == dim
    assert all(part.training for part in encoder.modules())


@pytest.mark.usefixtures("elsewhere")
def test_finding_the_dim_leaves_statistics_and_random_numbers_alone():
    torch.manual_seed(0)
    encoder = encoders.build("my_encoder:Small", size=8, bn_splits=2)
    after = torch.rand(1)
    assert encoder.layers[2].num_batches_tracked == 0
    assert encoder.layers[2].splits == 2
    torch.manual_seed(0)
    nn.Linear(3 * 8 * 8, 6)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.usefixtures("elsewhere")
def test_vectors_from_elsewhere():
    assert encoders.build("my_encoder:vectors", features=4).dim == 3


@pytest.mark.usefixtures("elsewhere")
def test_sequences_from_elsewhere():
    assert encoders.build("my_encoder:Series", samples=40, channels=2).dim == 5


@pytest.mark.usefixtures("elsewhere")
def test_an_error_of_the_users_own_stays_what_it_is():
    with pytest.raises(RuntimeError, match="my own fault"):
        encoders.build("my_encoder:raises")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        encoders.build("my_broken:anything")


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("linear", ["0.weight", "0.bias"]),
        ("mlp", ["0.weight", "0.bias", "2.weight", "2.bias"]),
        ("mlp_bn", ["0.weight", "1.weight", "1.bias", "3.weight", "4.weight", "4.bias"]),
        ("none", []),
    ],
)
def test_heads(kind, layers):
    head = encoders.build_head(kind, 6, 4, hidden=5)
    assert [name for name, _ in head.named_parameters()] == layers
    rows = torch.randn(3, 6)
    assert head(rows).shape == (3, head.dim) == (3, 6 if kind == "none" else 4)
    if kind == "none":
        assert torch.equal(head(rows), rows)
    if kind.startswith("mlp"):
        assert head[0].weight.shape == (5, 6)


def test_a_hidden_layer_is_as_wide_as_the_features_where_not_said():
    assert encoders.build_head("mlp", 6, 4)[0].weight.shape == (6, 6)


ALL = (
    "resnet_tiny, resnet18, resnet34, resnet50, vit_tiny, vit_small, mlp, "
    "mel_16k, mel_8k, audio_16k, audio_16k_small, audio_8k, sensors or module:callable"
)
CASES = {
    f"encoder must be one of {ALL}, got 'resnet81'; did you mean 'resnet18'?": lambda: encoders.build("resnet81"),
    f"encoder must be one of {ALL}, got 'zebra'": lambda: encoders.build("zebra"),
    "stem must be one of auto, imagenet, small, got 'smal'; did you mean 'small'?": lambda: encoders.build(
        "resnet18", stem="smal"
    ),
    "channels must be a whole number >= 1, got 0": lambda: encoders.build("resnet_tiny", channels=0),
    "size must be a whole number >= 1, got 32.0": lambda: encoders.build("resnet_tiny", size=32.0),
    "size must be a multiple of the patch of 4 pixels, got 30": lambda: encoders.build("vit_tiny", size=30),
    "splits must be a whole number >= 1, got 0": lambda: encoders.build("resnet_tiny", bn_splits=0),
    "mlp takes vectors, got images; resnet_tiny and others take those": lambda: encoders.build("mlp"),
    "features must be a whole number >= 1, got 0": lambda: encoders.build("mlp", features=0),
    "resnet18 takes images, got vectors; mlp takes those": lambda: encoders.build("resnet18", features=9),
    "vit_tiny takes images, got sequences; audio_16k and others take those": lambda: encoders.build(
        "vit_tiny", samples=100
    ),
    "sensors takes sequences, got images; resnet_tiny and others take those": lambda: encoders.build("sensors"),
    "context must be one of gru, transformer, got 'gur'; did you mean 'gru'?": lambda: encoders.build(
        "sensors", samples=100, context="gur"
    ),
    "head must be one of linear, mlp, mlp_bn, none, got 'mlp_nb'; did you mean 'mlp_bn'?": lambda: encoders.build_head(
        "mlp_nb", 4, 4
    ),
    "out_dim must be a whole number >= 1, got 0": lambda: encoders.build_head("mlp", 4, 0),
    # what is shown to an encoder
    "images must be of shape (n, 3, h, w), got (2, 1, 8, 8)": lambda: encoders.build("resnet_tiny")(
        torch.randn(2, 1, 8, 8)
    ),
    "images must be of shape (n, 3, 32, 32), got (2, 3, 28, 28)": lambda: VisionTransformer(8, 1, 2, size=32)(
        torch.randn(2, 3, 28, 28)
    ),
    "vectors must be of shape (n, 4), got (2, 5)": lambda: encoders.build("mlp", features=4)(torch.randn(2, 5)),
    # module:callable
    "encoder must be an importable module:callable, got no module 'not_there'": lambda: encoders.build("not_there:x"),
    "encoder must be an importable module:callable, got no module 'my_encoder.deeper'": lambda: encoders.build(
        "my_encoder.deeper:x"
    ),
    "encoder must be an importable module:callable, got ':x'": lambda: encoders.build(":x"),
    "encoder must be an importable module:callable, got '.a:x'": lambda: encoders.build(".a:x"),
    "encoder must be an importable module:callable, got no 'Smal' in 'my_encoder'": lambda: encoders.build(
        "my_encoder:Smal"
    ),
    "encoder must be an importable module:callable, got no '' in 'my_encoder'": lambda: encoders.build("my_encoder:"),
    "my_encoder:number must be callable, got int": lambda: encoders.build("my_encoder:number"),
    "my_encoder:text must return an nn.Module, got str": lambda: encoders.build("my_encoder:text"),
    "my_encoder:sequence must give features of shape (n, d), got shape (2, 3, 1024) for n = 2": lambda: encoders.build(
        "my_encoder:sequence"
    ),
    "my_encoder:pair must give features of shape (n, d), got tuple for n = 2": lambda: encoders.build(
        "my_encoder:pair", features=32
    ),
    "my_encoder:narrow must take a batch of shape (2, 3, 32, 32), got: Given groups=1, weight of size [2, 5, 1, 1], "
    "expected input[2, 3, 32, 32] to have 5 channels, but got 3 channels instead": lambda: encoders.build(
        "my_encoder:narrow"
    ),
}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("sentence", CASES)
def test_errors_to_the_letter(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        CASES[sentence]()
    assert str(error.value) == sentence
