"""`likewise export`: write an encoder to a file that can be used without likewise.

The file holds the weights under torchvision's or timm's names (safetensors), or a network that runs by itself (ONNX,
TorchScript). A JSON file beside it describes input and output, and one MODEL_CARD.md describes all files of a folder.
Every file is read back and run on batches of several sizes. It gets its final name only if it gives the encoder's
features.
"""

import contextlib
import copy
import hashlib
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning
from torch.nn import functional

from likewise import __version__, methods
from likewise.commands.model_card import CARD, ENDINGS, FORMATS, ExportError, card
from likewise.data.builtin import needed
from likewise.data.items import TEXT
from likewise.locks import InUseError, only_writer
from likewise.recipe import Recipe
from likewise.training.encoder import Encoder, check_layer, load

TOLERANCE = 1e-4  # largest difference, relative to the largest entry of the features
OPSET = 17  # of ONNX: the first with layer norm
TEMPORARY = ".likewise-export-"  # prefix of temporary folders
# Warnings of torch's tracing exporters, which are ignored. The newer exporter to ONNX would need one more dependency.
IGNORED_WARNINGS = (
    "You are using the legacy TorchScript-based ONNX export",
    "The feature will be removed",
    r"`torch\.jit\.\w+` is deprecated",
    "Exporting a model to ONNX with a batch_size other than 1",  # about a GRU; other batch sizes are checked here
    "Constant folding - Only steps=1",
)


@dataclass(frozen=True)
class Exported:
    """The files that were written, and how far their outputs are from the encoder's."""

    files: tuple[Path, ...]  # networks first
    format: str
    difference: float  # largest difference, relative to the largest entry of the features


class Prepared(nn.Module):
    """A network with normalisation in front of it: it takes images as pixels from 0 to 1. Tokens are not normalised."""

    def __init__(
        self, network: nn.Sequential, mean: Tensor | None = None, std: Tensor | None = None, hop: int = 0
    ) -> None:
        super().__init__()
        self.network, self.hop = network, hop  # backbone and head
        self.mean: Tensor | None
        self.std: Tensor | None
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, items: Tensor) -> Tensor:
        if self.mean is not None and self.std is not None:
            items = (items - self.mean) / self.std
        if self.hop:
            # Append one empty frame (NaN), so that no sequence is too short: a trace cannot record that special case.
            items = functional.pad(items, (0, 0, 0, self.hop), value=math.nan)
        return self.network(items)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Tower:
    """A network to export, example inputs with the outputs that are expected, and the description for the JSON file."""

    graph: Prepared
    given: list[Tensor]  # batches of example inputs
    answers: list[Tensor]  # the encoder's features of each batch
    record: dict[str, Any]


def export(
    run: str | Path | Encoder,
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002  # the usual name
    layer: str | None = None,
    trust: bool = False,
) -> Exported:
    """Write a run's encoder to the file `out`, with a JSON description and a model card beside it.

    `format` is safetensors, onnx or torchscript, by default chosen from the ending of `out`. `layer` is backbone or
    head. A run trained on captions exports the head by default, and its text encoder as a second file with a
    tokenizer.json. `trust` allows the run to name an encoder (`module:callable`) even if it was not made under this
    account.
    """
    out = Path(out)
    chosen = _format(out, format)
    if chosen == "onnx":
        for package in ("onnx", "onnxruntime"):
            needed(package, "ONNX", "export")  # fail now rather than after most of the work
    encoder = run if isinstance(run, Encoder) else load(run, trust=trust)
    layer = layer or encoder.default_layer
    check_layer(layer, encoder.recipe)
    methods.check_kinds(encoder.recipe)
    shared = {"likewise": __version__, "format": chosen, "layer": layer, "method": encoder.recipe.method}
    shared["recipe"] = hashlib.sha256(methods.to_toml(encoder.recipe).encode()).hexdigest()
    shared |= {"weights": encoder.fingerprint("backbone"), "data": encoder.about["fingerprint"]}
    towers = {out.name: _tower_of_items(encoder, layer, chosen != "safetensors")}
    texts = encoder.modality.files_of(encoder.about)
    if encoder.has_text_tower and layer == "head":
        towers[f"{out.stem}.text{out.suffix}"] = _tower_of_text(encoder)
        texts |= encoder.texts
    records = {name: shared | tower.record for name, tower in towers.items()}
    texts |= {f"{name}.json": json.dumps(record, indent=2) + "\n" for name, record in records.items()}
    try:
        with _temporary_folder(out) as temporary:
            for path in (out.with_name(name) for name in [*towers, *texts]):
                if path.exists() and (path.name != "tokenizer.json" or path.read_text("utf-8") != texts[path.name]):
                    raise ExportError(f"--out must be a new file, got {path}, which exists")
            texts[CARD] = card(encoder, None if isinstance(run, Encoder) else Path(run), out.parent, records)
            differences = [_write_and_check(tower, records[name], temporary / name) for name, tower in towers.items()]
            for name, text in texts.items():
                (temporary / name).write_text(text, encoding="utf-8", errors="surrogateescape")
            files = tuple((temporary / name).replace(out.with_name(name)) for name in [*towers, *texts])
    except OSError as error:
        raise ExportError(f"{out} could not be written: {error.strerror or error}") from None
    return Exported(files, chosen, max(differences))


