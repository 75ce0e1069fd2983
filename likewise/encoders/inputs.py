"""Validate the arguments of encoders; an invalid one raises a `ValueError` of one sentence."""

import difflib
from collections.abc import Iterable

from torch import Tensor


def check_whole(name: str, number: int | None) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} must be a whole number >= 1, got {number!r}")


def check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be a share from 0 to below 1, got {dropout:g}")


def check_tokens(tokens: Tensor, length: int) -> None:
    """Raise an error unless tokens are whole numbers (n, t), t from 1 to `length`."""
    if tokens.ndim != 2 or tokens.is_floating_point() or not 1 <= tokens.shape[1] <= length:
        got = f"{tokens.dtype} of {tuple(tokens.shape)}"
        raise ValueError(f"tokens must be whole numbers of shape (n, t), t at most {length}, got {got}")


def check_images(images: Tensor, channels: int, size: int | None = None) -> None:
    """Raise an error unless images are (n, channels, h, w), and of this size if one is given."""
    if images.ndim != 4 or images.shape[1] != channels or (size and images.shape[2:] != (size, size)):
        expected = f"(n, {channels}, {size}, {size})" if size else f"(n, {channels}, h, w)"
        raise ValueError(f"images must be of shape {expected}, got {tuple(images.shape)}")


def check_known(what: str, name: str, known: Iterable[str], besides: str = "") -> None:
    """Raise an error unless `name` is one of the `known` names; the error suggests the nearest one."""
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{what} must be one of {', '.join(names)}{besides}, got {name!r}{hint}")
