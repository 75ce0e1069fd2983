"""The table of five minutes is resumed: a cell is measured once, and the pages quote what is stored."""

import argparse
import json

import pytest

from benchmarks import five_minutes
from benchmarks.five_minutes import FREE, LEARNED, UNTRAINED, Source


def cell(figure, **more):
    return {"what": "made up", "figures": {"knn": figure, "five_labels": figure / 2}} | more


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Stand-ins for the runs; what was run, in turn."""
    runs = []

    def run_likewise(source, minutes, seed):
        runs.append((source.name, "likewise", seed))
        return {FREE: cell(0.5), UNTRAINED: cell(0.4), LEARNED: cell(0.7 + 0.1 * seed, seconds=300.0)}

    def run_peer(source, method, minutes, seed):
        runs.append((source.name, method, seed))
        return cell({"simclr": 0.3, "moco": 0.6}[method], seconds=301.0)

    monkeypatch.setattr(five_minutes, "run_likewise", run_likewise)
    monkeypatch.setattr(five_minutes, "run_peer", run_peer)
    monkeypatch.setattr(five_minutes, "machine", lambda: "a machine")
    monkeypatch.setattr(five_minutes, "write_section", lambda *_: pytest.fail("a page was written for a trial"))
    return runs


def run(tmp_path, *words):
    five_minutes.main(["--minutes", "1", "--store", str(tmp_path / "cells.json"), *words])


def test_only_missing_cells_are_measured(tmp_path, measured):
    run(tmp_path, "--only", "digits", "--seeds", "0")
    assert measured == [("digits", "likewise", 0), ("digits", "simclr", 0), ("digits", "moco", 0)]
    stored = json.loads((tmp_path / "cells.json").read_text())
    assert {"figures", "commit", "machine"} <= set(stored["digits | likewise | seed 0 | 1 min"])
    measured.clear()
    run(tmp_path, "--only", "digits", "--seeds", "0", "1")
    assert {seed for _, _, seed in measured} == {1}
    measured.clear()
    run(tmp_path, "--only", "sounds", "--seeds", "0")
    assert measured == [("sounds", "likewise", 0)], "lightly has no method for sounds"
    measured.clear()
    run(tmp_path, "--only", "digits", "--seeds", "1", "--again")
    assert len(measured) == 3


def test_the_summary_has_the_mean_of_the_seeds_and_the_better_peer(tmp_path, measured, capsys):
    run(tmp_path, "--only", "digits", "--seeds", "0", "1")
    row = (
        "| digits | k-NN / 5 labels a class | 0.500 / 0.250 (made up) | 0.400 / 0.200 | 0.750 / 0.375 | 0.600 / 0.300 |"
    )
    printed = capsys.readouterr().out
    assert row in printed
    assert "| digits | likewise: made up | 0.750 ± 0.071 |" in printed


def test_a_file_is_named_with_the_roles_of_its_columns():
    assert Source.from_text("speech=clips.npz,y=digit") == Source("speech", "clips.npz", ("y=digit",))
    for wrong in ("clips.npz", "=clips.npz", "speech=", "speech=clips.npz,digit"):
        with pytest.raises(argparse.ArgumentTypeError):
            Source.from_text(wrong)


def test_figures_are_those_of_evaluate():
    recall = {"recall": {"1": 0.1, "5": 0.2, "10": 0.3}}
    row = {
        "knn": {"accuracy": 0.9},
        "linear": {"accuracy": 0.8},
        "few_labels": {1: {"accuracy": 0.5}, 5: {"accuracy": 0.7}},
    }
    assert five_minutes.figures_of(row) == {"knn": 0.9, "linear": 0.8, "one_label": 0.5, "five_labels": 0.7}
    assert five_minutes.figures_of({"cross_modal": {"image_to_text": recall, "text_to_image": recall}}) == {
        **{"image_to_text_1": 0.1, "image_to_text_10": 0.3},
        **{"text_to_image_1": 0.1, "text_to_image_10": 0.3},
    }
