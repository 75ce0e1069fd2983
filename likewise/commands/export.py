"""`likewise export`: an encoder for those who do not have likewise.

Its weights under torchvision's or timm's names (safetensors), or a network that runs by itself (ONNX, TorchScript).
What has to be known to use a file stands beside it as JSON, and of all files of an encoder in one MODEL_CARD.md.
Every file is read back and run first: what gets its name gives the encoder's own features, in batches of any size.
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
from likewise.locks import InUseError, only_writer
from likewise.recipe import Recipe
from likewise.training.encoder import Encoder, check_layer, load

TOLERANCE = 1e-4  # of the largest entry of the features
OPSET = 17  # of ONNX: the first with layer norm
TEMPORARY = ".likewise-export-"  # how folders of files that are being made begin
# Of torch's tracing exporters. They are not its newest; but that one, for ONNX, needs a package that nothing else does.
SAID = (
    "You are using the legacy TorchScript-based ONNX export",
    "The feature will be removed",
    r"`torch\.jit\.\w+` is deprecated",
    "Exporting a model to ONNX with a batch_size other than 1",  # of a GRU; other sizes are run
    "Constant folding - Only steps=1",
)


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the encoder."""

    files: tuple[Path, ...]  # networks first
    format: str
    difference: float  # the largest, as a share of the largest entry of the features


class Prepared(nn.Module):
    """A network of items as they are, images as pixels of 0 to 1, which it normalises; tokens need nothing."""

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
            # One frame more, which is not there: so none is too short, a case of its own that a trace would not see.
            items = functional.pad(items, (0, 0, 0, self.hop), value=math.nan)
        return self.network(items)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Tower:
    """A network, what it makes of made-up items, and what has to be known to use it."""

    graph: Prepared
    given: list[Tensor]  # items as the graph takes them, in batches
    answers: list[Tensor]  # by the encoder: features of each batch
    record: dict[str, Any]


def export(
    run: str | Path | Encoder,
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002  # what everyone calls it
    layer: str | None = None,
    trust: bool = False,
) -> Exported:
    """Write a run's encoder to a file that others can use, and how to use it beside it.

    `format` is safetensors, onnx or torchscript, by default that of the ending of `out`; `layer` is backbone or head.
    Of images and words the head is the default, and the text tower becomes a second file, with its tokenizer.json.
    `trust` allows the code of an encoder (`module:callable`) that a run from elsewhere names.
    """
    out = Path(out)
    chosen = _format(out, format)
    if chosen == "onnx":
        for package in ("onnx", "onnxruntime"):
            needed(package, "ONNX", "export")  # now, and not when much is done
    encoder = run if isinstance(run, Encoder) else load(run, trust=trust)
    layer = layer or encoder.default_layer
    check_layer(layer, encoder.recipe)
    methods.check_kinds(encoder.recipe)
    shared = {"likewise": __version__, "format": chosen, "layer": layer, "method": encoder.recipe.method}
    shared["recipe"] = hashlib.sha256(methods.to_toml(encoder.recipe).encode()).hexdigest()
    shared |= {"weights": encoder.fingerprint("backbone"), "data": encoder.about["fingerprint"]}
    towers = {out.name: _tower_of_items(encoder, layer, chosen != "safetensors")}
    texts: dict[str, str] = {}
    if encoder.knows_words and layer == "head":
        towers[f"{out.stem}.text{out.suffix}"] = _tower_of_text(encoder)
        texts |= encoder.texts
    records = {name: shared | tower.record for name, tower in towers.items()}
    texts |= {f"{name}.json": json.dumps(record, indent=2) + "\n" for name, record in records.items()}
    try:
        with _made_in(out) as made:
            for path in (out.with_name(name) for name in [*towers, *texts]):
                if path.exists() and (path.name != "tokenizer.json" or path.read_text("utf-8") != texts[path.name]):
                    raise ExportError(f"--out must be a new file, got {path}, which is there")
            texts[CARD] = card(encoder, None if isinstance(run, Encoder) else Path(run), out.parent, records)
            differences = [_written(tower, records[name], made / name) for name, tower in towers.items()]
            for name, text in texts.items():
                (made / name).write_text(text, encoding="utf-8", errors="surrogateescape")
            files = tuple((made / name).replace(out.with_name(name)) for name in [*towers, *texts])
    except OSError as error:
        raise ExportError(f"{out} could not be written: {error.strerror or error}") from None
    return Exported(files, chosen, max(differences))


