"""Read what the source says and the objects do not: comments on fields."""

import ast
import inspect
import io
import textwrap
import tokenize


def class_source(owner: type) -> tuple[str, ast.ClassDef]:
    """Return the source of a class, as text and as a tree."""
    source = textwrap.dedent(inspect.getsource(owner))
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    return source, tree


def field_comments(owner: type) -> dict[str, str]:
    """Return the comment of each field of a dataclass.

    It stands at the end of the field's line, in the lines above the field, or both. A line of comment whose words
    are indented deeper than the fields goes on with the comment before it.
    """
    source, tree = class_source(owner)
    fields = [node for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    indent = fields[0].col_offset if fields else 0
    words: dict[str, list[str]] = {node.target.id: [] for node in fields if isinstance(node.target, ast.Name)}
    code = source.splitlines()
    methods = [node.lineno - len(node.decorator_list) for node in tree.body if isinstance(node, ast.FunctionDef)]
    end = min(methods, default=len(code) + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        if line >= end:
            break
        alone = not code[line - 1][:column].strip()
        if alone and column == indent and not token.string.startswith("#  "):
            owners = [node for node in fields if node.lineno > line]  # the next field
        else:
            owners = [node for node in reversed(fields) if node.lineno <= line]  # this one
        if owners and isinstance(owners[0].target, ast.Name):
            words[owners[0].target.id].append(token.string.lstrip("# ").rstrip())
    return {name: " ".join(comment) for name, comment in words.items()}
