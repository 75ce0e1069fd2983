"""Quote measured figures in the README and the documentation.

    python -m benchmarks.quote      put the tables of benchmarks/RESULTS.md into all pages that quote them

A page quotes a table between the lines `<!-- name -->` and `<!-- /name -->`. Every benchmark does this for its own
section when it ends. Figures in sentences are typed by hand: the command lists those that were not measured, and a test
fails on them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
STUDIES = ROOT / "studies" / "README.md"


@dataclass(frozen=True)
class Source:
    """Where a quoted table or list stands: the title of its section, and how its first line begins."""

    section: str
    begins: str


SOURCES = {
    "accuracy": Source("Time to accuracy", "| method |"),
    "augmentation": Source("Augmentation", "| views |"),
    "augmentation_wanted": Source("Augmentation", "- "),
    "captions": Source("CLIP in chunks", "| pairs a step |"),
    "duplicates": Source("Near-duplicates", "| copies |"),
    "embed": Source("Embed", "|  | time |"),
    "evaluation": Source("Evaluation", "|  |  | time |"),
    "five_minutes": Source("Five minutes", "| data | measured by |"),
    "explorer": Source("Explorer", "| pixels per CSS pixel |"),
    "losses": Source("Losses", "| loss |  | time |"),
    "losses_wanted": Source("Losses", "| loss | faster |"),
    "malloc": Source("malloc", "| malloc |"),
    "memory": Source("Memory while training", "| after steps |"),
    "precision": Source("Losses", "| temperature |"),
    "search": Source("Search", "| index |"),
    "sequences": Source("CPC: the loss in the step", "| encoder |"),
    "step": Source("Training: the parts of a step", "|  | simclr |"),
    "training": Source("Training", "| method |  |"),
    "training_wanted": Source("Training", "| method | faster"),
}
NOT_YET = "Not measured yet"  # how a section begins that waits for its first run
MARKED = re.compile(r"(<!-- (\w+) -->).*?(<!-- /\2 -->)", flags=re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`\n]*`|\$\$?[^$]+\$\$?", flags=re.DOTALL)
UNIT = r" ?(?:ms|毫秒|MiB|images/s|images a second)\b|×(?! ?\d)"
FIGURE = re.compile(
    rf"(?<![\w.,×])(?:(?P<number>\d[\d,]*(?:\.\d+)?)(?P<unit>{UNIT})|\d\.\de-\d\d|0\.\d{{3}})(?![\d.]\d|\d)"
)
# Figures that no benchmark measures: settings, and what follows from the sizes of things.
GIVEN = {"0.001", "0.002", "0.005", "0.019", "0.995", "0.999", "10 ms", "16.7 ms", "32 MiB", "256 MiB"}
# Pages that repeat figures from a run that another page shows.
REPEATED = {
    "docs/background/ideas.md": "README.md",
    "docs/background/ideas.zh.md": "README.md",
    "docs/faq.md": "README.md",
    "docs/guide/reading-a-run.md": "docs/guide/evaluation.md",
}


def quoted(name: str, results: str) -> str | None:
    """Return the table or list of this name from the text of RESULTS.md, or None if it is not there."""
    if name not in SOURCES:
        return None
    source = SOURCES[name]
    sections = re.split(r"^## ", results, flags=re.MULTILINE)
    section = next((section for section in sections if section.startswith(f"{source.section}\n")), "")
    blocks = (block.strip() for block in section.split("\n\n"))
    return next((block for block in blocks if block.startswith((source.begins, NOT_YET))), None)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the Markdown files that may quote measured figures."""
    built = root / "docs" / "_build"
    written = [page for page in sorted((root / "docs").rglob("*.md")) if not page.is_relative_to(built)]
    return [root / "README.md", root / "README.zh.md", *written]


def quote_in_pages(root: Path = ROOT, results: Path = RESULTS) -> None:
    """Put the measured tables between their marks on every page. What was not measured stays as it is."""
    measured = results.read_text()

    def requoted(mark: re.Match[str]) -> str:
        table = quoted(mark[2], measured)
        return mark[0] if table is None else f"{mark[1]}\n\n{table}\n\n{mark[3]}"

    for page in pages(root):
        before = page.read_text()
        after = MARKED.sub(requoted, before)
        if after != before:
            page.write_text(after)


def typed_figures(page: str) -> Iterator[tuple[int, str]]:
    """Yield the times, sizes, rates, ratios, errors and accuracies in the sentences of a page, each with its line."""
    for pattern in (MARKED, CODE):
        page = pattern.sub(lambda part: re.sub(r"[^\n]", " ", part[0]), page)
    for figure in FIGURE.finditer(page):
        line = page.count("\n", 0, figure.start()) + 1
        match (figure["unit"] or "").strip():
            case "":
                yield line, figure[0]
            case "毫秒":
                yield line, f"{figure['number']} ms"
            case "images/s" | "images a second":
                yield line, figure["number"]  # the unit stands in the table's heading
            case _:
                yield line, figure[0]


def unmeasured(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the typed figures of a page that neither RESULTS.md nor the studies nor a shown run has."""
    text = page.read_text()
    other = REPEATED.get(page.relative_to(ROOT).as_posix())
    shown = CODE.findall(text) + (CODE.findall((ROOT / other).read_text()) if other else [])
    measured = "\n".join([RESULTS.read_text(), STUDIES.read_text(), *shown])
    for line, figure in typed_figures(text):
        if figure not in GIVEN and not re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d)", measured):
            yield line, figure


def main() -> None:
    quote_in_pages()
    for page in pages():
        for line, figure in unmeasured(page):
            print(f"{page.relative_to(ROOT)}:{line}: {figure} was not measured")


if __name__ == "__main__":
    main()
