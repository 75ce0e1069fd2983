"""`export`: files that give the encoder's own features without likewise, what stands beside them, and refusals."""

import json
import re
import shutil
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import likewise
from likewise import data, encoders
from likewise.cli import app
from likewise.commands.export import CARD, ExportError, export
from likewise.commands.model_card import OLD_MARKS
from likewise.data import DataError
from likewise.locks import only_writer
from likewise.modalities import MODALITIES
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe
from likewise.training.encoder import Encoder

ENDINGS = {"safetensors": "safetensors", "onnx": "onnx", "torchscript": "pt"}


def command(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """CLIP on pictures with captions, one step."""
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    return likewise.train("shapes", steps=1, batch_size=32, out=folder, progress=False)


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """CPC on sounds, one step."""
    folder = tmp_path_factory.mktemp("runs") / "sounds"
    return likewise.train("sounds", steps=1, batch_size=16, out=folder, progress=False)


def made(name, *, modality="image", channels=3, size=32, **settings):
    """An encoder that was not trained, whose norms are not at their start."""
    kind = "sequence" if modality in ("audio", "series") else modality
    preset = {"image": "simclr", "vector": "vector", "sequence": "sequence"}[kind]
    values = {"method": "simclr", "encoder.name": name, "pairs.preset": preset} | settings
    recipe = Recipe().with_values(values)
    torch.manual_seed(0)
    about = {"modality": modality, "kind": kind, "channels": channels, "size": size, "stored": 0, "rate": 0}
    backbone = MODALITIES[modality].build(recipe, about)
    head = PAIRS[recipe.pairs.kind].build_head(recipe, backbone)
    for part in backbone.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    width = size if kind == "vector" else channels
    mean, std = ([0.5, -3.0, 100.0] * width)[:width], ([1.0, 0.1, 20.0] * width)[:width]
    about |= {"fingerprint": "f" * 64, "mean": mean, "std": std}
    return Encoder(backbone, head, recipe, about).eval()


def network_of(path):
    """The file as a function of arrays, by what others would use."""
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        return lambda items: session.run(None, {given.name: items})[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loaded = torch.jit.load(path)
    return lambda items: loaded(torch.from_numpy(items)).detach().numpy()


def close(found, expected):
    return found.shape == expected.shape and np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def beside(path):
    return json.loads(Path(f"{path}.json").read_text())


# What the files give.


@pytest.mark.parametrize("format", ["onnx", "torchscript"])
def test_pixels_of_0_to_1_give_the_features_of_embed_in_any_batch(run, here, format):  # noqa: A002
    result = command(run.folder, "--out", f"new/folder/digits.{ENDINGS[format]}", "--format", format)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    *files, checked = result.stdout.splitlines()
    out = here / "new" / "folder" / f"digits.{ENDINGS[format]}"
    assert [here / name for name in files] == [out, Path(f"{out}.json"), out.with_name(CARD)]
    assert sorted(out.parent.iterdir()) == sorted(here / name for name in files)
    assert re.fullmatch(
        r"checked: the exported file gives the encoder's outputs to \d\.\de-\d\d, in batches of 1, 3, 8", checked
    )
    expected = run.encoder.embed("digits", progress=False).vectors
    pixels = data.open("digits").array.astype(np.float32) / 255
    network = network_of(out)
    for rows in (slice(0, 1), slice(1, 3), slice(3, 103)):
        assert close(network(pixels[rows]), expected[rows])


def test_weights_load_by_their_names_and_need_the_normalising_that_stands_beside(run, here):
    found = export(run.folder, "digits.safetensors")
    assert found.format == "safetensors"
    assert found.difference < 1e-4
    about = beside("digits.safetensors")
    network = encoders.build("resnet_tiny", channels=1, size=8).eval()
    network.load_state_dict(load_file("digits.safetensors"))
    pixels = torch.from_numpy(data.open("digits").array[:20] / np.float32(255))
    with torch.no_grad():
        features = network((pixels - about["mean"][0]) / about["std"][0]).numpy()
    assert close(features, run.encoder.embed("digits", progress=False).vectors[:20])


@pytest.mark.parametrize("format", ENDINGS)
def test_everything_to_be_known_stands_beside_and_inside(run, here, format):  # noqa: A002
    out = here / f"digits.{ENDINGS[format]}"
    export(run.folder, out)
    about = beside(out)
    expected = {
        "likewise": likewise.__version__,
        "format": format,
        "kind": "image",
        "encoder": "resnet_tiny",
        "stem": "small",
        "layer": "backbone",
        "channels": 1,
        "size": 8,
        "mean": [0.5],
        "std": [0.5],
        "normalised": "before" if format == "safetensors" else "inside",
        "shape": ["n", 1, 8, 8],
        "features": 256,
        "data": run.encoder.about["fingerprint"],
        "weights": run.encoder.fingerprint("backbone"),
    }
    assert about.items() >= expected.items()
    assert about["resize"].startswith("largest centred square")
    assert len(about["recipe"]) == 64
    if format == "safetensors":
        with safetensors.safe_open(out, framework="pt") as file:
            inside = file.metadata()["preprocessing"]
    elif format == "onnx":
        import onnx

        inside = {part.key: part.value for part in onnx.load(out).metadata_props}["preprocessing"]
    else:
        kept = {"preprocessing.json": ""}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.load(out, _extra_files=kept)
        inside = kept["preprocessing.json"]
    assert json.loads(inside) == about


def test_torchscript_needs_torch_alone(run, here):
    export(run.folder, "digits.ts")
    np.save("pixels.npy", data.open("digits").array[:5].astype(np.float32) / 255)
    code = """
import sys
sys.modules["likewise"] = None
import numpy, torch
network = torch.jit.load("digits.ts")
numpy.save("features.npy", network(torch.from_numpy(numpy.load("pixels.npy"))).detach().numpy())
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert close(np.load("features.npy"), run.encoder.embed("digits", progress=False).vectors[:5])


NETWORKS = {
    "vit_tiny": {"size": 16},
    "resnet18": {"channels": 1, "size": 16, "encoder.stem": "imagenet"},
    "mlp": {"modality": "vector", "channels": 1, "size": 5},
    "sensors": {"modality": "series", "size": 32},
    "sensors, transformer": {"modality": "series", "size": 32, "encoder.context": "transformer"},
}


@pytest.mark.parametrize("format", ["onnx", "torchscript"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_kind_of_encoder_takes_items_as_they_are(here, name, format):  # noqa: A002
    encoder = made(name.split(",")[0], **NETWORKS[name])
    encoder.train()
    out = here / f"network.{ENDINGS[format]}"
    export(encoder, out)
    assert encoder.training
    assert not any("Free" in type(part).__name__ for part in encoder.modules()), "what is exported is a copy"
    network, about, rng = network_of(out), beside(out), np.random.default_rng(0)
    for n, t in ((1, 32), (2, 100), (7, 1), (5, 3)):
        shape = [{"n": n, "t": t}.get(axis, axis) for axis in about["shape"]]
        if about["kind"] == "image":
            pixels = torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))
            items, prepared = pixels.numpy().astype(np.float32) / 255, encoder.augmentation.plain(pixels)
        else:
            items = rng.standard_normal(shape).astype(np.float32)
            if about["kind"] == "sequence" and n > 1:
                items[1, t // 2 + 1 :] = np.nan  # ends before the others
            prepared = encoder.augmentation.plain(torch.from_numpy(items))
        with torch.no_grad():
            assert close(network(items), encoder.eval()(prepared).numpy()), (n, t)


@pytest.mark.parametrize("format", ["onnx", "torchscript"])
def test_sounds_of_any_length(sounds, here, format):  # noqa: A002
    out = here / f"sounds.{ENDINGS[format]}"
    export(sounds.folder, out)
    about, items, network = beside(out), data.open("sounds"), network_of(out)
    assert about["shape"] == ["n", "t", 1]
    assert about["rate"] == items.rate
    expected = sounds.encoder.embed("sounds", progress=False).vectors
    for item in (0, 300, 599):
        samples = items.windows(np.array([item]), np.array([0]), int(items.lengths[item]))
        assert close(network(samples), expected[item : item + 1])


@pytest.mark.parametrize("format", ENDINGS)
def test_images_and_words_are_two_files_of_one_space(shapes, here, format):  # noqa: A002
    out = here / f"shapes.{ENDINGS[format]}"
    found = export(shapes.folder, out)
    text = here / f"shapes.text.{ENDINGS[format]}"
    names = [out, text, "tokenizer.json", f"{out.name}.json", f"{text.name}.json", CARD]
    assert found.files == tuple(here / name for name in names)
    assert sorted(here.iterdir()) == sorted(found.files)
    assert (here / "tokenizer.json").read_text() == (shapes.folder / "tokenizer.json").read_text()
    assert beside(out)["layer"] == beside(text)["layer"] == "head"
    encoder, items = shapes.encoder, data.open("shapes")
    sentences = ["a large red star on white", "ring", "a small blue circle left of nothing at all"]
    tokens = encoder.tokenizer.encode(sentences, encoder.length)
    if format == "safetensors":
        weights = load_file(text)
        assert "head.0.weight" in weights
        assert {name for name in weights if not name.startswith("head.")} == set(encoder.text.state_dict())
        return
    expected = encoder.embed("shapes", progress=False).vectors
    assert close(network_of(out)(items.array[:4].astype(np.float32) / 255), expected[:4])
    assert close(network_of(text)(tokens.numpy()), encoder.embed_text(sentences))
    assert close(network_of(text)(tokens[1:2, :7].numpy()), encoder.embed_text(sentences[1:2]))


def test_another_layer(run, shapes, here):
    export(run.folder, "head.onnx", layer="head")
    pixels = data.open("digits").array[:5].astype(np.float32) / 255
    expected = run.encoder.embed("digits", layer="head", progress=False).vectors[:5]
    assert close(network_of(here / "head.onnx")(pixels), expected)
    export(run.folder, "head.safetensors", layer="head")
    again = encoders.build("resnet_tiny", channels=1, size=8)
    encoders.load_weights(again, "head.safetensors")  # which leaves heads alone
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in run.encoder.state_dict().items())
    found = export(shapes.folder, "alone/image.onnx", layer="backbone")
    assert [path.name for path in found.files] == ["image.onnx", "image.onnx.json", CARD], "words need the head"


# Names and shapes elsewhere.


def torchvision_resnet18():
    """Names and shapes of torchvision's state dict, `fc` left out."""

    def norm(name, width):
        parts = ("weight", "bias", "running_mean", "running_var")
        return {f"{name}.{part}": (width,) for part in parts} | {f"{name}.num_batches_tracked": ()}

    found = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    before = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            found |= {f"{at}.conv1.weight": (width, before, 3, 3)} | norm(f"{at}.bn1", width)
            found |= {f"{at}.conv2.weight": (width, width, 3, 3)} | norm(f"{at}.bn2", width)
            if before != width:
                found |= {f"{at}.downsample.0.weight": (width, before, 1, 1)} | norm(f"{at}.downsample.1", width)
            before = width
    return found


def timm_vit_tiny(size, patch):
    """Names and shapes of timm's state dict, `head` left out."""
    d = 192
    found = {"cls_token": (1, 1, d), "pos_embed": (1, 1 + (size // patch) ** 2, d)}
    found |= {"patch_embed.proj.weight": (d, 3, patch, patch), "patch_embed.proj.bias": (d,)}
    linear = {"attn.qkv": (3 * d, d), "attn.proj": (d, d), "mlp.fc1": (4 * d, d), "mlp.fc2": (d, 4 * d)}
    for block in range(12):
        for norm in ("norm1", "norm2"):
            found |= {f"blocks.{block}.{norm}.{part}": (d,) for part in ("weight", "bias")}
        for name, (rows, columns) in linear.items():
            found |= {f"blocks.{block}.{name}.weight": (rows, columns), f"blocks.{block}.{name}.bias": (rows,)}
    return found | {"norm.weight": (d,), "norm.bias": (d,)}


def blocks_of(card):
    return re.findall(r"```python\n(.*?)```", card.read_text(), flags=re.DOTALL)


def elsewhere(monkeypatch, package, module, **functions):
    """Stand-ins for a package that is not here."""
    for name in (package, module):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name, function in functions.items():
        setattr(sys.modules[module], name, function)


def test_resnet18_is_torchvisions(here, monkeypatch):
    encoder = made("resnet18", size=40, **{"encoder.stem": "imagenet"})
    export(encoder, "resnet18.safetensors")
    weights = load_file("resnet18.safetensors")
    assert {name: tuple(value.shape) for name, value in weights.items()} == torchvision_resnet18()
    with_fc = encoders.build("resnet18", stem="imagenet")
    with_fc.fc = nn.Linear(512, 1000)
    elsewhere(monkeypatch, "torchvision", "torchvision.models", resnet18=lambda: with_fc)
    names = {}
    exec(blocks_of(here / CARD)[1], names)
    images = torch.randint(256, (3, 3, 40, 40), dtype=torch.uint8)
    prepared = encoder.augmentation.plain(images)
    with torch.no_grad():
        assert torch.equal(names["network"](prepared), encoder(prepared))
    about = beside("resnet18.safetensors")
    by_hand = (images / 255 - torch.tensor(about["mean"])[:, None, None]) / torch.tensor(about["std"])[:, None, None]
    assert torch.allclose(by_hand, prepared, atol=1e-5)


@pytest.mark.parametrize(("stem", "channels"), [("small", 3), ("small", 1), ("imagenet", 1)])
def test_another_stem_is_put_into_torchvisions(here, monkeypatch, stem, channels):
    encoder = made("resnet18", channels=channels, **{"encoder.stem": stem})
    export(encoder, "resnet18.safetensors", layer="head")
    theirs = encoders.build("resnet18", stem="imagenet")
    elsewhere(monkeypatch, "torchvision", "torchvision.models", resnet18=lambda: theirs)
    exec(blocks_of(here / CARD)[1], {})
    theirs.channels = channels
    images = torch.rand(2, channels, 32, 32)
    with torch.no_grad():
        assert torch.equal(theirs.eval()(images), encoder(images))


def test_vit_is_timms(here, monkeypatch):
    encoder = made("vit_tiny", size=32)
    export(encoder, "vit.safetensors")
    weights = load_file("vit.safetensors")
    assert {name: tuple(value.shape) for name, value in weights.items()} == timm_vit_tiny(32, 4)
    asked = {}

    def create_model(name, **options):
        asked.update(options, name=name)
        return encoders.build("vit_tiny", size=32)

    elsewhere(monkeypatch, "timm", "timm", create_model=create_model)
    exec(blocks_of(here / CARD)[1], {})
    expected = {"name": "vit_tiny_patch16_224", "img_size": 32, "patch_size": 4, "in_chans": 3, "num_classes": 0}
    assert asked == expected


# The model card.


def run_block(block):
    """The names that a block of a card leaves behind."""
    names = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.load` is deprecated", DeprecationWarning)
        exec(block, names)
    return names


def test_every_block_of_the_card_runs_and_says_what_embed_does(shapes, here):
    """Of a picture that is wider than high, and of words."""
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    (here / "pictures").mkdir()
    for name in ("picture.png", "pictures/a.png", "pictures/b.png"):
        Image.fromarray(pixels).save(here / name)
    for ending in ENDINGS.values():
        export(shapes.folder, f"shapes.{ending}")
    blocks = blocks_of(here / CARD)
    assert len(blocks) == 6
    picture = shapes.encoder.embed("pictures", progress=False).vectors[:1]
    words = shapes.encoder.embed_text(["a red circle"])
    for block in blocks:
        names = run_block(block)
        assert close(np.asarray(names["features"]), words if "tokens" in names else picture), block


PICTURES = {
    "turned, with alpha": {"mode": "RGBA", "format": "png", "size": (60, 100), "orientation": 6},
    "a large JPEG": {"mode": "RGB", "format": "jpeg", "size": (400, 300), "orientation": 1},
    "smaller than stored": {"mode": "RGB", "format": "png", "size": (20, 12), "orientation": 1},
}


FITTED = {
    "crop": "its largest centred square, scaled to 24 × 24 (bicubic)",
    "pad": "all of it, scaled to fit into 24 × 24 (bicubic), centred on white",
    "stretch": "each side scaled to 24 (bicubic)",
}


@pytest.mark.parametrize("fit", FITTED)
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_prepared_as_for_embed(here, name, fit):
    """Turned, over white, made a square as in the run at the size that is stored, then scaled to the encoder's."""
    picture = PICTURES[name]
    encoder = made("resnet_tiny", size=16)
    encoder.about = encoder.about | {"stored": 24, "fit": fit}
    width, height = picture["size"]
    rough = np.random.default_rng(0).integers(0, 256, (6, 6, len(picture["mode"])), dtype=np.uint8)
    image = Image.fromarray(rough).resize((width, height))
    exif = Image.Exif()
    exif[0x0112] = picture["orientation"]
    (here / "pictures").mkdir()
    for file in ("picture.png", "pictures/a.png", "pictures/b.png"):
        image.save(here / file, picture["format"], exif=exif)
    expected = encoder.embed("pictures", progress=False).vectors[:1]
    export(encoder, "network.safetensors")
    (block,) = blocks_of(here / CARD)
    assert close(run_block(block)["features"].numpy(), expected)
    card = (here / CARD).read_text()
    assert f"rotated as its EXIF says, alpha over white: {FITTED[fit]} and then to 16 × 16 (bilinear)" in card
    assert beside("network.safetensors")["decode"] == "rotated as EXIF says, alpha over white"
    assert beside("network.safetensors")["fit"] == fit


@pytest.mark.parametrize("name", ["digits", "mlp", "sounds"])
def test_blocks_for_other_items_run(name, run, sounds, here):
    Image.fromarray(np.zeros((20, 30), dtype=np.uint8)).save("picture.png")
    one = {"digits": run.folder, "sounds": sounds.folder}.get(name) or made("mlp", **NETWORKS["mlp"])
    for ending in ENDINGS.values():
        export(one, f"network.{ending}")
    found = [np.asarray(run_block(block)["features"]) for block in blocks_of(here / CARD)]
    assert len(found) == 3
    assert close(found[1], found[0])
    assert close(found[2], found[0])


def test_the_card_says_what_was_measured_and_on_what(run, here):
    export(run.folder, "digits.onnx")
    card = (here / CARD).read_text()
    row = run.metrics[-1]
    assert "# resnet_tiny by simclr" in card
    assert "An encoder of images, trained by the method simclr, Chen et al., 2020 (SimCLR)." in card
    assert "Measured at the last step, 40," in card
    assert f"| knn | {row['knn']:.3f} | accuracy of k-NN, 20 neighbours, T 0.07, among at most 5,000" in card
    assert f"| loss | {row['loss']:.3f} | nt_xent, temperature {row['temperature']:g}, the last batch of 128" in card
    assert "consistency" not in card, "a batch stores no keys"
    assert "- items trained on: 1,617" in card
    assert "- skipped: 0" in card
    assert run.encoder.about["fingerprint"] in card
    assert (run.folder / "recipe.toml").read_text() in card
    assert card.count("```") % 2 == 0
    assert "Not stated yet" in card.split("## Licence")[1]


def test_what_people_write_around_the_card_stays(run, here):
    export(run.folder, "digits.onnx")
    card = here / CARD
    card.write_text(f"Ours.\n\n{card.read_text().replace('Not stated yet', 'MIT; not said')}\nBé\n")
    (here / "theirs.onnx").touch()
    (here / "theirs.onnx.json").write_text("{}")  # which says nothing of an encoder
    export(run.folder, "digits.safetensors")
    text = card.read_text()
    assert text.startswith("Ours.\n\n<!-- generated by likewise export")
    assert "MIT; not said" in text
    assert text.endswith("Bé\n")
    assert text.count("# resnet_tiny by simclr") == 1
    assert len(blocks_of(card)) == 2, "one for each file of this encoder"


def test_a_card_with_the_marks_of_an_earlier_version_is_updated(run, here):
    export(run.folder, "digits.safetensors")
    card = here / CARD
    text = card.read_text()
    for old, new in OLD_MARKS.items():
        assert text.count(new) == 1
        text = text.replace(new, old)
    card.write_text(f"Ours.\n\n{text}")
    export(run.folder, "digits.pt")
    assert card.read_text().startswith("Ours.\n\n<!-- generated by likewise export")
    assert card.read_text().count("# resnet_tiny by simclr") == 1


def test_another_encoder_has_a_card_and_a_folder_of_its_own(run, here):
    export(run.folder, "digits.onnx")
    before, other = (here / CARD).read_text(), made("mlp", **NETWORKS["mlp"])
    with pytest.raises(ExportError, match=r"^MODEL_CARD\.md describes another encoder .*: export into another folder$"):
        export(other, "another.onnx")
    assert (here / CARD).read_text() == before
    assert not (here / "another.onnx").exists()
    (here / CARD).unlink()
    export(other, "another.onnx")
    assert len(blocks_of(here / CARD)) == 1, "none for files of another"
    assert "None were recorded." in (here / CARD).read_text()


def test_figures_of_sequences_and_captions(sounds, shapes, here):
    export(sounds.folder, "sounds/network.pt")
    card = (here / "sounds" / CARD).read_text()
    assert re.search(r"\| accuracy \| 0\.\d{3} .* \| share of frames 1, 2, … steps ahead that were found", card)
    assert "8,000 a second" in card
    assert "It runs on a CPU only." in card
    export(shapes.folder, "shapes/network.pt")
    card = (here / "shapes" / CARD).read_text()
    assert "| recall_at_10 | " in card
    assert "An image and a text are compared by the cosine of their features after the head." in card


def test_a_fine_tuned_network_says_so(run, here):
    found = likewise.finetune(run.folder, labels=0.01, epochs=1, out="tuned", progress=False)
    export("tuned", "out/tuned.safetensors")
    card = (here / "out" / CARD).read_text()
    assert "then fine-tuned with labels." in card
    assert f"- items trained on: 1,617, then fine-tuned on {found.labels}\n" in card
    of = f"accuracy on {found.test} test items, trained on {found.labels} labels"
    assert f"| fine-tuned | {found.finetuned:.3f} | {of} |\n| from scratch | {found.scratch:.3f} | {of} |" in card
    assert f"1 epochs of {found.batch_size}, adamw" in card
    assert "seed 0; both are trained in the same way" in card


# What cannot be.


MISTAKES = {
    "--out net.bin": "--out must end in .safetensors or .onnx or .pt or .ts, got net.bin",
    "--out net": "--out must end in .safetensors or .onnx or .pt or .ts, got net",
    "--out net.pt --format onnx": "--out must end in .onnx for onnx, got net.pt",
    "--out net.pt --format tflite": "format must be safetensors, onnx or torchscript, got 'tflite'",
    "--out net.pt --layer neck": "layer must be backbone or head, got 'neck'",
    "--out there.pt": "--out must be a new file, got there.pt, which exists",
    "--out file/net.pt": "file/net.pt could not be written: File exists",
    "--out carded/net.pt": (
        f"carded/{CARD} was not written by likewise and is not overwritten: export into another folder"
    ),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_end_in_one_sentence_and_leave_nothing(run, here, words):
    (here / "there.pt").write_text("mine")
    (here / "file").write_text("mine")
    (here / "carded").mkdir()
    (here / "carded" / CARD).write_text("mine")
    before = sorted(here.rglob("*"))
    result = command(run.folder, *words.split())
    assert result.exit_code == 1
    assert result.stderr == f"likewise: {MISTAKES[words]}\n"
    assert sorted(here.rglob("*")) == before
    assert all(path.read_text() == "mine" for path in before if path.is_file())


def test_the_head_of_pairs_future_is_no_embedding(sounds, here):
    with pytest.raises(ValueError, match=r"^the head of pairs future predicts what comes next"):
        export(sounds.folder, "net.onnx", layer="head")


def test_no_run_is_one_sentence(here):
    result = command("nowhere", "--out", "net.onnx")
    assert result.stderr == "likewise: nowhere is not a run: expected a folder with recipe.toml\n"


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_said_with_how_to_get_it(run, here, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError, match=rf"^ONNX needs {package}: pip install 'likewise\[export\]'$"):
        export(run.folder, "net.onnx")
    assert not list(here.iterdir())
    export(run.folder, "net.pt")  # which does not need it


OWN = """
import torch
from torch import nn


class Network(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.dim = 4
        self.layer = nn.Linear(channels, 4)

    def forward(self, images):
        features = self.layer(images.mean(dim=(2, 3)))
        {line}
        return features
"""
EXPECTED = r"^own:Network as {} must give the encoder's features to 0\.0001 with a batch of 1, got "
HINT = r"; note that tracing turns len\(x\) and Python's if into constants, but not x\.shape\[0\]$"
LINES = {
    "features = torch.cat([features, torch.ones(len(images), 1)], dim=1)": rf"{EXPECTED}[^\n]* 8[^\n]*{HINT}",
    "features = features + torch.zeros(len(images), 4)": rf"{EXPECTED}the shape \(8, 4\){HINT}",
    "features = features if len(images) > 7 else 2 * features": rf"{EXPECTED}a difference of 0\.5{HINT}",
    "features = features / 0": r"^own:Network gives features that are not finite, so it is not exported$",
}


@pytest.mark.parametrize("format", ["onnx", "torchscript"])
@pytest.mark.parametrize("line", LINES)
def test_anyones_encoder_is_refused_where_its_file_is_not_the_same(here, monkeypatch, line, format):  # noqa: A002
    (here / "own.py").write_text(OWN.format(line=line))
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    encoder = made("own:Network")
    with pytest.raises(ExportError, match=LINES[line].format(format)):
        export(encoder, here / "out" / f"net.{ENDINGS[format]}")
    assert not (here / "out").exists()
    assert not list(here.glob(".likewise*"))


def test_anyones_encoder_is_exported_where_it_is(here, monkeypatch):
    (here / "own.py").write_text(OWN.format(line="pass"))
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    encoder = made("own:Network")
    export(encoder, "net.onnx")
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    expected = encoder(encoder.augmentation.plain(images)).detach().numpy()
    assert close(network_of(here / "net.onnx")(images.numpy().astype(np.float32) / 255), expected)


def test_anyones_encoder_of_sequences_may_take_one_length(here, monkeypatch):
    """Its batch is free all the same."""
    flat = OWN.replace("(channels, 4)", "(16 * channels, 4)").replace("images.mean(dim=(2, 3))", "images.flatten(1)")
    (here / "own.py").write_text(flat.format(line="pass"))
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    encoder = made("own:Network", modality="series", channels=2, size=16)
    export(encoder, "net.onnx")
    assert beside("net.onnx")["shape"] == ["n", 16, 2]
    samples = torch.randn(6, 16, 2)
    expected = encoder(encoder.augmentation.plain(samples)).detach().numpy()
    assert close(network_of(here / "net.onnx")(samples.numpy()), expected)


def test_an_exporter_that_cannot_is_one_sentence(run, here, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no such operator\nand a long trace")

    monkeypatch.setattr(torch.onnx, "export", refuse)
    with pytest.raises(ExportError, match=r"^resnet_tiny as onnx cannot be written: no such operator$"):
        export(run.folder, "net.onnx")
    assert not list(here.iterdir())


def test_a_full_disk_leaves_nothing(run, here, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ExportError, match=r"^out/net\.pt could not be written: No space left on device$"):
        export(run.folder, "out/net.pt")
    assert not list(here.iterdir())


def test_what_killed_exports_left_goes_with_the_next_but_not_what_is_being_made(run, here):
    for name in ("killed.onnx", "mine.safetensors", "living.pt"):
        (here / f".likewise-export-{name}").mkdir()
        (here / f".likewise-export-{name}" / name).write_text("half of it")
    with only_writer(here / "living.pt", here / ".likewise-export-living.pt.lock"):
        export(run.folder, "mine.safetensors")
    left = sorted(path.name for path in here.iterdir())
    assert left == [".likewise-export-living.pt", CARD, "mine.safetensors", "mine.safetensors.json"]


def test_a_second_export_to_the_same_file_is_refused(run, here):
    with only_writer(here / "net.pt", here / ".likewise-export-net.pt.lock"):
        result = command(run.folder, "--out", "net.pt")
    assert result.exit_code == 1
    assert result.stderr == (
        "likewise: net.pt is in use: another likewise process writes to it; wait until it ends, or choose another "
        "--out\n"
    )
    assert not list(here.iterdir())


@pytest.mark.parametrize("text", ["[]", "{}", '{"share": 1}', "[" * 100_000, "{", "\xff"])
def test_figures_that_finetune_did_not_write_are_one_sentence(run, tmp_path, text):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    (folder / "finetuned.json").write_text(text, encoding="latin-1")
    with pytest.raises(ExportError, match=r"must be the figures that likewise finetune writes, got something else$"):
        likewise.export(folder, tmp_path / "encoder.safetensors")
    assert not (tmp_path / "encoder.safetensors").exists()
