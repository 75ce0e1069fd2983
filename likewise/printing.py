"""What the commands print: tables with what they depend on, JSON; nothing heavy is imported for it.

Names of files and the words in them come from anywhere. All that is printed passes `printable`, so that a name can
neither move the cursor, nor begin a line of its own, nor turn the text after it around.
"""

import json
import re
import sys
from typing import Any

import typer

# What a terminal obeys instead of showing it: control characters (ESC begins a sequence, a carriage return overwrites
# the line), line separators, and marks that change the direction of text. Surrogates are bytes that are not UTF-8.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Write what a terminal would obey, or could not print, as an escape such as `\\x1b`, `\\n` or `\\udcff`."""
    return OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def storable(text: str) -> str:
    """Write what is not UTF-8 as an escape, `\\udcff` say, and leave all else as it is: this is for files."""
    return text.encode(errors="backslashreplace").decode()


def say(sentence: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(printable(sentence), err=err)


def note(words: str) -> None:
    """Say what makes a result doubtful, on standard error: what is found goes to standard output alone."""
    say(f"note: {words}", err=True)


def show(rows: list[list[str]], note: str = "") -> None:
    """Print a table whose first row is its head, and below it what it depends on."""
    from rich.console import Console
    from rich.table import Table

    head, *body = ([printable(cell) for cell in row] for row in rows)
    table = Table(*head)
    for row in body:
        table.add_row(*row)
    # In a file or pipe there is no width to keep to. A name such as `a[b]` is no markup.
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    console.print(table)
    if note:
        console.print(printable(note), style="dim")


def show_figures(found: dict[str, Any]) -> None:
    """Print what an evaluation found."""
    from likewise.evaluation.tables import tables

    for table in tables(found):
        show(table.rows, table.note)
    *_, (name, row) = found.items()
    say(f"{name}: {row['verdict']}")


def show_json(found: Any) -> None:
    # JSON's own escapes read as the same name again. The line breaks are those between values: inside of one,
    # `dumps` has written them as escapes already.
    text = json.dumps(found, ensure_ascii=False, indent=2)
    typer.echo(OBEYED.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text))


def show_found(found: list[dict[str, Any]]) -> None:
    """Print what a search found."""
    if found:
        show(as_rows(found), noted(found))
    else:
        typer.echo("nothing found")


def as_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    """Items, or groups of them, as rows of words, the head first."""
    flat = [
        {"group": str(number), **item} | {"similarity": group["similarity"]}
        for number, group in enumerate(found, 1)
        if "items" in group
        for item in group["items"]
    ]
    rows = flat or found
    return [list(rows[0]), *([as_word(value) for value in row.values()] for row in rows)]


def as_word(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def noted(found: list[dict[str, Any]]) -> str:
    """What the columns mean, where that is not plain."""
    if "items" in found[0]:
        items = sum(len(group["items"]) for group in found)
        return (
            f"{len(found):,} groups of {items:,} items; similarity: the cosine of the weakest link that joins a group."
        )
    if "share" in found[0]:
        return "share: of the neighbours' votes, those for the suggested label; own: those for the item's own."
    return "similarity: cosine"
