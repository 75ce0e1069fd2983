"""The command line: it parses, calls one function of the library, and prints.

likewise demo
"""

from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Learn which of your data are alike, with no labels."
)


def print_version(wanted: bool) -> None:
    if wanted:
        from likewise import __version__

        typer.echo(f"likewise {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learn which of your data are alike, with no labels."""


@app.command()
def demo(seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Draws the example.")] = 0) -> None:
    """Every loss on the same small example, from rows that have nothing in common to close views."""
    from rich.console import Console
    from rich.table import Table

    from likewise.demo import SETTINGS, run_demo

    table = Table(
        title="Two views of 512 items, d = 64: every loss falls as the views come closer",
        caption="Strangers start above chance: random similarities spread.\nWith two rows a label, sup_con is nt_xent.",
    )
    table.add_column("loss")
    for name in (*SETTINGS, "at chance"):
        table.add_column(name, justify="right")
    for row in run_demo(seed):
        at_chance = "" if row.chance is None else f"{row.chance:.3f}"
        table.add_row(row.loss, *(f"{value:.3f}" for value in row.values), at_chance)
    Console().print(table)


def main() -> None:
    app()
