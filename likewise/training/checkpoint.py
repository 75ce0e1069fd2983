"""Checkpoints that survive crashes: safetensors for tensors, JSON for everything else, a SHA-256 of both.

    save(folder, step, tensors, state)      write the checkpoint of a step; the last two are kept
    newest(folder)                          read the newest intact checkpoint, or return None
    flatten(nested), unflatten(...)         convert state dicts to tensors and JSON, and back

A checkpoint is `step-000500.safetensors` and `step-000500.json`. Both are written under temporary names, flushed to
disk and renamed, the JSON last: tensors without JSON do not count as a checkpoint. The JSON holds the SHA-256 of the
tensors and of itself. Nothing is ever unpickled.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

OURS = re.compile(r"step-(?P<step>\d{6,})(-[0-9a-f]{8})?\.(?P<kind>json|safetensors)(?P<temporary>\.tmp)?")
STORABLE = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
)
# Exceptions that a JSON file with a valid digest but unexpected content can cause (a RecursionError is a RuntimeError).
NO_CHECKPOINT = (ValueError, TypeError, KeyError, AttributeError, RuntimeError)
OTHERS = "its JSON is not a checkpoint"


class CheckpointError(OSError):
    """A checkpoint could not be written; earlier ones are unchanged."""


@dataclass(frozen=True)
class Checkpoint:
    """A saved checkpoint: tensors on the CPU, with their original strides, and the state."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save(folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
    """Write the checkpoint of `step` into `folder`, and return the path of its JSON.

    The state consists of None, bools, numbers, strings, lists, tuples and dicts, and is read back exactly, NaN and
    infinity included. Once the new checkpoint is on disk, all others are removed, except the newest intact one before
    it. Checkpoints of later steps are obsolete, because the run has gone back before them.
    """
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"step must be a whole number >= 0, got {step!r}")
    plain = _encode(state, "state", None)
    stored, strides = _storable(tensors)
    data = safetensors.torch.save(stored)
    digest = hashlib.sha256(data).hexdigest()
    index = folder / f"step-{step:06d}.json"
    temporaries: list[Path] = []
    orphans: list[Path] = []  # tensors already renamed whose JSON is not
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        weights = index.with_suffix(".safetensors")
        if (
            weights.exists()
        ):  # it belongs to the old checkpoint of this step, which is valid until the new JSON replaces it
            weights = weights.with_name(f"{index.stem}-{digest[:8]}.safetensors")
        entry = {"file": weights.name, "bytes": len(data), "sha256": digest, "strides": strides}
        body = json.dumps({"step": step, "tensors": entry, "state": plain}, allow_nan=False).encode()
        temporaries = [path.with_name(path.name + ".tmp") for path in (weights, index)]
        for path, content in zip(temporaries, (data, _document(body)), strict=True):
            _write(path, content)
        if not weights.exists():
            orphans.append(weights)
        os.replace(temporaries[0], weights)
        os.replace(temporaries[1], index)
        orphans.clear()
        _flush_directory(folder)
    except OSError as error:
        for path in orphans:
            _remove(path)
        why = error.strerror or str(error)
        sentence = f"checkpoint of step {step} could not be written to {folder}: {why}; earlier ones are kept"
        failure = CheckpointError(sentence)
        failure.errno = error.errno
        raise failure from error
    finally:
        for path in temporaries:
            _remove(path)
    _remove_others(folder, step, index, weights)
    return index


def newest(folder: Path, on_damaged: Callable[[Path, str], None] | None = None) -> Checkpoint | None:
    """Return the newest intact checkpoint in `folder`, or None if there is none.

    `on_damaged(path, reason)` is called for each damaged one that is skipped; by default it warns.
    """
    for index in reversed(_indices(folder)):
        try:
            return _read(index)
        except _DamagedError as damage:
            (on_damaged or _warn)(index, str(damage))
    return None


