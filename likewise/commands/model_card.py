"""The model card of exported files: one for a folder, of one encoder and all its files there.

What it is, how to use each file, what was measured, data and recipe. People may write around what stands here.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from likewise import methods
from likewise.bounded import read_bounded
from likewise.commands.finetune import FineTuned
from likewise.recipe import Recipe
from likewise.training import metrics
from likewise.training.run import FINE_TUNED, CaptionEncoder, Encoder
from likewise.training.trainer import KNN_TEST, KNN_TRAIN

FORMATS = {"safetensors": (".safetensors",), "onnx": (".onnx",), "torchscript": (".pt", ".ts")}
ENDINGS = {ending: name for name, endings in FORMATS.items() for ending in endings}


class ExportError(ValueError):
    """An encoder that cannot be exported, and why, in one sentence."""


CARD = "MODEL_CARD.md"
BEGIN, CLOSE = "<!-- likewise export writes anew what is from here … -->", "<!-- … to here, and nothing else -->"
HEAD = ("| figure | value | what it depends on |", "|---|---|---|")
LARGEST = 1 << 20  # bytes of a file of figures
LICENCE = "\n\n## Licence\n\nNot said yet: it is for whoever publishes these weights to say.\n"


def card(encoder: Encoder, run: Path | None, folder: Path, records: Mapping[str, Any]) -> str:
    """The folder's card with what is known of this encoder; what people wrote around it stays."""
    before, after = "", LICENCE
    if (path := folder / CARD).exists():
        before, _, rest = path.read_text("utf-8", errors="surrogateescape").partition(BEGIN)
        _, close, after = rest.partition(CLOSE)
        if not close:
            raise ExportError(f"{path} is not of likewise, and is not written over: export into another folder")
    recipe, about = encoder.recipe, encoder.about
    weights, there = next(iter(records.values()))["weights"], _records(folder)
    others = {name: record for name, record in there.items() if record.get("weights") == weights}
    if path.exists() and any(record.get("weights", weights) != weights for record in there.values()):
        raise ExportError(f"{path} is of another encoder, and is not written over: export into another folder")
    paper = f", {methods.METHODS[recipe.method].paper}" if recipe.method in methods.METHODS else ""
    tuned = run is not None and (run / "classifier.safetensors").exists()
    measured = _finetuned(run / FINE_TUNED) if run and (run / FINE_TUNED).exists() else None
    skipped = (run or Path()) / "skipped.txt"
    trained = f"{about['items']:,}" if "items" in about else "not known"
    if measured:
        trained += f", then fine-tuned on {measured.labels:,}"
    figures = (
        _accuracies(measured) if measured else _figures(metrics.read(run / "metrics.jsonl") if run else [], recipe)
    )
    both = isinstance(encoder, CaptionEncoder)
    lines = [
        f"# {recipe.encoder.name} by {recipe.method}",
        f"An encoder of {about['kind']}s{' and captions' * both}, trained by the method {recipe.method}{paper}"
        f"{', then fine-tuned with labels' * tuned}."
        f"{' An image and a text are compared by the cosine of their features after the head.' * both}",
        "## Use",
        *(_use(name, record) for name, record in sorted((others | dict(records)).items())),
        "## Figures",
        *figures,
        "## Data",
        f"- source: `{recipe.data.source or 'arrays in memory'}`\n"
        f"- items trained on: {trained}\n"
        f"- skipped: {skipped.read_bytes().count(10) if run and skipped.exists() else 'not known'}\n"
        f"- fingerprint: `{about['fingerprint']}`",
        "## Recipe",
        f"```toml\n{recipe.toml()}```",
    ]
    return before + "\n\n".join([BEGIN, *lines, CLOSE]) + after


def _finetuned(path: Path) -> FineTuned:
    try:
        return FineTuned(**json.loads(read_bounded(path, LARGEST)))
    except (OSError, ValueError, TypeError, RecursionError):
        raise ExportError(f"{path} must be the figures that likewise finetune writes, got something else") from None


