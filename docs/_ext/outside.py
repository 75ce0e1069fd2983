"""Let pages show, and link to, Markdown files that stand outside of docs/.

A page that consists of an `include` of such a file is that file on the site: links in the file are made to start from
the page. Links to the file, which work on its own when the sources are read, lead to that page.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

# Files outside of docs/, and the pages that show them.
PAGES = {
    "README.md": "index",
    "README.zh.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
    "benchmarks/RESULTS.md": "background/results",
    "studies/README.md": "background/studies",
}
INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", flags=re.MULTILINE)
FENCED = re.compile(r"(^(```+|~~~+).*?^\2$)", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^()\s#]+)(#[^()\s]*)?(?=[)\s])")


def with_links(text: str, origin: Path, page: Path, docs: Path) -> str:
    """Return Markdown of the file `origin` with its links as they have to be on `page`; code stays as it is."""

    def rewritten(link: re.Match[str]) -> str:
        path, anchor = link[2], link[3] or ""
        if ":" in path or path.startswith("/"):
            return link[0]
        target = (origin.parent / path).resolve()
        if target.is_relative_to(docs.parent):
            known = PAGES.get(target.relative_to(docs.parent).as_posix())
            target = docs / f"{known}.md" if known else target
        moved = os.path.relpath(target, page.parent)
        if target.suffix == ".md" and not target.is_relative_to(docs) and target.exists():
            return f"{link[1]}path:{moved}"  # to be downloaded, as other files are
        return f"{link[1]}{moved}{anchor}"

    pieces = FENCED.split(text)  # between, code, its fence, between, …
    return "".join(
        LINK.sub(rewritten, piece) if place % 3 == 0 else piece for place, piece in enumerate(pieces) if place % 3 != 2
    )


def read(app: Sphinx, name: str, source: list[str]) -> None:
    page, docs = Path(app.env.doc2path(name)).resolve(), Path(app.srcdir).resolve()
    if page.suffix != ".md":
        return
    if include := INCLUDE.search(source[0]):
        origin = (page.parent / include[1]).resolve()
        app.env.note_dependency(str(origin))
        text = with_links(origin.read_text(encoding="utf-8"), origin, page, docs)
        source[0] = source[0].replace(include[0], text)
    else:
        source[0] = with_links(source[0], page, page, docs)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