@contextmanager
def _made_in(out: Path) -> Iterator[Path]:
    """A folder beside `out` for files that do not have their names yet, for this process alone; then it is gone.

    Folders that exports left behind when they were killed go first: nobody holds their locks.
    """
    mine = out.with_name(f"{TEMPORARY}{out.name}")
    with only_writer(out, _lock_of(mine)):
        for left in out.parent.glob(f"{TEMPORARY}*"):
            if left.is_dir() and left != mine:
                with contextlib.suppress(InUseError, OSError), only_writer(left, _lock_of(left)):
                    shutil.rmtree(left)
        shutil.rmtree(mine, ignore_errors=True)
        mine.mkdir()
        try:
            yield mine
        finally:
            shutil.rmtree(mine, ignore_errors=True)


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
    """Return the tower of the items, up to the layer; `traced`, its file normalises them."""
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
    """Return the tower of the captions, from tokens to the space of the images."""
    network = _copied(*encoder.text_network)  # type: ignore[misc]
    text = encoder.text_modality
    exported = text.exported(network, encoder.recipe, encoder.about, encoder.augmentation)
    record = {"modality": text.name, "kind": text.name, "encoder": encoder.recipe.text.name} | exported.record
    return _tower(Prepared(network), network, exported.given, exported.prepared, encoder.recipe, record)


def _tower(
    graph: Prepared,
    network: nn.Sequential,
    given: list[Tensor],
    prepared: list[Tensor],
    recipe: Recipe,
    record: dict[str, Any],
) -> Tower:
    """A graph beside the network that it is of: the network says what the graph should."""
    with torch.no_grad():
        answers = [network(part) for part in prepared]
    if not all(part.isfinite().all() for part in answers):
        raise ExportError(f"{record['encoder']} gives features that are no finite numbers: there is nothing to export")
    record["features"] = answers[0].shape[1]
    if len(network) > 1:
        record["head"] = {"kind": recipe.encoder.head, "from": network[0].dim}
    return Tower(graph, given, answers, record)


def _copied(backbone: nn.Module, head: nn.Module | None) -> nn.Sequential:
    parts = [copy.deepcopy(part) for part in (backbone, head) if part is not None]
    return nn.Sequential(*parts).to("cpu", torch.float32).eval().requires_grad_(False)


def _written(tower: Tower, record: Mapping[str, Any], path: Path) -> float:
    """Write a tower's file and run it; the largest difference from the encoder's features, never above tolerance."""
    what = f"{record['encoder']} as {record['format']}"
    try:
        runs = WRITERS[record["format"]](tower, record, path)
    except OSError:
        raise
    except Exception as error:  # exporters raise nearly anything on what they do not know
        raise ExportError(f"{what} cannot be written: {_line(error, 0)}") from error
    largest, traced = 0.0, record["format"] != "safetensors"
    for given, answer in zip(tower.given, tower.answers, strict=True):
        try:
            found = runs(given)
        except Exception as error:
            got, difference = _line(error, -1), math.inf
        else:
            same = found.shape == answer.shape
            scale = max(float(answer.abs().max()), torch.finfo(torch.float32).tiny)
            difference = float((found - answer).abs().max()) / scale if same else math.inf
            got = f"{difference:.2g} of the largest entry" if same else f"the shape {tuple(found.shape)}"
        if not difference <= TOLERANCE:
            expected = f"must give the encoder's features to {TOLERANCE:g} with a batch of {len(given)}"
            hint = "; len(x), unlike x.shape[0], and an if of Python are constants in such a file" * traced
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
    again, found = copy.deepcopy(tower.graph), safetensors.torch.load_file(path)
    for part, prefix in zip(again.network, PREFIXES, strict=False):
        names = list(part.state_dict())
        for value in part.state_dict().values():
            value.zero_()  # what the file does not have is then missed
        part.load_state_dict({name: found[prefix + name] for name in names})
    return again


def _write_torchscript(tower: Tower, record: Mapping[str, Any], path: Path) -> Callable[[Tensor], Tensor]:
    with _quiet():
        traced = torch.jit.trace(tower.graph, tower.given[-1], check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, str(path), _extra_files={"preprocessing.json": json.dumps(record)})
        loaded: nn.Module = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
    return loaded


def _write_onnx(tower: Tower, record: Mapping[str, Any], path: Path) -> Callable[[Tensor], Tensor]:
    onnx, onnxruntime = (needed(package, "ONNX", "export") for package in ("onnx", "onnxruntime"))
    name = record["input"]
    free = {place: axis for place, axis in enumerate(record["shape"]) if isinstance(axis, str)}
    with _quiet():
        torch.onnx.export(
            tower.graph,
            (tower.given[-1],),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=[name],
            output_names=["features"],
            dynamic_axes={name: free, "features": {0: "n"}},
        )
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {"preprocessing": json.dumps(record)})
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # what goes wrong is raised, and need not be printed too
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda given: torch.from_numpy(session.run(None, {name: given.numpy()})[0])


PREFIXES = ("", "head.")  # of the names of backbone and head
WRITERS = {"safetensors": _write_safetensors, "onnx": _write_onnx, "torchscript": _write_torchscript}


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)  # what a trace gets wrong, running it shows
        for words in SAID:
            warnings.filterwarnings("ignore", message=words)
        yield
