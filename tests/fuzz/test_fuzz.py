"""Damaged files, runs and requests end in one sentence or are read: no traceback, no hang, bounded memory."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 3600  # seconds for all inputs; they only bound a hang


def campaign(folder, first, count):
    """How often damaged inputs were read and refused; what is worse fails, with the number that makes it anew."""
    words = [sys.executable, "-m", "tests.fuzz.campaign", str(folder), str(first), str(count)]
    environment = {**os.environ, "LIKEWISE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    said = [json.loads(line) for line in process.stdout.splitlines()]
    outcomes = {line["input"]: line for line in said if "outcome" in line}
    begun = [line for line in said if line["input"] not in outcomes]
    assert process.returncode == 0, f"it did not survive {begun}: {process.stderr[-5000:]}"
    worse = [line for line in outcomes.values() if line["outcome"] not in ("read", "refused")]
    assert not worse, "\n".join(f"input {line['input']}, {line['kind']}: {line['outcome']}" for line in worse)
    assert "Traceback" not in process.stderr, process.stderr[-5000:]
    assert list(outcomes) == list(range(first, first + count))
    return Counter(line["outcome"] for line in outcomes.values())


def test_damaged_inputs_are_read_or_refused(tmp_path):
    outcomes = campaign(tmp_path, 0, 54)
    assert outcomes["refused"] > 5, "most damage is found"


@pytest.mark.slow
@pytest.mark.parametrize("first", [1_000, 2_000, 3_000])
def test_many_damaged_inputs_are_read_or_refused(tmp_path, first):
    assert sum(campaign(tmp_path, first, 540).values()) == 540
