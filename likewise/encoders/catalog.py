"""Build encoders by name: those of likewise, or any other as `module:callable`."""

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

LARGEST_SMALL = 64  # pixels per side up to which a ResNet's stem is small by default
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
    """Build an encoder with random weights; its attribute `dim` is the number of its features.

    It maps images (n, channels, size, size), vectors (n, features) or sequences (n, samples, channels) to features
    (n, dim). With the stem "auto", a ResNet has the small stem for images of up to 64 pixels. `context` is the context
    network of a sequence encoder, "gru" or "transformer". `bn_splits` divides a batch into as many groups, each with
    its own batch statistics.

    `module:callable` is imported, also from the current directory, and called with those of `channels`, `size`,
    `features`, `samples` and `context` that its signature has. If the module it returns has no `dim`, one batch of
    zeros is passed through it to find out.
    """
    check_splits(bn_splits)
    if ":" in name:
        data = {"channels": channels, "size": size, "features": features, "samples": samples, "context": context}
        encoder = _imported_encoder(name, data)
    else:
        check_known("encoder", name, ENCODERS, besides=" or module:callable")
        _check_kind(name, features, samples)
        encoder = _built_in(name, channels, size, features, stem, context)
    return split_batch_norm(encoder, bn_splits) if bn_splits > 1 else encoder


def _check_kind(name: str, features: int | None, samples: int | None) -> None:
    expected = "vectors" if name == "mlp" else "sequences" if name in SEQUENCE_ENCODERS else "images"
    got = "vectors" if features is not None else "sequences" if samples is not None else "images"
    if expected != got:
        suitable = {
            "vectors": "mlp takes",
            "sequences": "audio_16k and others take",
            "images": "resnet_tiny and others take",
        }
        raise ValueError(f"{name} takes {expected}, got {got}; {suitable[got]} those")


def _built_in(name: str, channels: int, size: int, features: int | None, stem: str, context: str) -> nn.Module:
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
    """Return the stem of a ResNet for images of `size` pixels: small up to 64 pixels if it is "auto"."""
    if stem != "auto":
        return stem
    return "small" if size <= LARGEST_SMALL else "imagenet"


def takes_any_size(name: str) -> bool:
    """Return whether this is known to be an encoder of images of any size: a ResNet."""
    return name in RESNETS


def _imported_encoder(name: str, data: dict[str, Any]) -> nn.Module:
    make = _import_callable(name)
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # compiled callables have no signature
        signature = inspect.Signature()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    arguments = {key: value for key, value in data.items() if _parameter_kind(signature, key) in by_name}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"{name} must take {', '.join(data)} by name, or some of them, got {signature}: {error}"
        ) from None
    encoder = make(**arguments)
    if not isinstance(encoder, nn.Module):
        raise ValueError(f"{name} must return an nn.Module, got {type(encoder).__name__}")
    if not isinstance(getattr(encoder, "dim", None), int):
        encoder.dim = _find_dim(name, encoder, data)  # type: ignore[assignment]
    return encoder


def _parameter_kind(signature: inspect.Signature, name: str) -> Any:
    return signature.parameters[name].kind if name in signature.parameters else None


def _import_callable(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # an installed command, unlike `python -m`, does not search there
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the module exists but cannot import another one, let that error pass.
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
    """Return the number of the encoder's features, found by one batch of zeros; its training modes stay the same."""
    item: tuple[Any, ...] = (data["channels"], data["size"], data["size"])
    if data["features"] is not None:
        item = (data["features"],)
    elif data["samples"] is not None:
        item = (data["samples"], data["channels"])
    parameter = next(iter(encoder.parameters()), torch.empty(0))
    zeros = torch.zeros((2, *item), device=parameter.device, dtype=parameter.dtype)
    modes = [(part, part.training) for part in encoder.modules()]
    encoder.eval()
    try:
        with torch.no_grad():
            features = encoder(zeros)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{name} must take a batch of shape {tuple(zeros.shape)}, got: {reason}") from error
    finally:
        for part, training in modes:
            part.training = training
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"{name} must give features of shape (n, d), got {got} for n = 2")
    return features.shape[1]


def layout_of(network: nn.Module) -> dict[str, Any]:
    """Return what is needed to build the same network in torchvision or timm: a ResNet's stem, a ViT's patch size."""
    if isinstance(network, ResNet):
        return {"stem": "small" if isinstance(network.maxpool, nn.Identity) else "imagenet"}
    if isinstance(network, VisionTransformer):
        return {"patch": network.patch_embed.proj.stride[0]}
    return {}
