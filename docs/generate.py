"""Write the reference pages that follow from the code: `make docs-generate`.

`reference/recipe.md` is made from the dataclasses of `likewise/recipe.py` and the comments on their fields,
`reference/commands.md` from the objects behind the command line, and `reference/encoders.md` by building every encoder.
A test checks that they are up to date.
"""

import ast
import dataclasses
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from torch import nn

from docs._ext.comments import class_source, field_comments
from docs.recipe_keys import NEEDS, values_of
from likewise import methods, recipe
from likewise.cli import app
from likewise.dictionaries.catalog import DICTIONARIES, KEYS
from likewise.encoders import ENCODERS, TEXT_ENCODERS, build, build_text, has_batch_norm, hop_of
from likewise.losses.catalog import LOSSES
from likewise.pairs.catalog import PAIRS
from likewise.recipe import Recipe

REFERENCE = Path(__file__).parent / "reference"
# The keys that choose a part; which other keys a run reads depends on them.
CHOICES: dict[str, tuple[str, Iterable[str]]] = {
    "pairs.kind": ("pairs", PAIRS),
    "keys.by": ("keys by", KEYS),
    "dictionary.kind": ("dictionary", DICTIONARIES),
    "loss.kind": ("loss", LOSSES),
}
# Sections whose class has no docstring.
SECTIONS = {
    "data": "Which data to read, and how.",
    "pairs": "Which pairs should agree.",
    "encoder": "The network that is trained, and its projection head.",
    "text": "How texts are read, and the text encoder of pairs `captions`.",
    "keys": "What encodes the keys.",
    "dictionary": "Which keys a query is looked up in.",
    "loss": "How the look-up is scored.",
    "optimizer": "How the weights are changed.",
    "training": "How long to train, on what, and how often to save and evaluate.",
}
TOP = {
    "method": "the method by name, as `likewise methods` lists them; it sets the keys of [the last table]"
    "(#what-each-method-sets)",
    "seed": "every random draw follows from this number",
}
RECIPE_INTRO = """\
# Recipe reference

A recipe holds everything that decides a run. `likewise train` prints it as the plan and saves it as `recipe.toml` in
the run's folder. Every key on this page can be set in three ways:

- on the command line: `--set dictionary.size=4096`, as often as needed;
- in a TOML file: `size = 4096` in the section `[dictionary]`, and `likewise train DATA --recipe FILE`;
- in Python: `likewise.train(data, settings={"dictionary.size": 4096})`.

The frequent ones also have [options of their own](commands.md#likewise-train), such as `--batch-size`. A value given on
the command line comes before the one in a file, which comes before [the method's](#what-each-method-sets). What is
left is chosen for the data, or has the default below. An unknown key is refused, and the nearest known one is named.

*Values* lists the names that a key takes, or the range of its numbers; `""` leaves the choice to likewise, or means
none. *Used with* says which choices of pairs, keys, dictionary or loss read a key, and which data or encoders it is
for. If a run has chosen other pairs, keys, dictionary or loss, its plan says that the key has no effect.
"""
METHODS_INTRO = """\
## What each method sets

The settings of the papers, where they differ from the defaults above. [Methods](methods.md) explains them.
"""
COMMANDS_INTRO = """\
# Command reference

Every command and all of its options. `likewise COMMAND --help` prints the same. A command that fails says why in one
sentence and ends with exit code 1; `likewise --debug COMMAND …` shows the traceback as well.
"""
ENCODERS_INTRO = """\
# Encoders

Every encoder that likewise brings. `--encoder NAME` (the key `encoder.name`) chooses one; without it, one is chosen for
the data and the machine, and the plan says which and why. `text.name` chooses the text encoder of `clip`. An encoder of
your own is named as [`module:callable`](../start/install.md#your-own-network).

*Features* is the length of an embedding, before the head. *Batch norm* matters for `encoder.bn_splits`, which splits
its statistics, and for `training.chunk`, which needs an encoder without it. *Parameters* are counted for images of
3 × 32 × 32, vectors of 128 numbers, sequences of one channel with the context `gru`, and 4,096 tokens, the default of
`text.vocabulary`.
"""
# Inputs for which the parameters are counted: an encoder takes one of them and refuses the others.
INPUTS: dict[str, dict[str, int]] = {
    "images": {"channels": 3, "size": 32},
    "vectors": {"features": 128},
    "sequences": {"channels": 1, "samples": 16_000},
}
TOKENS = Recipe().text.vocabulary