def flatten(nested: Any) -> tuple[dict[str, Tensor], Any]:
    """Split nested dicts, lists and tuples into tensors by name, and JSON for everything else.

    Keys may be whole numbers, as in an optimizer's state. `unflatten(*flatten(nested))` is `nested` again.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _encode(nested, "", tensors)


def unflatten(tensors: Mapping[str, Tensor], plain: Any) -> Any:
    """Restore the nested dicts, lists and tuples that `flatten` split."""
    return _decode(plain, tensors)


class _DamagedError(Exception):
    """A checkpoint is damaged; the message says how."""


def _read(index: Path) -> Checkpoint:
    """Read the checkpoint whose JSON is `index`, or raise _DamagedError."""
    body, weights = _verify(index)
    tensors = {}
    try:
        state = _decode(body["state"], {})
        with safetensors.safe_open(weights, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is not a dict
                tensor = file.get_tensor(name)
                strides = body["tensors"]["strides"].get(name, torch.empty_like(tensor, device="meta").stride())
                laid_out = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="meta")
                if (
                    laid_out.untyped_storage().nbytes() != tensor.nbytes
                ):  # strides with gaps could demand any amount of memory
                    raise _DamagedError(f"its strides do not fit {name}")
                # Copy into torch's own memory: a mapped file is aligned differently, and may disappear.
                tensors[name] = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
    except (OSError, safetensors.SafetensorError) as error:
        raise _DamagedError(f"its tensors cannot be read: {error}") from error
    except NO_CHECKPOINT as error:
        raise _DamagedError(OTHERS) from error
    return Checkpoint(body["step"], tensors, state)


def _verify(index: Path) -> tuple[dict[str, Any], Path]:
    """Return the content of the JSON and the path of its tensors, after checking every byte of both."""
    try:
        raw = index.read_bytes()
        body = raw[len(_document(b"")) - len(_END) : -len(_END)]
        if _document(body) != raw:
            raise _DamagedError("its JSON is incomplete or altered: the SHA-256 does not match")
        content = json.loads(body)
        if index.name != f"step-{content['step']:06d}.json":
            raise _DamagedError(f"its JSON belongs to step {content['step']}")
        entry = content["tensors"]
        weights = index.parent / Path(entry["file"]).name
        if not weights.exists():
            raise _DamagedError(f"its tensors are missing: there is no {weights.name}")
        if weights.stat().st_size != entry["bytes"]:
            size = weights.stat().st_size
            raise _DamagedError(f"its tensors are incomplete: expected {entry['bytes']} bytes, got {size}")
        with weights.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
                raise _DamagedError("its tensors are altered: the SHA-256 does not match")
    except OSError as error:
        raise _DamagedError(f"it cannot be read: {error.strerror or error}") from error
    except NO_CHECKPOINT as error:
        raise _DamagedError(OTHERS) from error
    return content, weights


_END = b"}\n"


def _document(body: bytes) -> bytes:
    """Return the exact bytes of the JSON file around `body`, so that a change of any byte is noticed."""
    return b'{"sha256": "%s", "checkpoint": %s%s' % (hashlib.sha256(body).hexdigest().encode(), body, _END)


def _warn(index: Path, reason: str) -> None:
    warnings.warn(
        f"checkpoint {index} is damaged and the one before it is used: {reason}; if this happens again, check the disk",
        stacklevel=3,
    )


def _storable(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
    """Return the tensors as safetensors needs them, contiguous and without shared memory, and their other strides."""
    stored, strides, memory = {}, {}, set()
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ValueError(f"a tensor's name must be a string other than '__metadata__', got {name!r}")
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.dtype not in STORABLE:
            got = f"{tensor.layout} of {tensor.dtype}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{name} must be a dense tensor of a dtype that safetensors knows, got {got}")
        contiguous = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        # Keep the strides that torch would give a copy: the same, if the tensor has no gaps.
        layout = torch.empty_like(tensor, device="meta").stride()
        if layout != torch.empty(tensor.shape, device="meta").stride():
            strides[name] = list(layout)
        address = contiguous.untyped_storage().data_ptr()
        stored[name] = contiguous.clone() if address in memory else contiguous
        memory.add(address)
    return stored, strides


def _encode(value: Any, where: str, tensors: dict[str, Tensor] | None) -> Any:
    """Return `value` as strict JSON. Types that JSON lacks become an object with one key that starts with a dollar."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, list):
        return [_encode(item, f"{where}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, f"{where}.{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, Mapping):
        items = [(_encode(key, where, None), _encode(item, f"{where}.{key}", tensors)) for key, item in value.items()]
        plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return dict(items) if plain else {"$dict": [list(item) for item in items]}
    if isinstance(value, Tensor) and tensors is not None:
        name = where.removeprefix(".")
        while name in tensors:  # {"a.b": …} and {"a": {"b": …}} have the same name
            name += "'"
        tensors[name] = value
        return {"$tensor": name}
    expected = "None, bools, numbers, strings, lists, tuples" + (
        " and dicts" if tensors is None else ", dicts and tensors"
    )
    raise ValueError(f"{where.removeprefix('.') or 'nested'} must be made of {expected}, got {type(value).__name__}")


def _decode(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(plain, list):
        return [_decode(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    match next(iter(plain.items()), None):
        case "$float", text:
            return float(text)
        case "$tuple", items:
            return tuple(_decode(item, tensors) for item in items)
        case "$dict", items:
            return {_decode(key, tensors): _decode(item, tensors) for key, item in items}
        case "$tensor", name:
            if name not in tensors:
                raise ValueError(f"tensors must hold {name!r}, got {len(tensors)} others")
            return tensors[name]
    return {key: _decode(item, tensors) for key, item in plain.items()}


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(folder: Path) -> None:
    """Flush a directory to disk: only then does a renamed file keep its new name after a power failure."""
    if os.name == "nt":  # a directory cannot be opened there
        return
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems do not support it
            raise
    finally:
        os.close(directory)


def _indices(folder: Path) -> list[Path]:
    """Return the JSON path of every checkpoint, intact or not, sorted by step."""
    return [path for _, path, match in _our_files(folder) if match["kind"] == "json" and not match["temporary"]]


def _our_files(folder: Path) -> list[tuple[int, Path, re.Match[str]]]:
    """Return (step, path, match of the name) for each checkpoint file, sorted by step; other files are ignored."""
    matches = [(path, OURS.fullmatch(path.name)) for path in (folder.iterdir() if folder.exists() else ())]
    ours = [(int(match["step"]), path, match) for path, match in matches if match]
    return sorted(ours, key=lambda file: (file[0], file[1].name))


def _remove_leftovers(folder: Path) -> None:
    """Remove what a killed run left behind: temporary files, and tensors without JSON."""
    steps = {int(path.stem.removeprefix("step-")) for path in _indices(folder)}
    for step, path, match in _our_files(folder):
        if match["temporary"] or step not in steps:
            _remove(path)


def _remove_others(folder: Path, step: int, index: Path, weights: Path) -> None:
    """Remove all checkpoints except the one just written and the newest intact one before it."""
    keep = {index, weights}
    for earlier in reversed([path for at, path, _ in _our_files(folder) if at < step and path.suffix == ".json"]):
        with contextlib.suppress(_DamagedError):
            keep |= {earlier, _verify(earlier)[1]}
            break
    for _, path, _ in _our_files(folder):
        if path not in keep:
            _remove(path)


def _remove(path: Path) -> None:
    # A file that cannot be removed is no reason to end a run whose checkpoint is written.
    with contextlib.suppress(OSError):
        path.unlink()
