"""What the commands print: tables with what they depend on, JSON; nothing heavy is imported for it.

Names of files are bytes, and need not be text: what cannot be printed or stored as UTF-8 becomes `\\udcff`, say.
"""

import json
import sys
from typing import Any

import typer


def printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def note(words: str) -> None:
    """Say what makes a result doubtful, on standard error: what is found goes to standard output alone."""
    typer.echo(f"note: {printable(words)}", err=True)


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
    typer.echo(f"{name}: {row['verdict']}")


def show_json(found: Any) -> None:
    # What is no UTF-8 becomes an escape of JSON's own, which reads as the file's name again.
    typer.echo(printable(json.dumps(found, ensure_ascii=False, indent=2)))


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