def encoders_page() -> str:
    """Return the page of all encoders, from the networks that are built for each name."""
    rows = [_encoder_row(name, *_built(name)) for name in ENCODERS]
    texts = [(name, build_text(name, TOKENS)) for name in TEXT_ENCODERS]
    rows += [_encoder_row(name, f"text of at most {network.length} tokens", network) for name, network in texts]
    return "\n".join([ENCODERS_INTRO, _table(["name", "input", "parameters", "features", "batch norm"], rows)])


def _built(name: str) -> tuple[str, nn.Module]:
    """Build an encoder for the input that it takes, and describe that input."""
    for words, shape in INPUTS.items():
        try:
            network = build(name, **shape)
        except ValueError:  # it takes another input
            continue
        hop = hop_of(network)
        return f"{words}, a frame every {hop} samples" if hop else words, network
    raise ValueError(f"{name} must take {', '.join(INPUTS)}, got an encoder that refuses all of them")


def _encoder_row(name: str, words: str, network: Any) -> list[str]:
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return [f"`{name}`", words, f"{parameters:,}", str(network.dim), "yes" if has_batch_norm(network) else "no"]


def used_with(key: str) -> str:
    """Say which choices read a key, from what the parts declare."""
    readers = []
    for choice, (part, names) in CHOICES.items():
        reading = [name for name in names if key in methods.used_keys(Recipe().with_values({choice: name}))]
        if len(reading) < len(list(names)):
            readers.append((part, reading))
    parts = [f"{part} " + ", ".join(f"`{name}`" for name in names) for part, names in readers if names]
    return "; ".join([*parts, *([NEEDS[key]] if key in NEEDS else [])]) or "all"


def recipe_page() -> str:
    """Return the page of all recipe keys."""
    plain = [item for item in dataclasses.fields(Recipe) if not dataclasses.is_dataclass(item.type)]
    comments = field_comments(Recipe)
    top = [(item.name, item.type, item.default, comments.get(item.name) or TOP.get(item.name, "")) for item in plain]
    parts = [RECIPE_INTRO, "## Top level\n\nThese two stand before the first section.\n", _keys_table(top)]
    for item in dataclasses.fields(Recipe):
        if not (isinstance(item.type, type) and dataclasses.is_dataclass(item.type)):
            continue
        text = ast.get_docstring(class_source(item.type)[1]) or SECTIONS[item.name]
        comments = field_comments(item.type)
        keys = dataclasses.fields(item.type)
        rows = [(f"{item.name}.{key.name}", key.type, key.default, comments[key.name]) for key in keys]
        parts += [f"## {item.name}\n\n{_code_words(' '.join(text.split()))}\n", _keys_table(rows)]
    parts += [METHODS_INTRO]
    rows = [[f"`{name}`", ", ".join(_settings(method.values))] for name, method in methods.METHODS.items()]
    parts += [_table(["method", "sets"], rows)]
    return "\n".join(parts)


def _settings(values: Mapping[str, Any]) -> list[str]:
    return [f"`{key} = {_value(value)}`" for key, value in values.items() if value != Recipe().value(key)]


def _keys_table(rows: Iterable[tuple[str, Any, Any, str]]) -> str:
    head = ["key", "type", "default", "values", "used with", "what it does"]
    cells = [
        [f"`{key}`", kind.__name__, f"`{_value(default)}`", values_of(key, kind), used_with(key), _code_words(comment)]
        for key, kind, default, comment in rows
    ]
    return _table(head, cells)


