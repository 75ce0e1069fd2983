"""The reference says what the code says: generated pages are up to date, tables are whole, figures are measured."""

import inspect
import pydoc
import re
import tomllib
from dataclasses import dataclass

import pytest
import typer
from docutils import nodes

import likewise
from benchmarks import quote
from docs import generate
from docs._ext.comments import field_comments
from docs._ext.docstrings import as_rst
from docs._ext.mathml import to_mathml
from docs._ext.outside import PAGES, with_links
from docs.recipe_keys import RANGES
from likewise import methods
from likewise.cli import app
from likewise.encoders import ENCODERS, SEQUENCE_ENCODERS, build
from likewise.encoders.resnet import RESNETS
from likewise.recipe import known_keys
from tests.docs.markdown import DOCS, ROOT, name_of, pages

MARKED = re.compile(r"<!-- (\w+) -->(.*?)<!-- /\1 -->", flags=re.DOTALL)
QUOTED = [(name_of(page), name, text.strip()) for page in pages() for name, text in MARKED.findall(page.read_text())]
OPTIONS = ({"stem": "small", "context": "gru"}, {"stem": "imagenet", "context": "transformer"})
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text()
BY_HAND = re.compile(r"^\| `(\w+)` \|(.*)\|$", flags=re.MULTILINE)


@pytest.mark.parametrize("name", generate.PAGES)
def test_generated_pages_are_up_to_date(name):
    assert (generate.REFERENCE / name).read_text() == generate.PAGES[name](), "make docs-generate writes it again"


def test_the_recipe_page_has_every_key_with_a_word_about_it():
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", generate.recipe_page(), flags=re.MULTILINE)
    cells = {key: row.split(" | ") for key, row in rows if key not in methods.METHODS}
    assert list(cells) == known_keys()
    for key, row in cells.items():
        assert len(row) == 5
        assert all(cell.strip() for cell in row), key
        assert len(re.findall(r"\w+", row[-1])) >= 3, f"{key} needs a comment in likewise/recipe.py"


OUTSIDE = {
    "seed": -1,
    "data.size": -1,
    "data.early_size": 1,
    "data.stored": -1,
    "data.test": 1.0,
    "data.rate": 999,
    "data.workers": 257,
    "pairs.window": -1,
    "pairs.horizon": 0,
    "pairs.candidates": 0,
    "encoder.dim": 0,
    "encoder.bn_splits": 0,
    "text.vocabulary": 258,
    "text.dropout": 1.0,
    "keys.momentum": 1.01,
    "dictionary.size": 0,
    "dictionary.momentum": 1.01,
    "dictionary.negatives": 0,
    "loss.temperature": 0.0,
    "loss.proximal": -0.1,
    "loss.margin": -0.1,
    "loss.sigma": -0.1,
    "loss.weight": 0.0,
    "optimizer.lr": 0.0,
    "optimizer.momentum": 1.0,
    "optimizer.weight_decay": -0.1,
    "optimizer.warmup": 1.01,
    "optimizer.clip": -0.1,
    "training.epochs": 0,
    "training.steps": -1,
    "training.batch_size": 1,
    "training.devices": 0,
    "training.chunk": -1,
    "training.log_every": 0,
    "training.checkpoint_every": 0,
    "training.evaluate_every": 0,
}
# Data and methods that read the keys which simclr on digits does not.
READING = {
    "data.rate": ("sounds", "cpc"),
    "pairs.window": ("sounds", "cpc"),
    "pairs.horizon": ("sounds", "cpc"),
    "pairs.candidates": ("sounds", "cpc"),
    "text.vocabulary": ("shapes", "clip"),
    "text.dropout": ("shapes", "clip"),
    "keys.momentum": ("digits", "moco"),
    "dictionary.size": ("digits", "moco"),
    "dictionary.momentum": ("digits", "instdisc"),
    "dictionary.negatives": ("digits", "instdisc"),
    "loss.proximal": ("digits", "instdisc"),
    "loss.margin": ("digits", "triplet"),
    "loss.sigma": ("digits", "dcl"),
}


