"""Tokens that every encoder of text refuses, with the sentence that it must say."""

import torch


def refused_tokens(make, length):
    """Return calls that must fail, by their sentence; `make` builds an encoder of at most `length` tokens."""
    sentence = f"tokens must be whole numbers of shape (n, t), t at most {length}, got"
    return {
        f"{sentence} torch.int64 of (5,)": lambda: make()(torch.ones(5).long()),
        f"{sentence} torch.int64 of (2, 3, 4)": lambda: make()(torch.ones(2, 3, 4).long()),
        f"{sentence} torch.float32 of (2, 3)": lambda: make()(torch.ones(2, 3)),
        f"{sentence} torch.int64 of (2, {length + 1})": lambda: make()(torch.ones(2, length + 1).long()),
        f"{sentence} torch.int64 of (2, 0)": lambda: make()(torch.ones(2, 0).long()),
    }