@contextmanager
def _temporary_folder(out: Path) -> Iterator[Path]:
    """Make a temporary folder beside `out`, for this process alone, and remove it afterwards.

    Folders that killed exports left behind are removed first; their locks are free.
    """
    own = out.with_name(f"{TEMPORARY}{out.name}")
    with only_writer(out, _lock_of(own)):
        for leftover in out.parent.glob(f"{TEMPORARY}*"):
            if leftover.is_dir() and leftover != own:
                with contextlib.suppress(InUseError, OSError), only_writer(leftover, _lock_of(leftover)):
                    shutil.rmtree(leftover)
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _format(out: Path, name: str | None) -> str:
    if name is not None and name not in FORMATS:
        raise ExportError(f"format must be safetensors, onnx or torchscript, got {name!r}")
    endings = tuple(ENDINGS) if name is None else FORMATS[name]
    if out.suffix.lower() not in endings:
        raise ExportError(f"--out must end in {' or '.join(endings)}{f' for {name}' if name else ''}, got {out}")
    return ENDINGS[out.suffix.lower()]


def _tower_of_items(encoder: Encoder, layer: str, traced: bool) -> Tower:
    """Return the tower that embeds items, up to `layer`; if `traced`, the file normalises its inputs itself."""
    about, recipe, prepared = encoder.about, encoder.recipe, encoder.augmentation
    network = _copied(encoder.backbone, encoder.head if layer == "head" else None)
    exported = encoder.modality.exported(network, recipe, about, prepared)
    record = {"modality": about["modality"], "kind": about["kind"], "encoder": recipe.encoder.name}
    record |= {"channels": about["channels"], "size": about["size"]}
    record |= exported.record | {"mean": list(prepared.mean), "std": list(prepared.std)}
    record["normalised"] = "inside" if traced else "before"
    graph = Prepared(network, exported.mean, exported.std, exported.hop)
    return _tower(graph, network, exported.given, exported.prepared, recipe, record)


def _tower_of_text(encoder: Encoder) -> Tower:
    """Return the tower that embeds captions, from tokens to the space of the image embeddings."""
    network = _copied(*encoder.text_network)  # type: ignore[misc]
    exported = encoder.exported_text()
    record = {"modality": TEXT, "kind": TEXT, "encoder": encoder.recipe.text.name} | exported.record
    return _tower(Prepared(network), network, exported.given, exported.prepared, encoder.recipe, record)


def _tower(
    graph: Prepared,
    network: nn.Sequential,
    given: list[Tensor],
    prepared: list[Tensor],
    recipe: Recipe,
    record: dict[str, Any],
) -> Tower:
    """Return a tower whose expected outputs are computed by `network` from prepared inputs."""
    with torch.no_grad():
        answers = [network(part) for part in prepared]
    if not all(part.isfinite().all() for part in answers):
        raise ExportError(f"{record['encoder']} gives features that are not finite, so it is not exported")
    record["features"] = answers[0].shape[1]
    if len(network) > 1:
        record["head"] = {"kind": recipe.encoder.head, "from": network[0].dim}
    return Tower(graph, given, answers, record)


