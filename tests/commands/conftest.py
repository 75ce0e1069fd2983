"""One small run for the commands that want one."""

import os
from pathlib import Path

import pytest
import torch

import likewise
from tests.commands.counted import Counted, ten_pictures


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


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A run on ten pictures, of one step."""
    folder = tmp_path_factory.mktemp("photos")
    pictures = ten_pictures(folder / "pictures")
    return likewise.train(pictures, method="e2e", steps=1, batch_size=4, out=folder / "run", progress=False).folder


@pytest.fixture
def counted(photos):
    return Counted(photos)


@pytest.fixture
def pictures(tmp_path):
    return ten_pictures(tmp_path / "pictures")