@pytest.mark.parametrize("key", RANGES)
def test_a_number_outside_of_its_range_is_refused(key, tmp_path):
    source, method = READING.get(key, ("digits", "simclr"))
    values = {"training.epochs": 1, "training.batch_size": 64, key: OUTSIDE[key]}
    word = {"data.stored": "size", "data.rate": "samples a second"}.get(key, key.rpartition(".")[2])
    with pytest.raises(ValueError, match=rf"{word}.* got "):
        likewise.train(source, method=method, settings=values, out=tmp_path / "run", progress=False)


def test_only_these_encoders_read_stem_and_context():
    """The page says ResNets, and encoders of audio and series."""
    for name in ENCODERS:
        sizes = {"samples": 800, "channels": 1} if name in SEQUENCE_ENCODERS else {}
        sizes |= {"features": 8} if name == "mlp" else {}
        small, other = (
            {k: v.shape for k, v in build(name, **sizes, **options).state_dict().items()} for options in OPTIONS
        )
        assert (small != other) == (name in RESNETS or name in SEQUENCE_ENCODERS), name


def test_the_methods_page_has_the_methods_as_they_are():
    rows = dict(BY_HAND.findall((DOCS / "reference" / "methods.md").read_text()))
    for name, *words in methods.table()[1:]:
        assert name in rows
        assert [cell.strip() for cell in rows[name].split("|")] == words


def test_the_extras_are_listed_as_they_are():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    rows = dict(BY_HAND.findall((DOCS / "reference" / "extras.md").read_text()))
    assert list(rows) == list(extras)
    for name in set(extras) - {"all", "dev"}:
        packages = [re.match(r"[\w-]+", requirement)[0] for requirement in extras[name]]
        assert sorted(packages) == sorted(rows[name].split("|")[0].strip().split(", ")), name


def test_the_python_page_says_how_each_command_is_called():
    rows = {name: row.split("|") for name, row in BY_HAND.findall((DOCS / "reference" / "python.md").read_text())}
    commands = typer.main.get_command(app).commands
    assert list(rows) == list(commands)
    for name, (function, differences) in rows.items():
        called = pydoc.locate(re.search(r"`([\w.]+)`", function)[1])
        renamed = dict(re.findall(r"`--([\w-]+)` is `(\w+)", differences))
        assert callable(called), name
        if inspect.isclass(called):  # its methods are the questions of the command
            continue
        parameters = inspect.signature(called).parameters
        options = {word.lstrip("-") for item in commands[name].params for word in item.opts if word.startswith("-")}
        assert set(renamed) <= options, name
        for option in options - {"json"}:
            assert renamed.get(option, option.replace("-", "_")) in parameters, f"{name} --{option}"


def test_the_python_page_has_everything_that_is_public():
    page = (DOCS / "reference" / "python.md").read_text()
    listed = re.findall(r"^\.\. auto\w+:: likewise\.(\w+)", page, flags=re.MULTILINE)
    assert set(likewise.__all__) <= set(listed)


@pytest.mark.parametrize(("page", "name", "text"), QUOTED, ids=[f"{page}-{name}" for page, name, _ in QUOTED])
def test_quoted_figures_are_the_measured_ones(page, name, text):
    assert text
    assert text == quote.quoted(name, RESULTS), "python -m benchmarks.quote quotes them again"


def test_every_table_that_can_be_quoted_was_measured():
    assert {name for _, name, _ in QUOTED} == set(quote.SOURCES)
    assert None not in [quote.quoted(name, RESULTS) for name in quote.SOURCES]


def test_figures_are_quoted_wherever_they_are_wanted(tmp_path):
    (tmp_path / "docs" / "_build").mkdir(parents=True)
    before = "a\n<!-- search -->\nold\n<!-- /search -->\nb\n<!-- embed -->\nkept\n<!-- /embed -->\n"
    for name in ("README.md", "docs/page.md", "docs/_build/page.md"):
        (tmp_path / name).write_text(before)
    (tmp_path / "README.zh.md").write_text("c\n")
    table = "| index | time |\n| --- | ---: |\n| flat | 1 \\1 |"
    other = table.replace("flat", "other")
    (tmp_path / "RESULTS.md").write_text(f"## Other\n\n{other}\n\n## Search\n\nwords\n\n{table}\n\nwords\n")
    quote.quote_in_pages(tmp_path, tmp_path / "RESULTS.md")
    after = before.replace("\nold\n", f"\n\n{table}\n\n")
    assert (tmp_path / "README.md").read_text() == (tmp_path / "docs/page.md").read_text() == after
    assert (tmp_path / "README.zh.md").read_text() == "c\n"
    assert (tmp_path / "docs/_build/page.md").read_text() == before