def _copied(backbone: nn.Module, head: nn.Module | None) -> nn.Sequential:
    parts = [copy.deepcopy(part) for part in (backbone, head) if part is not None]
    return nn.Sequential(*parts).to("cpu", torch.float32).eval().requires_grad_(False)


def _write_and_check(tower: Tower, record: Mapping[str, Any], path: Path) -> float:
    """Write a tower's file, run it, and return the largest difference from the encoder's features.

    A difference above the tolerance is an error.
    """
    what = f"{record['encoder']} as {record['format']}"
    try:
        runs = WRITERS[record["format"]](tower, record, path)
    except OSError:
        raise
    except Exception as error:  # exporters raise all kinds of exceptions on unsupported operations
        raise ExportError(f"{what} cannot be written: {_line(error, 0)}") from error
    largest, traced = 0.0, record["format"] != "safetensors"
    for given, answer in zip(tower.given, tower.answers, strict=True):
        try:
            output = runs(given)
        except Exception as error:
            got, difference = _line(error, -1), math.inf
        else:
            same_shape = output.shape == answer.shape
            scale = max(float(answer.abs().max()), torch.finfo(torch.float32).tiny)
            difference = float((output - answer).abs().max()) / scale if same_shape else math.inf
            got = f"a difference of {difference:.2g}" if same_shape else f"the shape {tuple(output.shape)}"
        if not difference <= TOLERANCE:
            expected = f"must give the encoder's features to {TOLERANCE:g} with a batch of {len(given)}"
            hint = "; note that tracing turns len(x) and Python's if into constants, but not x.shape[0]" * traced
            raise ExportError(f"{what} {expected}, got {got}{hint}")
        largest = max(largest, difference)
    return largest


def _line(error: Exception, place: int) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[place][:400]


def _write_safetensors(tower: Tower, record: Mapping[str, Any], path: Path) -> Callable[[Tensor], Tensor]:
    weights: dict[str, Tensor] = {}
    for part, prefix in zip(tower.graph.network, PREFIXES, strict=False):
        weights |= {prefix + name: value.contiguous().clone() for name, value in part.state_dict().items()}
    path.write_bytes(safetensors.torch.save(weights, metadata={"preprocessing": json.dumps(record)}))
    loaded, stored = copy.deepcopy(tower.graph), safetensors.torch.load_file(path)
    for part, prefix in zip(loaded.network, PREFIXES, strict=False):
        names = list(part.state_dict())
        for value in part.state_dict().values():
            value.zero_()  # so that a weight missing from the file changes the output
        part.load_state_dict({name: stored[prefix + name] for name in names})
    return loaded


def _write_torchscript(tower: Tower, record: Mapping[str, Any], path: Path) -> Callable[[Tensor], Tensor]:
    with _quiet():
        traced = torch.jit.trace(tower.graph, tower.given[-1], check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, str(path), _extra_files={"preprocessing.json": json.dumps(record)})
        loaded: nn.Module = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
    return loaded


def _write_onnx(tower: Tower, record: Mapping[str, Any], path: Path) -> Callable[[Tensor], Tensor]:
    onnx, onnxruntime = (needed(package, "ONNX", "export") for package in ("onnx", "onnxruntime"))
    name = record["input"]
    variable_axes = {place: axis for place, axis in enumerate(record["shape"]) if isinstance(axis, str)}
    with _quiet():
        torch.onnx.export(
            tower.graph,
            (tower.given[-1],),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=[name],
            output_names=["features"],
            dynamic_axes={name: variable_axes, "features": {0: "n"}},
        )
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {"preprocessing": json.dumps(record)})
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # errors are raised, and need not be logged too
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda given: torch.from_numpy(session.run(None, {name: given.numpy()})[0])


PREFIXES = ("", "head.")  # of the weight names of backbone and head
WRITERS = {"safetensors": _write_safetensors, "onnx": _write_onnx, "torchscript": _write_torchscript}


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)  # the exported file is run, which shows what a trace got wrong
        for message in IGNORED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        yield
