"""Load weights into an encoder: torchvision's, timm's, transformers', a published checkpoint's, or those of a run.

No code in a file is executed: safetensors holds only tensors, and a torch file is read with `weights_only=True`. The
file must have every weight of the encoder, otherwise loading raises an error; classifiers and projection heads in it
are ignored.
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

from likewise.encoders.bert import Bert
from likewise.encoders.vit import VisionTransformer, resize_positions

TORCH_FILES = (".pt", ".pth", ".ckpt", ".bin", ".tar")  # MoCo's are called .pth.tar
WRAPPERS = ("state_dict", "model")
PREFIXES = ("module.", "encoder_q.", "encoder.", "backbone.", "model.", "_orig_mod.", "bert.")
CLASSIFIERS = ("fc", "head", "classifier")
CONSTANTS = ("position_ids", "token_type_ids")  # buffers without weights, which older versions of transformers saved
BERT_POSITIONS = "embeddings.position_embeddings.weight"


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Load the weights of a file, or of a run's folder, into `module`; on an error the module stays unchanged.

    If the encoder takes one channel and the file three, the first convolution is summed over its channels, which gives
    the same result for a grey image. A ViT's positions are resized to its grid. If the file has positions for longer
    texts than a BERT reads, the first of them are used.
    """
    path = Path(path)
    tensors = _with_current_names(_without_prefix(_read(path), module, path))
    expected = module.state_dict()
    required = {key for key in expected if not key.endswith("num_batches_tracked") and not _is_classifier(key)}
    missing = [key for key in expected if key in required and key not in tensors]
    if missing:
        raise ValueError(f"{path} must have all weights of the encoder, got none for {_some(missing)}")
    surplus = _surplus(tensors, expected)
    if surplus:
        raise ValueError(f"{path} must be weights of this encoder, got more than it has: {_some(surplus)}")
    fitted = {key: _fit(module, key, tensors[key], like, expected) for key, like in expected.items() if key in tensors}
    fitted = {key: value for key, value in fitted.items() if key in required or value.shape == expected[key].shape}
    mismatched = [key for key, value in fitted.items() if value.shape != expected[key].shape]
    if mismatched:
        _raise_on_shapes(path, mismatched, fitted, expected)
    module.load_state_dict(fitted, strict=False)


def _read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name, also if its state dict is nested."""
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
    """Return the tensors under the prefix that matches most of the module's names, with the prefix removed."""
    names = set(module.state_dict())
    chains = (itertools.product(PREFIXES, repeat=depth) for depth in range(4))
    prefixes = ["".join(chain) for chain in itertools.chain.from_iterable(chains)]
    # `max` takes the first of equals, so the shortest, and `encoder_q.` (MoCo's query encoder) before `encoder.`.
    best = max(prefixes, key=lambda prefix: sum(prefix + name in tensors for name in names))
    matching = {key.removeprefix(best): value for key, value in tensors.items() if key.startswith(best)}
    if not names & set(matching):
        got, expected = _some(list(tensors)), _some(list(module.state_dict()))
        raise ValueError(f"{path} must have weights with the encoder's names, such as {expected}; got {got}")
    return matching


def _with_current_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename `LayerNorm.gamma` and `.beta`, as Google's own BERT files still have them, to `.weight` and `.bias`."""
    return {
        key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): value
        for key, value in tensors.items()
    }


def _fit(module: nn.Module, key: str, value: Tensor, like: Tensor, expected: Mapping[str, Tensor]) -> Tensor:
    """Convert the first convolution to grey images, and positions to a ViT's grid or a BERT's length."""
    first_convolution = next((name for name, tensor in expected.items() if tensor.ndim == 4), None)
    colour_shape = (like.shape[0], 3, *like.shape[2:]) if like.ndim == 4 and like.shape[1] == 1 else None
    if key == first_convolution and value.shape == colour_shape:
        return value.sum(dim=1, keepdim=True)
    if isinstance(module, VisionTransformer) and key == "pos_embed" and _is_grid(value, like):
        return resize_positions(value, like.shape[1])
    if isinstance(module, Bert) and key == BERT_POSITIONS and value.ndim == 2:
        return value[: len(like)]
    return value


def _is_grid(positions: Tensor, like: Tensor) -> bool:
    """Return whether `positions` belong to a class token and a square grid, but another grid than those of `like`."""
    if positions.ndim != 3 or positions.shape == like.shape or positions.shape[::2] != like.shape[::2]:
        return False
    patches = positions.shape[1] - 1
    return patches >= 1 and math.isqrt(patches) ** 2 == patches


def _surplus(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Return names in the file that the encoder lacks, within its own modules: a deeper encoder's, not a head's."""
    parts = {key.split(".")[0] for key in expected}
    surplus = [key for key in tensors if key not in expected and key.split(".")[0] in parts]
    return [key for key in surplus if not _is_classifier(key) and key.split(".")[-1] not in CONSTANTS]


def _raise_on_shapes(path: Path, wrong: list[str], loaded: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    stems = {7: "imagenet", 3: "small"}
    if "conv1.weight" in wrong:
        got, expected = loaded["conv1.weight"].shape, wanted["conv1.weight"].shape
        if len(got) == len(expected) == 4 and got[2] in stems and expected[2] in stems and got[2] != expected[2]:
            raise ValueError(
                f"{path} must have a first convolution of {expected[2]} × {expected[2]} pixels, "
                f"got {got[2]} × {got[2]}: use --set encoder.stem={stems[got[2]]}"
            )
    if tokens := [key for key in wrong if key.endswith(("word_embeddings.weight", "token_embed.weight"))]:
        count = len(loaded[tokens[0]])
        raise ValueError(
            f"{path} must have embeddings of {len(wanted[tokens[0]]):,} tokens, got {count:,}: give the tokenizer.json "
            "that belongs to it with --set text.tokenizer=FILE"
        )
    shapes = [f"{key} {tuple(loaded[key].shape)} for {tuple(wanted[key].shape)}" for key in wrong]
    raise ValueError(f"{path} must have weights of the encoder's shapes, got {_some(shapes)}")


def _is_classifier(key: str) -> bool:
    return key.split(".")[0] in CLASSIFIERS


def _some(names: list[str]) -> str:
    """List the first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