def _records(folder: Path) -> dict[str, dict[str, Any]]:
    """What stands beside the networks of a folder, by their names."""
    found: dict[str, dict[str, Any]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        beside = path.with_name(f"{path.name}.json")
        if path.suffix.lower() in ENDINGS and beside.is_file():
            try:
                record = json.loads(beside.read_bytes())
            except (ValueError, RecursionError):
                continue
            found |= {path.name: record} if isinstance(record, dict) else {}
    return found


def _accuracies(found: FineTuned) -> list[str]:
    """Of the fine-tuned network and of the same from scratch, with what both depend on."""
    of = f"accuracy of {found.test:,} test items, after {found.labels:,} labels"
    rows = {"fine-tuned": found.finetuned, "from scratch": found.scratch}
    table = [f"| {name} | {value:.3f} | {of} |" for name, value in rows.items()]
    return ["\n".join([*HEAD, *table]), found.note()]


def _figures(rows: Sequence[Mapping[str, Any]], recipe: Recipe) -> list[str]:
    """The last row that was logged, each figure with what it depends on."""
    if not rows:
        return ["None were recorded."]
    row = rows[-1]
    ahead = [f"{share:.3f}" for share in row.get("accuracy") or [] if share is not None]
    held, of = f"at most {KNN_TEST:,} items not trained on, if any were held out", f"backbone of {recipe.encoder.name}"
    temperature = f", temperature {row['temperature']:.3g}" if row.get("temperature") is not None else ""
    candidates = f"{row['candidates']:,.0f} candidates" if row.get("candidates") is not None else "its candidates"
    vote = f"20 neighbours, T 0.07, among at most {KNN_TRAIN:,} labelled items of the training part"
    notes = {
        "loss": f"{recipe.loss.kind}{temperature}, the last batch of {recipe.training.batch_size}, {candidates}",
        "bound": f"mutual information in nats, a lower bound: log of {candidates} − loss",
        "estimate": f"mutual information in nats, an estimate: log of {candidates} − loss",
        "knn": f"accuracy of k-NN, {vote}; at most {KNN_TEST:,} items not trained on; {of}",
        "recall": f"an image is nearest to its caption in the last batch of {recipe.training.batch_size}",
        "recall_at_10": f"an image has a caption of its own among the ten nearest; at most {KNN_TEST:,} images not "
        "trained on, each among all their captions; heads of both towers",
        "effective_rank": f"directions that the features use; {held}; {of}",
        "consistency": "mean cosine of stored keys with the same views encoded at the end",
    }
    kept = {name: f"{row[name]:.3f}" for name in notes if row.get(name) is not None}
    if recipe.dictionary.kind == "batch":
        kept.pop("consistency", None)
    table = [f"| {name} | {value} | {notes[name]} |" for name, value in kept.items()]
    if ahead:
        table.append(f"| accuracy | {' '.join(ahead)} | frames found that came 1, 2, … steps later, the last batch |")
    return [f"At the last step, {row['step']:,}, which is not chosen for being best.", "\n".join([*HEAD, *table])]


GIVEN = {
    "image": """from PIL import Image, ImageOps

picture = Image.open("picture.png")
picture.draft(None, ({twice}, {twice}))  # a large JPEG is decoded smaller
picture = ImageOps.exif_transpose(picture).convert("RGBA")
picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
{square}
bands = [band.convert("F").resize(({size}, {size}), Image.Resampling.BILINEAR) for band in picture.split()]
pixels = np.stack([np.asarray(band) for band in bands])[None] / np.float32(255)""",
    "vector": "vectors = np.zeros((1, {size}), dtype=np.float32)  # yours",
    "sequence": "samples = np.zeros((1, {size}, {channels}), dtype=np.float32)  # yours; NaN behind an end",
    "text": """from tokenizers import Tokenizer

words = Tokenizer.from_file("tokenizer.json").encode("a red circle", add_special_tokens=False).ids
tokens = np.array([[{start}, *words[:{length} - 2], {end}]], dtype=np.int64)  # {padding} behind a shorter one""",
}
# How a picture becomes a square of the side {first}: in code, and in words.
SQUARES = {
    "crop": """(width, height), side = picture.size, min(picture.size)
box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
picture = picture.resize(({first}, {first}), Image.Resampling.BICUBIC, box, reducing_gap=3.0).convert("{mode}")""",
    "pad": """width, height = (max(1, round(side * {first} / max(picture.size))) for side in picture.size)
small = picture.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
picture = Image.new("RGB", ({first}, {first}), "white")
picture.paste(small, (({first} - width) // 2, ({first} - height) // 2))
picture = picture.convert("{mode}")""",
    "stretch": """picture = picture.resize(({first}, {first}), Image.Resampling.BICUBIC, reducing_gap=3.0)
picture = picture.convert("{mode}")""",
}
SQUARED = {
    "crop": "its largest centred square, scaled to {first} × {first} (bicubic)",
    "pad": "all of it, scaled to fit into {first} × {first} (bicubic), in the middle of white",
    "stretch": "each side scaled to {first} (bicubic)",
}
RUN = {
    "onnx": """import numpy as np
import onnxruntime
{given}

session = onnxruntime.InferenceSession({file}, providers=["CPUExecutionProvider"])
(features,) = session.run(None, {{"{input}": {input}}})""",
    "torchscript": """import numpy as np
import torch
{given}

network = torch.jit.load({file})
with torch.no_grad():
    features = network(torch.from_numpy({input}))""",
    "safetensors": """import json
from pathlib import Path

import numpy as np
import torch
from likewise import encoders
from safetensors.torch import load_file
{given}

about, weights = json.loads(Path({beside}).read_text()), load_file({file})
{build}
rows = torch.from_numpy({input})
{normalise}with torch.no_grad():
    features = {call}""",
}


def _use(name: str, record: Mapping[str, Any]) -> str:
    """How a file is used: what it takes and gives, and code that does it."""
    kind, in_file, shape = record["kind"], record["format"], ", ".join(map(str, record["shape"]))
    size, fit = record.get("size", 0), record.get("fit", "crop")
    first = record.get("stored") or size  # what a picture is scaled to before all else
    words = f"`{name}`: {record['input']} ({shape}) {'int64' if kind == 'text' else 'float32'}"
    if kind == "image":
        words += " from 0 to 1, of a picture of 8 bits a channel, turned as its EXIF says, alpha over white: "
        words += SQUARED[fit].format(first=first)
        words += f" and then to {size} × {size} (bilinear)" * (size != first)
    if kind == "text":
        words += f", at most {record['length']} of them: {record['start']}, the text, {record['end']}"
    if kind == "sequence" and record["rate"]:
        words += f", {record['rate']:,} a second"
    if "piece" in record:
        words += f" (of more than {record['piece']:,} the features are the mean over pieces of so many, by length)"
    words += f"; to features (n, {record['features']}) of the {record['layer']}."
    if kind != "text":
        inside = "(x − mean) / std comes first" if in_file == "safetensors" else "They are normalised inside"
        words += f" {inside}, with the mean and std that `{name}.json` has."
    if (kind, in_file) == ("sequence", "torchscript"):
        words += " It runs on a CPU only."
    mode = "L" if record.get("channels") == 1 else "RGB"
    blank = "\n" * (kind not in ("image", "text"))
    square = SQUARES[fit].format(mode=mode, first=first)
    given = blank + GIVEN[kind].format(square=square, twice=2 * first, **record)
    backbone, head = _builds(record)
    axes = ".reshape(-1, 1, 1)" * (kind == "image")
    filled = {
        "file": _literal(name),
        "beside": _literal(f"{name}.json"),
        "build": backbone + head,
        "normalise": ""
        if kind == "text"
        else f'mean, std = (torch.tensor(about[name]){axes} for name in ("mean", "std"))\nrows = (rows - mean) / std\n',
        "call": "head(network(rows))" if head else "network(rows)",
    }
    blocks = [RUN[in_file].format(given=given, input=record["input"], **filled)]
    elsewhere = _elsewhere(name, record) if in_file == "safetensors" else ""
    return "\n\n".join([words, *(f"```python\n{block}\n```" for block in [*blocks, elsewhere] if block)])


def _literal(text: str) -> str:
    """A string as Python writes it, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _builds(record: Mapping[str, Any]) -> tuple[str, str]:
    """Code that makes the network of a record with its weights, and its head, if it has one."""
    kind, name = record["kind"], record["encoder"]
    arguments = {"vector": "features={size}", "text": "{vocabulary}"}.get(kind, "channels={channels}, size={size}")
    if kind == "sequence":
        arguments = 'channels={channels}, samples={size}, context="{context}"'
    if "stem" in record:
        arguments += ', stem="{stem}"'
    make = "build_text" if kind == "text" else "build"
    backbone = f"network = encoders.{make}({_literal(name)}, {arguments.format(**record)}).eval()\n"
    if "head" not in record:
        return backbone + "network.load_state_dict(weights)", ""
    theirs = '{name: value for name, value in weights.items() if not name.startswith("head.")}'
    own = '{name.removeprefix("head."): value for name, value in weights.items() if name.startswith("head.")}'
    of_head = f"{_literal(record['head']['kind'])}, {record['head']['from']}, {record['features']}"
    head = f"head = encoders.build_head({of_head}).eval()"
    return f"{backbone}network.load_state_dict({theirs})\n", f"{head}\nhead.load_state_dict({own})"


def _elsewhere(name: str, record: Mapping[str, Any]) -> str:
    """Code that loads the weights into torchvision's or timm's network of the same name, where there is one."""
    encoder, channels, small = record["encoder"], record.get("channels"), record.get("stem") == "small"
    if encoder in ("resnet18", "resnet34", "resnet50"):
        lines = ["from torch import nn", f"from torchvision.models import {encoder}", "", f"network = {encoder}()"]
        if small or channels != 3:
            convolution = "3, padding=1" if small else "7, stride=2, padding=3"
            lines.append(f"network.conv1 = nn.Conv2d({channels}, 64, {convolution}, bias=False)")
        lines += ["network.maxpool = nn.Identity()"] * small + ["network.fc = nn.Identity()"]
    elif encoder in ("vit_tiny", "vit_small"):
        options = f"img_size={record['size']}, patch_size={record['patch']}, in_chans={channels}, num_classes=0"
        lines = ["import timm", "", f'network = timm.create_model("{encoder}_patch16_224", {options})']
    else:
        return ""
    strict = ", strict=False)  # all but the head" if "head" in record else ")"
    load_them = f"network.load_state_dict(load_file({_literal(name)}){strict}"
    return "\n".join(["from safetensors.torch import load_file", *lines, load_them, "network.eval()"])
