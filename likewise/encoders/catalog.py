"""Encoders by name: ours, or anyone's as `module:callable`."""

import importlib
import inspect
import operator
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from likewise.encoders.batch_norm import check_splits, split_batch_norm
from likewise.encoders.inputs import check_known, check_whole
from likewise.encoders.mlp import MLP
from likewise.encoders.resnet import RESNETS, STEMS, ResNet
from likewise.encoders.sequence import SEQUENCE_ENCODERS
from likewise.encoders.vit import VITS, VisionTransformer

LARGEST_SMALL = 64  # pixels a side up to which a ResNet's stem is small
ENCODERS = (*RESNETS, *VITS, "mlp", *SEQUENCE_ENCODERS)


def build(
    name: str,
    *,
    channels: int = 3,
    size: int = 32,
    features: int | None = None,
    samples: int | None = None,
    stem: str = "auto",
    context: str = "gru",
    bn_splits: int = 1,
) -> nn.Module:
    """An encoder with random weights, and its number of features as `dim`.

    Images (n, channels, size, size), vectors (n, features) or sequences (n, samples, channels) to (n, dim).
    The stem of a ResNet is small up to 64 pixels where not said; `context` is that of an encoder of
    sequences, gru or transformer. `bn_splits` divides a batch into as many groups, each with batch
    statistics of its own.

    `module:callable` is imported, the current directory included, and called; it is given
    `channels`, `size`, `features`, `samples` and `context` where its signature has them. A module without `dim` is
    shown one batch of zeros to find it.
    """
    check_splits(bn_splits)
    if ":" in name:
        data = {"channels": channels, "size": size, "features": features, "samples": samples, "context": context}
        encoder = _from_elsewhere(name, data)
    else:
        check_known("encoder", name, ENCODERS, besides=" or module:callable")
        _check_kind(name, features, samples)
        encoder = _ours(name, channels, size, features, stem, context)
    return split_batch_norm(encoder, bn_splits) if bn_splits > 1 else encoder


def _check_kind(name: str, features: int | None, samples: int | None) -> None:
    taken = "vectors" if name == "mlp" else "sequences" if name in SEQUENCE_ENCODERS else "images"
    got = "vectors" if features is not None else "sequences" if samples is not None else "images"
    if taken != got:
        others = {
            "vectors": "mlp takes",
            "sequences": "audio_16k and others take",
            "images": "resnet_tiny and others take",
        }
        raise ValueError(f"{name} takes {taken}, got {got}; {others[got]} those")


def _ours(name: str, channels: int, size: int, features: int | None, stem: str, context: str) -> nn.Module:
    check_known("stem", stem, ("auto", *STEMS))
    if name in SEQUENCE_ENCODERS:
        return SEQUENCE_ENCODERS[name](channels=channels, context=context)
    if features is not None:
        return MLP(features)
    check_whole("size", size)
    if name in VITS:
        return VITS[name](channels=channels, size=size)
    return RESNETS[name](channels=channels, stem=stem_for(stem, size))


def stem_for(stem: str, size: int) -> str:
    """Return the stem of a ResNet for images of `size` pixels: small up to 64 pixels where it is not said."""
    if stem != "auto":
        return stem
    return "small" if size <= LARGEST_SMALL else "imagenet"


def _from_elsewhere(name: str, data: dict[str, Any]) -> nn.Module:
    make = _imported(name)
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # compiled callables have none
        signature = inspect.Signature()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = {key: value for key, value in data.items() if _kind(signature, key) in by_name}
    try:
        signature.bind(**taken)
    except TypeError as error:
        raise ValueError(
            f"{name} must take {', '.join(data)} by name, or some of them, got {signature}: {error}"
        ) from None
    encoder = make(**taken)
    if not isinstance(encoder, nn.Module):
        raise ValueError(f"{name} must return an nn.Module, got {type(encoder).__name__}")
    if not isinstance(getattr(encoder, "dim", None), int):
        encoder.dim = _find_dim(name, encoder, data)  # type: ignore[assignment]
    return encoder


def _kind(signature: inspect.Signature, name: str) -> Any:
    return signature.parameters[name].kind if name in signature.parameters else None


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # an installed command does not look there, `python -m` does
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that exists but itself misses another keeps its own error.
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(f"encoder must be an importable module:callable, got no module {error.name!r}") from None
        raise
    except (TypeError, ValueError):  # relative or empty names
        raise ValueError(f"encoder must be an importable module:callable, got {name!r}") from None
    try:
        make = operator.attrgetter(attribute)(module)
    except AttributeError:
        raise ValueError(
            f"encoder must be an importable module:callable, got no {attribute!r} in {module_name!r}"
        ) from None
    if not callable(make):
        raise ValueError(f"{name} must be callable, got {type(make).__name__}")
    return make  # type: ignore[no-any-return]


def _find_dim(name: str, encoder: nn.Module, data: dict[str, Any]) -> int:
    """The length of the encoder's features, from one batch of zeros; leaves its modes as they were."""
    item: tuple[Any, ...] = (data["channels"], data["size"], data["size"])
    if data["features"] is not None:
        item = (data["features"],)
    elif data["samples"] is not None:
        item = (data["samples"], data["channels"])
    like = next(iter(encoder.parameters()), torch.empty(0))
    zeros = torch.zeros((2, *item), device=like.device, dtype=like.dtype)
    modes = [(part, part.training) for part in encoder.modules()]
    encoder.eval()
    try:
        with torch.no_grad():
            found = encoder(zeros)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{name} must take a batch of shape {tuple(zeros.shape)}, got: {reason}") from error
    finally:
        for part, training in modes:
            part.training = training
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != 2:
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"{name} must give features of shape (n, d), got {got} for n = 2")
    return found.shape[1]


def layout_of(network: nn.Module) -> dict[str, Any]:
    """Return what torchvision and timm have to know to build the same network: a ResNet's stem, a ViT's patch."""
    if isinstance(network, ResNet):
        return {"stem": "small" if isinstance(network.maxpool, nn.Identity) else "imagenet"}
    if isinstance(network, VisionTransformer):
        return {"patch": network.patch_embed.proj.stride[0]}
    return {}