@pytest.mark.parametrize("page", quote.pages(), ids=name_of)
def test_figures_in_sentences_are_measured_ones(page):
    """Tables are compared above; these are typed by hand."""
    assert not list(quote.unmeasured(page))


def test_figures_in_sentences_are_seen():
    page = (
        "It takes 1,413 ms and 8 MiB, 46.5 毫秒，\nhas 1,445 images/s, 3.5× of 9×, an error of 1.0e-06 and 0.454.\n\n"
    )
    not_typed = "```text\n5 ms\n```\n`6 ms`, 3 × 4, 10,000 items, 0.5, 65,536 keys × 128, v1.2.345, 0.07\n"
    assert list(quote.typed_figures(page + not_typed)) == [
        *((1, figure) for figure in ("1,413 ms", "8 MiB", "46.5 ms")),
        *((2, figure) for figure in ("1,445", "3.5×", "9×", "1.0e-06", "0.454")),
    ]


def test_a_figure_that_was_not_measured_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(quote, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("At 0.005, 203 ms and 204 ms; k-NN 0.987.\n\n```console\nk-NN 0.987\n```\n")
    monkeypatch.setattr(quote, "RESULTS", tmp_path / "RESULTS.md")
    (tmp_path / "RESULTS.md").write_text("| 203 ms | 1,204 ms |")
    assert list(quote.unmeasured(tmp_path / "page.md")) == [(1, "204 ms")]


@dataclass
class Commented:
    """A dataclass with comments in every place."""

    first: int = 0  # at the end
    # Above the field,
    # on two lines.
    second: int = 0
    third: tuple[int, ...] = (
        1,  # inside
    )
    fourth: int = 0  # begun here,
    #                  and ended here
    fifth: int = 0

    def method(self) -> int:
        return self.first  # of no field


def test_comments_of_fields_are_read_wherever_they_stand():
    assert field_comments(Commented) == {
        "first": "at the end",
        "second": "Above the field, on two lines.",
        "third": "inside",
        "fourth": "begun here, and ended here",
        "fifth": "",
    }


def test_docstrings_become_restructured_text():
    lines = ["Rows `x` (n, d) * 2 of `a_`s | b.", "", "name         what it is", "other        too", "", "end_"]
    assert as_rst(lines) == [
        r"Rows ``x`` (n, d) \* 2 of ``a_``\ s \| b.",
        "",
        "::",
        "",
        "    name         what it is",
        "    other        too",
        "",
        r"end\_",
        "",
    ]


def test_formulas_become_mathml():
    node = nodes.math()
    assert "<mi>log</mi>\n  <mspace" in to_mathml(node, r"\log N \dots", as_block=False)
    assert "<mtable" in to_mathml(node, r"a &= b \\ c &= d", as_block=True)
    assert to_mathml(node, r"\lVert q - k^+ \rVert^2", as_block=True) == to_mathml(node, r"{\| q - k^+ \|}^2", True)


def test_links_of_included_files_start_from_the_page():
    text = "[a](docs/start/data.md#b) [c](benchmarks/RESULTS.md) [d](https://e.org/f)\n\n```text\n[g](h.md)\n```\n"
    moved = with_links(text, ROOT / "CONTRIBUTING.md", DOCS / "background" / "page.md", DOCS)
    assert moved.startswith("[a](../start/data.md#b) [c](results.md) [d](https://e.org/f)\n")
    assert "[g](h.md)" in moved


def test_pages_that_show_files_from_outside_exist():
    for page in PAGES.values():
        assert (DOCS / f"{page}.md").exists()
