"""Print what the commands have to say: sentences, tables and JSON.

File names, labels and captions can contain anything. Everything that is printed passes through `printable`, so that a
name cannot move the cursor, start a new line or reverse the direction of the text after it.
"""

import json
import re
import sys
from typing import Any

import typer

# Characters that a terminal obeys instead of showing: control characters (ESC starts an escape sequence, a carriage
# return overwrites the line), line separators and text direction marks. Surrogates stand for bytes that are not UTF-8.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Escape what a terminal would obey or could not print, as `\\x1b`, `\\n` or `\\udcff`."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def storable(text: str) -> str:
    """Escape only what is not UTF-8, as `\\udcff`, for text that is written to files."""
    return text.encode(errors="backslashreplace").decode()


def say(sentence: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(printable(sentence), err=err)


def note(words: str) -> None:
    """Print a note about a result on standard error; standard output is for results only."""
    say(f"note: {words}", err=True)


def show(rows: list[list[str]], note: str = "") -> None:
    """Print a table, its header being the first row, and a note below it on what the numbers depend on."""
    from rich.console import Console
    from rich.table import Table

    head, *body = ([printable(cell) for cell in row] for row in rows)
    table = Table(*head)
    for row in body:
        table.add_row(*row)
    # A file or a pipe has no width to wrap to. Names such as `a[b]` must not be taken for rich's markup.
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    console.print(table)
    if note:
        console.print(printable(note), style="dim")


def show_figures(figures: dict[str, Any]) -> None:
    """Print the results of an evaluation, what makes them doubtful, and a verdict on the last row, the encoder."""
    from likewise.evaluation.tables import tables

    for table in tables(figures):
        show(table.rows, table.note)
    *_, (name, row) = figures.items()
    for words in figures["about"]["notes"]:
        note(words)
    say(f"{name}: {row['verdict']}")
    if worth := figures["about"]["worth"]:
        say(f"{name}: {worth}")


def show_json(value: Any) -> None:
    """Print a value as JSON, with unprintable characters as JSON escapes."""
    # JSON escapes, unlike Python's, are read back as the original name. A line break here is one between values:
    # `dumps` has already escaped those inside a string.
    text = json.dumps(value, ensure_ascii=False, indent=2)
    typer.echo(UNPRINTABLE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text))


def show_matches(matches: list[dict[str, Any]]) -> None:
    """Print the results of a search."""
    if matches:
        show(as_rows(matches), explanation(matches))
    else:
        typer.echo("nothing found")


def as_rows(matches: list[dict[str, Any]]) -> list[list[str]]:
    """Return items, or groups of items, as rows of text, the header first."""
    grouped = [
        {"group": str(number), **item} | {"similarity": group["similarity"]}
        for number, group in enumerate(matches, 1)
        if "items" in group
        for item in group["items"]
    ]
    rows = grouped or matches
    return [list(rows[0]), *([as_text(value) for value in row.values()] for row in rows)]


def as_text(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def explanation(matches: list[dict[str, Any]]) -> str:
    """Explain the columns of the table."""
    if "items" in matches[0]:
        items = sum(len(group["items"]) for group in matches)
        return f"{items:,} items in {len(matches):,} groups. similarity: lowest cosine of the links that join a group."
    if "share" in matches[0]:
        return "share: share of the neighbours' votes for the suggested label; own: share for the item's own label."
    return "similarity: cosine"
