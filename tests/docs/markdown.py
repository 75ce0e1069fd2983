"""Read Markdown: its blocks of code, the commands in them with what they print, links and headings."""

import re
import shlex
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCED = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<code>.*?)^ *(?P=fence) *$", re.DOTALL | re.MULTILINE
)
CONTINUED = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")  # a here-document, up to a line of this word
STARTED = re.compile(r"(?:torchrun .*-m |srun )?likewise ")
FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")
LINK = re.compile(r"\]\(\s*<?([^()\s>]+(?:\([^()\s]*\))?)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A block of code."""

    language: str
    code: str
    line: int  # of its first line, counted from 1


@dataclass
class Command:
    """A command of a console block, and what the page shows below it."""

    text: str
    line: int
    shown: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        return "\n".join(self.shown).strip()


def pages() -> list[Path]:
    """Every Markdown file that people read."""
    folders = [
        ROOT.glob("*.md"),
        DOCS.rglob("*.md"),
        (ROOT / "benchmarks").glob("*.md"),
        (ROOT / "studies").glob("*.md"),
    ]
    found = [page for folder in [*folders, (ROOT / ".github").rglob("*.md")] for page in folder]
    return sorted(page for page in found if not page.is_relative_to(DOCS / "_build"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """Return the blocks of code of a page, also those in lists and notes."""
    return [
        Block(block["info"].strip(), textwrap.dedent(block["code"]), text.count("\n", 0, block.start("code")) + 1)
        for block in FENCED.finditer(text)
    ]


def files(text: str) -> dict[str, str]:
    """Return the files that a page shows: Python or TOML whose first line is a comment with the file's name."""
    shown = [block for block in blocks(text) if block.language in ("python", "toml")]
    return {name[1]: block.code for block in shown if (name := FILE_NAME.match(block.code))}


def commands(text: str) -> list[Command]:
    """Return the commands of the console blocks of a page, in order."""
    found: list[Command] = []
    for block in blocks(text):
        if block.language != "console":
            continue
        lines = list(enumerate(block.code.splitlines(), block.line))
        first = len(found)
        while lines:
            line, words = lines.pop(0)
            if words.startswith("$ "):
                found.append(Command(words.removeprefix("$ "), line))
                while lines and is_unfinished(found[-1].text):
                    found[-1].text += "\n" + lines.pop(0)[1].removeprefix("> ")
            elif len(found) > first:
                found[-1].shown.append(words)
    return found


def is_unfinished(command: str) -> bool:
    """Whether a command goes on in the next line: by a backslash, an open quotation or a here-document."""
    if command.endswith("\\"):
        return True
    if here := CONTINUED.search(command):
        return here[1] not in command[here.end() :].splitlines()
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False


def examples(text: str) -> str:
    """Return the page with every line blank that is not in a pycon block, so that lines keep their numbers."""
    lines = [""] * (text.count("\n") + 1)
    for block in blocks(text):
        if block.language == "pycon":
            code = block.code.splitlines()
            lines[block.line - 1 : block.line - 1 + len(code)] = code
    return "\n".join(lines) + "\n"


def make_targets(text: str) -> list[str]:
    """Return the `make …` commands that a page shows, also in blocks that are not run."""
    shown = [
        line
        for block in blocks(text)
        if block.language in ("sh", "bash", "console")
        for line in block.code.splitlines()
    ]
    lines = [line.removeprefix("$ ").split("#")[0].strip() for line in shown]
    return [line for line in lines if line.startswith("make ")]


def without_code(text: str) -> str:
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", FENCED.sub("", text))


def links(text: str) -> list[str]:
    """Return the targets of all links and pictures of a page."""
    prose = without_code(text)
    return [target for pattern in (LINK, REFERENCE, ATTRIBUTE) for target in pattern.findall(prose)]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page as GitHub makes them of headings, and those that are set by hand."""
    names: set[str] = set()
    counts: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCED.sub("", text), flags=re.MULTILINE):
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-")
        count = counts[slug] = counts.get(slug, -1) + 1
        names.add(f"{slug}-{count}" if count else slug)
    names |= set(re.findall(r"^\(([\w.-]+)\)=$", text, flags=re.MULTILINE))
    return names | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def examples_of_commands(text: str) -> list[str]:
    """Return the commands of a page that stand outside of console blocks: in other blocks, indented, or in a sentence.

    A command is one of likewise with at least one argument; what starts it (`torchrun … -m`, `srun`) is left out. Usage
    with brackets or dots is none.
    """
    shown = [block.code for block in blocks(text) if block.language in ("", "text", "sh", "bash")]
    prose = FENCED.sub("", text)
    shown += re.findall(r"^    (?=likewise )(.+)$", prose, flags=re.MULTILINE)
    shown += [words.replace("\n", " ") for words in re.findall(r"(?<!`)`(likewise [^`]+)`(?!`)", prose)]
    code_lines = [line for code in shown for line in code.replace("\\\n", " ").splitlines()]
    lines = [re.sub(r"\s+# .*$", "", line) for line in code_lines]  # without comments
    found = [STARTED.sub("likewise ", line) for line in lines if STARTED.match(line)]
    return [line for line in found if len(line.split()) > 2 and not re.search(r"[\[\]…]|COMMAND", line)]
