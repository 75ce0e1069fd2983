"""Run the commands of a page of this documentation, and write what they print into the page.

    python docs/record.py docs/tutorials/photos.md              run, and show what was printed
    python docs/record.py docs/tutorials/photos.md --write      put it into the page
    python docs/record.py docs/tutorials/photos.md --folder x   work in this folder and keep it
    python docs/record.py docs/tutorials/photos.md --folder x --only search --write
                                                                run only the commands with this word in them

A page's commands stand in ```console blocks, each on a line that begins with `$ `; a backslash at its end continues
it. They run one after the other in one empty folder, into which the page's files have been written: ```python blocks
whose first line is a comment with the file's name.

What follows a command in its block is replaced by its output. Where that had a line `…`, only as many lines of the
new output are kept before and after it as there were: the beginning and the end. Lines between two such lines are
replaced by those that begin with the same word. A block whose commands show nothing stays without output. A command
below which `^C` stands is stopped after some seconds. `likewise explore` and `make` are not run.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w./-]+\.\w+)\b.*\n")
LEFT_OUT = "…"
STOPPED, SECONDS = "^C", 15  # what a terminal shows for Ctrl-C, and how long a command runs before it
NOT_RUN = ("likewise explore", "make ")


def files_of(page: str) -> dict[str, str]:
    """Return the content of the files that a page shows, by name."""
    blocks = (block[2] for block in BLOCK.finditer(page) if block[1] == "python")
    return {named[1]: block for block in blocks if (named := FILE.match(block))}


def commands_of(block: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a ```console block as they are written, each with the lines that are shown below it."""
    found: list[tuple[str, list[str]]] = []
    continues = False
    for line in block.splitlines():
        if continues:
            command, _ = found.pop()
            found.append((f"{command}\n{line}", []))
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        continues = (continues or line.startswith("$ ")) and line.endswith("\\")
    return found


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which `likewise` and `python` are those of this checkout and this interpreter."""
    programs = folder / ".bin"
    programs.mkdir(exist_ok=True)
    for name, options in (("python", ""), ("likewise", " -m likewise")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{options} "$@"\n')
        (programs / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LIKEWISE_CACHE": str(folder / ".cache"),
    }


def run(command: str, folder: Path, variables: Mapping[str, str], is_stopped: bool) -> str:
    """Return what a command prints, on both streams; one that is stopped has `^C` before its last line."""
    print(f"$ {command}", flush=True)
    whole = f"timeout --signal=INT {SECONDS} {command}" if is_stopped else command
    done = subprocess.run(
        whole, shell=True, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(done.stdout, flush=True)
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    return "\n".join([*lines[:-1], STOPPED, *lines[-1:]] if is_stopped else lines)


def shortened(output: str, shown: list[str]) -> list[str]:
    """Leave out of an output what is left out of the one that is shown now."""
    lines = output.splitlines()
    if not shown or LEFT_OUT not in shown:
        return lines if shown else []
    places = [place for place, line in enumerate(shown) if line == LEFT_OUT]
    before, after = places[0], len(shown) - places[-1] - 1
    if before + after >= len(lines):
        return lines
    middle = lines[before : len(lines) - after]
    between = [kept(line, middle) for line in shown[before + 1 : len(shown) - after]]
    return [*lines[:before], LEFT_OUT, *between, *lines[len(lines) - after :]]


def kept(line: str, lines: list[str]) -> str:
    """Return the last of the lines that begins as a shown one does, figures aside, or else the shown one."""
    return next((new for new in reversed(lines) if beginning(new) == beginning(line)), line)


def beginning(line: str) -> str:
    """Return the first word of a line, with 0 for every number."""
    return re.sub(r"\d+", "0", (line.split() or [""])[0])


def run_page(path: Path, folder: Path, only: str = "") -> str:
    """Run the commands of a page that contain `only` in a folder, and return the page with what they printed."""
    page, variables = path.read_text(), environment(folder)
    for name, content in files_of(page).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)

    def recorded(block: re.Match[str]) -> str:
        if block[1] != "console":
            return block[0]
        lines: list[str] = []
        for command, shown in commands_of(block[2]):
            if only in command and not command.startswith(NOT_RUN):
                shown = shortened(run(command, folder, variables, STOPPED in shown), shown)
            lines += [f"$ {command}", *shown]
        return "\n".join(["```console", *lines, "```"])

    return BLOCK.sub(recorded, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put the outputs into the pages")
    parser.add_argument("--folder", type=Path, help="where to work; else a folder that is removed afterwards")
    parser.add_argument("--only", default="", help="run only the commands that contain this")
    options = parser.parse_args()
    for path in options.pages:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.folder or Path(temporary)).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            page = run_page(path, folder, options.only)
        if options.write:
            path.write_text(page)


if __name__ == "__main__":
    main()
