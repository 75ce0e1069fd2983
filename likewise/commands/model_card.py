"""The model card of exported files: one for a folder, which holds the files of one encoder.

It says what the encoder is, how to use each file, what was measured, the data and the recipe. Text that people write
before or after the generated part is kept.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from likewise import methods
from likewise.bounded import read_bounded
from likewise.commands.finetune import FineTuned
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.modalities import MODALITIES, Modality
from likewise.modalities.migration import migrated
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe
from likewise.training import metrics
from likewise.training.encoder import Encoder
from likewise.training.run import FINE_TUNED
from likewise.training.trainer import KNN_TEST, KNN_TRAIN

FORMATS = {"safetensors": (".safetensors",), "onnx": (".onnx",), "torchscript": (".pt", ".ts")}
ENDINGS = {ending: name for name, endings in FORMATS.items() for ending in endings}


class ExportError(ValueError):
    """An encoder cannot be exported; the message is one sentence that says why."""


CARD = "MODEL_CARD.md"
BEGIN, CLOSE = "<!-- likewise export writes anew what is from here … -->", "<!-- … to here, and nothing else -->"
HEAD = ("| figure | value | what it depends on |", "|---|---|---|")
LARGEST = 1 << 20  # largest file of figures, in bytes
LICENCE = "\n\n## Licence\n\nNot stated yet. Whoever publishes these weights should state it here.\n"


def card(encoder: Encoder, run: Path | None, folder: Path, records: Mapping[str, Any]) -> str:
    """Return the text of the folder's card for this encoder, keeping what people wrote around the generated part."""
    before, after = "", LICENCE
    if (path := folder / CARD).exists():
        before, _, rest = path.read_text("utf-8", errors="surrogateescape").partition(BEGIN)
        _, close, after = rest.partition(CLOSE)
        if not close:
            raise ExportError(f"{path} was not written by likewise and is not overwritten: export into another folder")
    recipe, about = encoder.recipe, encoder.about
    weights, existing = next(iter(records.values()))["weights"], _records(folder)
    others = {name: record for name, record in existing.items() if record.get("weights") == weights}
    if path.exists() and any(record.get("weights", weights) != weights for record in existing.values()):
        raise ExportError(f"{path} describes another encoder and is not overwritten: export into another folder")
    paper = f", {methods.METHODS[recipe.method].paper}" if recipe.method in methods.METHODS else ""
    tuned = run is not None and (run / "classifier.safetensors").exists()
    measured = _finetuned(run / FINE_TUNED) if run and (run / FINE_TUNED).exists() else None
    skipped = (run or Path()) / "skipped.txt"
    trained = f"{about['items']:,}" if "items" in about else "unknown"
    if measured:
        trained += f", then fine-tuned on {measured.labels:,}"
    figures = (
        _accuracies(measured) if measured else _figures(metrics.read(run / "metrics.jsonl") if run else [], recipe)
    )
    both = encoder.knows_words
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
        f"- skipped: {skipped.read_bytes().count(10) if run and skipped.exists() else 'unknown'}\n"
        f"- fingerprint: `{about['fingerprint']}`",
        "## Recipe",
        f"```toml\n{methods.to_toml(recipe)}```",
    ]
    return before + "\n\n".join([BEGIN, *lines, CLOSE]) + after


def _finetuned(path: Path) -> FineTuned:
    try:
        return FineTuned(**json.loads(read_bounded(path, LARGEST)))
    except (OSError, ValueError, TypeError, RecursionError):
        raise ExportError(f"{path} must be the figures that likewise finetune writes, got something else") from None


