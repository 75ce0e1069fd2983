"""One small run for the commands that want one."""

import os
from pathlib import Path

import pytest
import torch

import likewise


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Small tensors are quicker on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """SimCLR on the small digits, a few steps."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    return likewise.train("digits", method="simclr", steps=40, batch_size=128, out=folder, progress=False)


@pytest.fixture
def here(tmp_path):
    """Work in a folder of its own."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)
