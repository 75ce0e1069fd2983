"""Store a study's results: its section of `studies/README.md`, its picture, and every single measurement.

Each measurement is written with its settings to `runs/studies/NAME.jsonl` as soon as it is made. A study that is
started again reuses these measurements; delete the file to measure again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import measure

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
KEPT = FOLDER.parent / "runs" / "studies"
INTRO = """# Studies

The field's claims, measured again, small enough for one core and twenty minutes each. Every section is written by
its script, figures, picture and sentences; `python -m studies.NAME` from the root of the repository writes it anew.
"""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # told apart by colour-blind eyes, too
# Outlines instead of letters: the picture looks the same whatever fonts a reader has.
STYLE = {"font.size": 12, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "likewise"}


def measured_once(study: str, settings: Mapping[str, Any], measurement: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured with these settings before, or else is measured now and kept."""
    path = KEPT / f"{study}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in lines:
        if line["settings"] == settings:
            return dict(line["measured"])
    measured = measurement()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"settings": settings, "measured": measured}) + "\n")
    return measured


def write_section(title: str, parts: Sequence[str]) -> None:
    """Put a study's section on the page, in the place of the one with the same title."""
    measure.write_section(title, "\n\n".join(parts), PAGE, INTRO)


def print_row(*cells: str) -> None:
    """A row of a Markdown table, as soon as it is known."""
    print("| " + " | ".join(cells) + " |", flush=True)


def picture(name: str, words: str, width: float, height: float, draw: Callable[[Figure], object]) -> str:
    """Draw `studies/NAME.svg`, on white so that it can be read on any page; its Markdown, with words for who cannot."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        draw(figure)
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    return f"![{words}]({name}.svg)"


def grid(axes: Axes) -> None:
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
