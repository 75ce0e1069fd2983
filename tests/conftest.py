"""Before torch is imported: one thread. What is tested is small, and two wait long for each other on a busy machine."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests.maps import plain_maps

os.environ.setdefault("OMP_NUM_THREADS", "1")
if sys.argv[0] == "-c":  # a process of pytest-xdist: what it runs is a program that can be started anew
    sys.argv[0] = "pytest"

# A busy machine may take long over an example, or over drawing it. That is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# The files that take longest, the longest first. They are started first, so that at the end of the suite no
# process waits for another that still has a long file before it.
LONGEST: tuple[str, ...] = ()


def pytest_configure(config):
    """Let pytest-xdist share out files in the order below, and not those of most tests first."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(order)))


@pytest.fixture(scope="session", autouse=True)
def quick_reports():
    """Spare every run the t-SNE of its report; the tests of reports and of the explorer ask for it."""
    with plain_maps():
        yield
