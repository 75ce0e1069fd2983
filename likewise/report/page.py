"""The HTML page of a run's report: one file that needs no network.

It renders the dictionary from `contents.py`. Text, figures and the recipe are written as HTML, so that they can be read
without JavaScript; charts, map and pictures are drawn by `charts.js`, `map.js` and `page.js` from embedded JSON.
Captions and names of files and classes may contain anything: they are escaped here, and inserted as text there.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any, NamedTuple

SCRIPTS = ("parts.js", "charts.js", "map.js", "page.js")
DRAWN = ("map", "words", "neighbours", "histogram", "charts", "pairs")  # contents that the scripts draw
SHOWN_AT_ONCE = 10  # warnings or skipped files; more are folded away
READING = "The last value is shown beside each name. Point at a chart, or use the arrow keys, to read other values."


class Section(NamedTuple):
    """A section of the page: its anchor, its heading and the HTML below it."""

    name: str  # the anchor
    short: str  # the text of the link at the top
    heading: str
    below: str
    drawn: bool = False  # drawn by a script, and hidden without JavaScript


def render(contents: Mapping[str, Any]) -> str:
    """Return the whole page as text, to be written as UTF-8."""
    sections = list(_sections(contents))
    return Template(_file("page.html")).substitute(
        title=_text(contents["title"]),
        version=_text(contents["version"]),
        when=_text(contents["when"]),
        worth=_paragraph("worth", contents.get("worth")),
        doubt=_paragraph("doubt", contents.get("doubt")),
        verdict=_paragraph("verdict", contents.get("verdict")),
        jump="\n".join(_link(section) for section in sections),
        sections="\n".join(_html(section) for section in sections),
        contents=_embedded({name: _without_sounds(contents[name]) for name in DRAWN if contents.get(name)}),
        css=_file("page.css"),
        script="\n".join(_file(name) for name in SCRIPTS),
    )


def _sections(contents: Mapping[str, Any]) -> Iterator[Section]:
    """Yield the sections, results first; sections without contents are left out."""
    if figures := contents.get("figures"):
        note = _paragraph("note", contents.get("figures_note"))
        yield Section("figures", "Figures", "Figures", note + _figures(figures))
    if warnings := contents.get("warnings"):
        yield Section(
            "warnings", f"Health ({len(warnings):,})", "Notes on the health of the training", _warnings(warnings)
        )
    for key, name, short in (
        ("map", "map", "Map"),
        ("words", "words", "Words"),
        ("neighbours", "neighbours", "Neighbours"),
        ("histogram", "similarities", "Similarities"),
    ):
        if part := contents.get(key):
            below, players = _paragraph("note", part.get("note")), _players(part)
            yield Section(name, short, part["title"], below + players, drawn=not players)
    if contents.get("charts"):
        yield Section("training", "Training", "Training", _paragraph("note", READING), drawn=True)
    if pairs := contents.get("pairs"):
        yield Section("pairs", "Pairs", pairs["title"], _paragraph("note", pairs.get("note")), drawn=True)
    if about := contents.get("about"):
        below = "".join(f"<dt>{_text(name)}</dt><dd>{_text(words)}</dd>" for name, words in about)
        yield Section("plan", "Plan", "Plan", f'<dl class="plan">{below}</dl>')
    if recipe := contents.get("recipe"):
        yield Section("recipe", "Recipe", "Recipe", f'<pre tabindex="0">{_text(recipe)}</pre>')
    if (skipped := contents.get("skipped")) and skipped["count"]:
        yield Section("skipped", "Skipped files", "Skipped files", _skipped(skipped))


def _link(section: Section) -> str:
    return f'<a href="#{section.name}"{_kind(section)}>{_text(section.short)}</a>'


def _kind(section: Section) -> str:
    return ' class="drawn"' if section.drawn else ""


def _html(section: Section) -> str:
    heading = f"<h2>{_text(section.heading)}</h2>"
    return f'<section id="{section.name}"{_kind(section)}>\n{heading}\n{section.below}\n</section>\n'


def _figures(figures: Sequence[Mapping[str, Any]]) -> str:
    tiles = (
        f'<div><dt>{_text(figure["name"])}</dt><dd class="value">{_text(figure["value"])}</dd>'
        f"{_beside(figure.get('beside') or ())}"
        f'<dd class="how">{_text(figure.get("note") or "")}</dd></div>'
        for figure in figures
    )
    return '<dl class="figures">\n' + "\n".join(tiles) + "\n</dl>"


def _beside(lines: Sequence[Sequence[str]]) -> str:
    """Return what a figure is compared with, a name and a value in each line."""
    cells = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in lines)
    return f'<dd class="beside"><table>{cells}</table></dd>' if cells else ""


def _players(part: Mapping[str, Any]) -> str:
    """Return a list of the rows whose items can be heard; `page.js` puts a button below each picture instead."""
    sounds = part.get("sounds") or {}

    def player(item: Mapping[str, Any], role: str) -> str:
        label = item.get("label")
        name = _text(f"{role}: {item['name']}" + ("" if label is None else f", class {label}"))
        sound = f'<audio controls preload="none" src="{_text(sounds[item["tile"]])}" data-tile="{item["tile"]}"'
        return f'<li>{name} {sound} aria-label="{name}"></audio></li>'

    rows = []
    for row in part["rows"] if sounds else ():
        items = [(row["query"], "query"), *((item, f"neighbour {i}") for i, item in enumerate(row["found"], 1))]
        heard = "".join(player(item, role) for item, role in items if item.get("tile") in sounds)
        rows.append(f"<li><ul>{heard}</ul></li>" if heard else "")
    return f'<ul class="players">{"".join(rows)}</ul>' if rows else ""


def _without_sounds(part: Any) -> Any:
    """Return contents for the scripts; sounds are elements of the page already."""
    return {key: value for key, value in part.items() if key != "sounds"} if isinstance(part, Mapping) else part


def _warnings(warnings: Sequence[str]) -> str:
    items = [f"<li>{_text(warning)}</li>" for warning in warnings]
    shown, more = "".join(items[:SHOWN_AT_ONCE]), items[SHOWN_AT_ONCE:]
    folded = _folded(f"{len(more):,} more", f'<ul class="warnings">{"".join(more)}</ul>') if more else ""
    return f'<ul class="warnings">{shown}</ul>\n{folded}'


def _skipped(skipped: Mapping[str, Any]) -> str:
    count, files, said = skipped["count"], skipped["files"], skipped["said"]
    rows = "".join(f"<tr><td>{_text(name)}</td><td>{_text(reason)}</td></tr>" for name, reason in files)
    table = f"<table><thead><tr><th>file</th><th>reason</th></tr></thead><tbody>{rows}</tbody></table>"
    if len(files) > SHOWN_AT_ONCE:
        which = "all of them" if len(files) == count else f"the first {len(files):,}"
        table = _folded(which, table)
    return f'<p class="note">{_text(said)}.</p>\n{table if files else ""}'


def _paragraph(kind: str, words: str | None) -> str:
    return f'<p class="{kind}">{_text(words)}</p>' if words else ""


def _folded(what: str, html: str) -> str:
    return f"<details><summary>Show {what}</summary>{html}</details>"


def _text(value: object) -> str:
    """Escape text for HTML; bytes of a name that are not UTF-8 become escapes such as `\\udcff`."""
    return escape(str(value).encode("utf-8", "backslashreplace").decode("utf-8"))


def _embedded(value: Any) -> str:
    """Return JSON that is safe inside a script element: ASCII only, and without `<`, which could start a tag."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def plain(value: Any) -> Any:
    """Replace infinity and NaN, which JSON lacks, by None: a diverged loss becomes a gap in its curve."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _file(name: str) -> str:
    return (resources.files("likewise.report") / name).read_text(encoding="utf-8")
