"""Before torch is imported: one thread. What is tested is small, and two wait long for each other on a busy machine."""

import atexit
import os
import shutil
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.maps import plain_maps

os.environ.setdefault("OMP_NUM_THREADS", "1")
# The secret that runs are marked with, and decoded data: the user's own are left alone; processes of tests share these.
for name in ("LIKEWISE_CONFIG", "LIKEWISE_CACHE"):
    if name not in os.environ:
        os.environ[name] = tempfile.mkdtemp(prefix="likewise-tests-")
        atexit.register(shutil.rmtree, os.environ[name], ignore_errors=True)
if sys.argv[0] == "-c":  # a process of pytest-xdist: what it runs is a program that can be started anew
    sys.argv[0] = "pytest"

# A busy machine may take long over an example, or over drawing it. That is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# The files that take longest, the longest first. They are started first, so that at the end of the suite no
# process waits for another that still has a long file before it.
LONGEST = (
    *("docs/test_pages.py", "training/test_ranks.py", "commands/test_export.py", "explorer/test_page.py"),
    *("training/test_resume.py", "commands/test_captions.py", "training/test_methods.py", "commands/test_evaluate.py"),
    *("docs/test_commands.py", "docs/test_site.py"),
    *("report/test_page.py", "commands/test_search.py", "training/test_run.py", "test_cli.py"),
    *("training/test_checkpoint.py", "losses/test_streamed.py", "losses/test_properties.py", "losses/test_faults.py"),
    *("training/test_captions.py", "search/test_duplicates.py", "training/test_sequences.py", "test_recipes.py"),
    *("fuzz/test_fuzz.py", "search/test_index.py", "explorer/test_progress.py", "losses/test_formulas.py"),
    *("training/test_recipe.py", "commands/test_embed.py", "commands/test_sequences.py", "commands/test_finetune.py"),
    *("commands/test_demo.py", "explorer/test_server.py", "report/test_contents.py", "test_threads.py"),
)


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