def _records(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON descriptions of the exported files in a folder, by file name."""
    records: dict[str, dict[str, Any]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        description = path.with_name(f"{path.name}.json")
        if path.suffix.lower() in ENDINGS and description.is_file():
            try:
                record = json.loads(description.read_bytes())
            except (ValueError, RecursionError):
                continue
            records |= {path.name: record} if isinstance(record, dict) else {}
    return records


def _accuracies(result: FineTuned) -> list[str]:
    """Return a table of the accuracies after fine-tuning and from scratch, and a note on what they depend on."""
    of = f"accuracy on {result.test:,} test items, trained on {result.labels:,} labels"
    rows = {"fine-tuned": result.finetuned, "from scratch": result.scratch}
    table = [f"| {name} | {value:.3f} | {of} |" for name, value in rows.items()]
    return ["\n".join([*HEAD, *table]), result.note()]


def _figures(rows: Sequence[Mapping[str, Any]], recipe: Recipe) -> list[str]:
    """Return a table of the figures that were logged last, each with what it depends on."""
    if not rows:
        return ["None were recorded."]
    row = rows[-1]
    held, of = f"at most {KNN_TEST:,} held-out items, if there are any", f"backbone of {recipe.encoder.name}"
    temperature = f", temperature {row['temperature']:.3g}" if row.get("temperature") is not None else ""
    candidates = f"{row['candidates']:,.0f} candidates" if row.get("candidates") is not None else "its candidates"
    vote = f"20 neighbours, T 0.07, among at most {KNN_TRAIN:,} labelled items of the training part"
    notes = {
        "loss": f"{recipe.loss.kind}{temperature}, the last batch of {recipe.training.batch_size}, {candidates}",
        "bound": f"mutual information in nats, a lower bound: log of {candidates} − loss",
        "estimate": f"mutual information in nats, an estimate: log of {candidates} − loss",
        "knn": f"accuracy of k-NN, {vote}; at most {KNN_TEST:,} held-out items; {of}",
        "effective_rank": f"number of directions that the features use; {held}; {of}",
        "consistency": "mean cosine of stored keys with the same views encoded at the end",
    }
    figures = {name: (f"{row[name]:.3f}", note) for name, note in notes.items() if row.get(name) is not None}
    if not DICTIONARIES[recipe.dictionary.kind].stores:
        figures.pop("consistency", None)
    figures |= {metric.name: (metric.text, metric.note) for metric in PAIRS[recipe.pairs.kind].metrics(row, recipe)}
    table = [f"| {name} | {value} | {note} |" for name, (value, note) in figures.items()]
    return [f"Measured at the last step, {row['step']:,}, not at the best one.", "\n".join([*HEAD, *table])]


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
    """Describe how to use a file: its inputs, its outputs, and example code."""
    modality, in_file, shape = _modality(record), record["format"], ", ".join(map(str, record["shape"]))
    normalises = "mean" in record  # tokens are not normalised
    words = f"`{name}`: {record['input']} ({shape}) {'float32' if normalises else 'int64'}"
    words += modality.input_in_words(record)
    if "piece" in record:
        words += (
            f" (split longer ones into pieces of {record['piece']:,} and average their features, weighted by length)"
        )
    words += f"; to features (n, {record['features']}) of the {record['layer']}."
    if normalises:
        inside = "First apply (x − mean) / std" if in_file == "safetensors" else "The file normalises them itself"
        words += f" {inside}, with the mean and std in `{name}.json`."
    words += modality.note_on_format(in_file)
    backbone, head = _builds(record)
    behind = modality.axes_behind_channels
    axes = f".reshape({', '.join(['-1', *['1'] * behind])})" if behind else ""
    filled = {
        "file": _literal(name),
        "beside": _literal(f"{name}.json"),
        "build": backbone + head,
        "normalise": ""
        if not normalises
        else f'mean, std = (torch.tensor(about[name]){axes} for name in ("mean", "std"))\nrows = (rows - mean) / std\n',
        "call": "head(network(rows))" if head else "network(rows)",
    }
    blocks = [RUN[in_file].format(given=modality.input_in_code(record), input=record["input"], **filled)]
    elsewhere = _elsewhere(name, record) if in_file == "safetensors" else ""
    return "\n\n".join([words, *(f"```python\n{block}\n```" for block in [*blocks, elsewhere] if block)])


def _modality(record: Mapping[str, Any]) -> Modality:
    """Return the modality of an exported file; files of version 0.1.0 only say that their items are sequences."""
    return MODALITIES[record["modality"] if "modality" in record else migrated(dict(record))["modality"]]


def _literal(text: str) -> str:
    """Return a string as a Python literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _builds(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return code that builds the network with its weights, and code that builds its head, if it has one."""
    backbone = f"network = {_modality(record).build_in_code(record)}.eval()\n"
    if "head" not in record:
        return backbone + "network.load_state_dict(weights)", ""
    of_backbone = '{name: value for name, value in weights.items() if not name.startswith("head.")}'
    of_own_head = '{name.removeprefix("head."): value for name, value in weights.items() if name.startswith("head.")}'
    of_head = f"{_literal(record['head']['kind'])}, {record['head']['from']}, {record['features']}"
    head = f"head = encoders.build_head({of_head}).eval()"
    return f"{backbone}network.load_state_dict({of_backbone})\n", f"{head}\nhead.load_state_dict({of_own_head})"


def _elsewhere(name: str, record: Mapping[str, Any]) -> str:
    """Return code that loads the weights into the same network of torchvision or timm, or "" if there is none."""
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
