"""Let docstrings that are written as plain text be read as reStructuredText, and signatures stand as in the source.

The docstrings of the package are sentences, with code in backquotes, as Markdown and most editors show them. Here they
become what autodoc expects: code in double backquotes, stars and bars of formulas as they stand, and lines that are
laid out in columns, or indented, as a literal block. The fields of a dataclass are listed with their comments.
"""

import ast
import inspect
import re
import textwrap
from typing import Any

from sphinx.application import Sphinx

from docs._ext.comments import class_source, field_comments

CODE = re.compile(r"(`+)(.+?)\1")
COLUMNS = re.compile(r"\S {3,}\S")  # three spaces or more inside a line: columns


def as_rst(lines: list[str]) -> list[str]:
    """Return the lines of a plain docstring as lines of reStructuredText."""
    rst: list[str] = []
    for paragraph in _paragraphs(lines):
        if any(COLUMNS.search(line) or line.startswith("    ") for line in paragraph):
            rst += ["::", "", *(f"    {line}" for line in paragraph), ""]
        else:
            rst += [*_escaped(paragraph), ""]
    return rst


def _paragraphs(lines: list[str]) -> list[list[str]]:
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def _escaped(paragraph: list[str]) -> list[str]:
    """Double the backquotes of a paragraph and escape what would be markup elsewhere. Code may go over two lines."""
    text, rst, end = "\n".join(paragraph), "", 0
    for code in CODE.finditer(text.replace("\n", "\0")):
        rst += _plain(text[end : code.start()])
        words = " ".join(code[2].replace("\0", " ").split())
        after = text[code.end() : code.end() + 1]
        rst += f"``{words}``" + ("\\ " if after.isalnum() else "")
        end = code.end()
    return (rst + _plain(text[end:])).split("\n")


def _plain(text: str) -> str:
    return re.sub(r"(?<=\w)_(?=\W|$)|[*|\\`]", r"\\\g<0>", text)


def signature_of(function: Any) -> tuple[str, str]:
    """Return the arguments of a function and what it returns, as they stand in its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    arguments = tree.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        del arguments.args[0]
    returns = ast.unparse(tree.returns) if tree.returns is not None else ""
    return f"({ast.unparse(arguments)})", returns.strip("'")


def fields_of(owner: type) -> list[str]:
    """Return the fields of a dataclass or named tuple as lines of a list."""
    if not (hasattr(owner, "__dataclass_fields__") or hasattr(owner, "_fields")):
        return []
    nodes = [node for node in class_source(owner)[1].body if isinstance(node, ast.AnnAssign)]
    types = {ast.unparse(node.target): ast.unparse(node.annotation).strip("'") for node in nodes}
    comments = {name: comment for name, comment in field_comments(owner).items() if not name.startswith("_")}
    return [
        f"- **{name}** (``{types[name]}``)" + (f": {_plain(comment)}" if comment else "")
        for name, comment in comments.items()
    ]


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)
    if what == "class":
        lines += fields_of(obj)


def process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    if what in ("function", "method"):
        return signature_of(obj)
    if what == "class" and signature != "()" and "__init__" in vars(obj) and not hasattr(obj, "__dataclass_fields__"):
        return signature_of(obj.__init__)[0], ""
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", process_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
