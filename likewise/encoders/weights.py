"""Weights from elsewhere: torchvision's, timm's, a published checkpoint's, or those of a run.

Nothing in a file is run: safetensors holds tensors only, and a torch file is read with
`weights_only=True`. Either every weight of the encoder comes from the file or the file is
refused; classifiers and projection heads in it are left alone.
"""

import itertools
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from likewise.encoders.vit import VisionTransformer, resize_positions

TORCH_FILES = (".pt", ".pth", ".ckpt", ".bin", ".tar")  # MoCo's are called .pth.tar
WRAPPERS = ("state_dict", "model")
PREFIXES = ("module.", "encoder_q.", "encoder.", "backbone.", "model.", "_orig_mod.")
CLASSIFIERS = ("fc", "head", "classifier")


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Give `module` the weights of a file, or of a run's folder, or refuse in one sentence and leave it as it was.

    A first convolution of three channels becomes one of one channel by summing, which is what
    it gives for a grey image. A ViT's positions are resized to its grid.
    """
    path = Path(path)
    found = _without_prefix(_read(path), module, path)
    wanted = module.state_dict()
    required = {key for key in wanted if not key.endswith("num_batches_tracked") and not _is_classifier(key)}
    missing = [key for key in wanted if key in required and key not in found]
    if missing:
        raise ValueError(f"{path} must have all weights of the encoder, got none for {_some(missing)}")
    beyond = _beyond(found, wanted)
    if beyond:
        raise ValueError(f"{path} must be weights of this encoder, got more than it has: {_some(beyond)}")
    loaded = {key: _fit(module, key, found[key], like, wanted) for key, like in wanted.items() if key in found}
    loaded = {key: value for key, value in loaded.items() if key in required or value.shape == wanted[key].shape}
    wrong = [key for key, value in loaded.items() if value.shape != wanted[key].shape]
    if wrong:
        _refuse_shapes(path, wrong, loaded, wanted)
    module.load_state_dict(loaded, strict=False)


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, however deep its state dict lies."""
    if path.is_dir():
        if not (path / "encoder.safetensors").is_file():
            raise ValueError(f"weights must be a file or a run's folder, got {path} without encoder.safetensors")
        path = path / "encoder.safetensors"
    if not path.is_file():
        raise ValueError(f"weights must be a file or a run's folder, got {path}, which does not exist")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"weights must be readable, got {path}: {error}") from None
    if path.suffix not in TORCH_FILES:
        raise ValueError(f"weights must be a file in .safetensors, .pt or .pth, got {path}")
    return _tensors(_unpickled(path), path)


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"weights must be tensors only, got {path}, a pickle with code or other objects in it; it was not run"
        ) from None
    except (RuntimeError, EOFError, OSError, KeyError, ValueError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ValueError(f"weights must be readable, got {path}: {reason}") from None


def _tensors(content: Any, path: Path) -> dict[str, Tensor]:
    inner = content
    while isinstance(inner, Mapping) and (wrapper := next((key for key in WRAPPERS if key in inner), None)):
        if not isinstance(inner[wrapper], Mapping):
            break
        inner = inner[wrapper]
    tensors = (
        {key: value for key, value in inner.items() if isinstance(value, Tensor)} if isinstance(inner, Mapping) else {}
    )
    if not tensors:
        raise ValueError(f"weights must be a dictionary of tensors, got {type(content).__name__} without any in {path}")
    return tensors


def _without_prefix(tensors: dict[str, Tensor], module: nn.Module, path: Path) -> dict[str, Tensor]:
    """The tensors under the prefix that matches most of the module's names, without it."""
    names = set(module.state_dict())
    chains = (itertools.product(PREFIXES, repeat=depth) for depth in range(4))
    prefixes = ["".join(chain) for chain in itertools.chain.from_iterable(chains)]
    # Of equals the first, so the shortest, and `encoder_q.` (MoCo's queries) before `encoder.`.
    best = max(prefixes, key=lambda prefix: sum(prefix + name in tensors for name in names))
    found = {key.removeprefix(best): value for key, value in tensors.items() if key.startswith(best)}
    if not names & set(found):
        got, expected = _some(list(tensors)), _some(list(module.state_dict()))
        raise ValueError(f"{path} must have weights with the encoder's names, such as {expected}; got {got}")
    return found


def _fit(module: nn.Module, key: str, value: Tensor, like: Tensor, wanted: Mapping[str, Tensor]) -> Tensor:
    """`value` in the shape of `like`, in the two cases where that is meant; as it is in all others."""
    first = next((name for name, tensor in wanted.items() if tensor.ndim == 4), None)
    grey = (like.shape[0], 3, *like.shape[2:]) if like.ndim == 4 and like.shape[1] == 1 else None
    if key == first and value.shape == grey:
        return value.sum(dim=1, keepdim=True)
    if isinstance(module, VisionTransformer) and key == "pos_embed" and _is_grid(value, like):
        return resize_positions(value, like.shape[1])
    return value


def _is_grid(positions: Tensor, like: Tensor) -> bool:
    """Whether `positions` are of one class token and a square of patches, another one than those of `like`."""
    if positions.ndim != 3 or positions.shape == like.shape or positions.shape[::2] != like.shape[::2]:
        return False
    patches = positions.shape[1] - 1
    return patches >= 1 and math.isqrt(patches) ** 2 == patches


def _beyond(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """Names in the file that the encoder lacks, in parts that it has: a deeper encoder's, not a head's."""
    parts = {key.split(".")[0] for key in wanted}
    return [key for key in found if key not in wanted and key.split(".")[0] in parts and not _is_classifier(key)]


def _refuse_shapes(path: Path, wrong: list[str], loaded: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    stems = {7: "imagenet", 3: "small"}
    if "conv1.weight" in wrong:
        got, expected = loaded["conv1.weight"].shape, wanted["conv1.weight"].shape
        if len(got) == len(expected) == 4 and got[2] in stems and expected[2] in stems and got[2] != expected[2]:
            raise ValueError(
                f"{path} must have a first convolution of {expected[2]} × {expected[2]} pixels, "
                f"got {got[2]} × {got[2]}: use --set encoder.stem={stems[got[2]]}"
            )
    shapes = [f"{key} {tuple(loaded[key].shape)} for {tuple(wanted[key].shape)}" for key in wrong]
    raise ValueError(f"{path} must have weights of the encoder's shapes, got {_some(shapes)}")


def _is_classifier(key: str) -> bool:
    return key.split(".")[0] in CLASSIFIERS


def _some(names: list[str]) -> str:
    """The first three, and how many more."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