def _value(value: Any) -> str:
    """Write a value as TOML does."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)


def _code_words(text: str) -> str:
    """Set recipe keys, options and names of variables as code, where they are not yet."""
    keys = "|".join(re.escape(key) for key in recipe.known_keys() if "." in key)
    words = re.compile(rf"(?<![\w`.-])((?:{keys})(?:=[\w.]+)?|--[a-z][a-z-]*|[A-Z]+_[A-Z_]+|module:callable)(?![\w`])")
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else words.sub(r"`\1`", piece) for piece in pieces)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def commands_page() -> str:
    """Return the page of all commands and options."""
    group: Any = typer.main.get_command(app)
    parts = [COMMANDS_INTRO]
    rows = [[f"[`likewise {name}`](#likewise-{name})", _sentence(command)] for name, command in group.commands.items()]
    parts += [_table(["command", "what it does"], rows)]
    parts += ["## Options before the command\n", _options(group)]
    for name, command in group.commands.items():
        parts += [f"## likewise {name}\n\n{_sentence(command)}\n", f"```text\n{_usage(name, command)}\n```\n"]
        parts += [*_paragraphs(command)[1:], *filter(None, [_arguments(command), _options(command)])]
    return "\n".join(parts)


def _sentence(command: Any) -> str:
    return _paragraphs(command)[0].strip()


def _paragraphs(command: Any) -> list[str]:
    """Return the paragraphs of a command's help; one whose lines are to stay as they are (`\\b`) as a block of code."""
    paragraphs = []
    for text in re.split(r"\n\s*\n", (command.help or "").strip()):
        if text.startswith("\b"):
            title, _, lines = text.removeprefix("\b").strip().partition("\n")
            code = textwrap.dedent(lines)
            paragraphs.append(
                f"{title}\n\n```text\n{code}\n```\n" if title.endswith(":") else f"```text\n{title}\n{code}\n```\n"
            )
        else:
            paragraphs.append(_code_words(" ".join(text.split())) + "\n")
    return paragraphs


def _usage(name: str, command: Any) -> str:
    words = [_metavar(command, item) for item in command.params if _is_argument(item)]
    optional = [f"[{word}]" if not item.required else word for word, item in zip(words, _shown(command), strict=False)]
    return " ".join(["likewise", name, *optional, "[OPTIONS]"])


def _shown(command: Any) -> list[Any]:
    """Arguments first, then options; without those that are hidden."""
    shown = [item for item in command.params if not getattr(item, "hidden", False)]
    return sorted(shown, key=lambda item: not _is_argument(item))


def _is_argument(item: Any) -> bool:
    return not item.opts[0].startswith("-")


def _metavar(command: Any, item: Any) -> str:
    """Return the word for an option's value: its own, else that of its type; nothing for a switch."""
    if getattr(item, "is_flag", False):
        return ""
    if item.metavar:
        return str(item.metavar)
    kind = typing.get_type_hints(command.callback)[item.name]
    if isinstance(kind, types.UnionType):  # `int | None`
        kind = next(member for member in typing.get_args(kind) if member is not type(None))
    return {int: "INTEGER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _arguments(command: Any) -> str:
    rows = [
        [f"`{_metavar(command, item)}`", _help(item) + ("" if item.required else " *May be left out.*")]
        for item in _shown(command)
        if _is_argument(item)
    ]
    return _table(["argument", "meaning"], rows) if rows else ""


def _options(command: Any) -> str:
    rows = []
    for item in _shown(command):
        if not _is_argument(item):
            names = ", ".join(f"`{option} {_metavar(command, item)}`".replace(" `", "`") for option in item.opts)
            text = _help(item)
            if item.default is not None and not item.is_flag and "default" not in text.lower():
                text += f" Default: `{item.default}`."
            if item.required and "required" not in text.lower():
                text += " *Required.*"
            if item.multiple and "repeat" not in text.lower():
                text += " *May be repeated.*"
            rows.append([names, text])
    return _table(["option", "meaning"], rows) if rows else ""


def _help(item: Any) -> str:
    return _code_words(" ".join((item.help or "").split()))


PAGES = {"recipe.md": recipe_page, "commands.md": commands_page, "encoders.md": encoders_page}


def main() -> None:
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
        print(f"wrote {REFERENCE.name}/{name}")


if __name__ == "__main__":
    main()
