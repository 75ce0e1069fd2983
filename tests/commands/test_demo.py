"""The demo: a run of its own each time, as long as it was asked to be, and its evaluation."""

from pathlib import Path

from likewise.commands import demo as module
from likewise.commands.demo import demo


def test_each_demo_has_a_folder_of_its_own_and_the_steps_asked_for(here, monkeypatch):
    monkeypatch.setattr(module, "SOURCE", "digits")  # which is small
    (first, found), (second, again) = demo(steps=2), demo(steps=2)
    assert (first.folder, second.folder) == (Path("runs/demo"), Path("runs/demo-2"))
    assert first.recipe.training.steps == 2
    assert found == again, "every draw follows from the seed"
    assert list(found) == ["about", "raw input", "untrained encoder", "learned encoder"]
    assert found["about"]["test_items"] == 359
    assert first.report.exists()
