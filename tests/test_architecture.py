"""Nobody but its own file asks what a modality, a kind of pairs, a dictionary or a loss is.

The code is walked, not run: a class of them in an `isinstance` or a `match`, a comparison of a kind with a string, and
a dictionary keyed by names of kinds are faults wherever they stand outside the folders that these names belong to.
"""

import ast
from pathlib import Path

import pytest

import likewise
from likewise.dictionaries.catalog import DICTIONARIES, KEYS
from likewise.losses.catalog import LOSSES
from likewise.modalities import MODALITIES
from likewise.pairs.catalog import PAIRS

PACKAGE = Path(likewise.__file__).parent
# Where the answers themselves stand, and what they are made of.
HOMES = ("data", "modalities", "pairs", "views", "encoders", "dictionaries", "losses", "evaluation")
CLASSES = {
    *{type(modality).__name__ for modality in MODALITIES.values()},
    *{pairs.__name__ for pairs in PAIRS.values()},
    *("Sequences", "RaggedPart", "Tower", "FutureTower", "TwoTowers", "PredictingTower", "CaptionEncoder"),
    *("SequenceEncoder", "TextTransformer", "InBatch", "KeyQueue", "MemoryBank", "NearestNeighbours"),
    *("PlainViews", "PhotoViews", "DrawingViews", "VectorViews", "PlainWindows", "DisturbedWindows"),
}
KINDS = {*MODALITIES, *PAIRS, *DICTIONARIES, *KEYS, *LOSSES, "sequence"}
# What reads as a kind: `x.kind`, `x.modality`, `keys.by`, `about["kind"]`.
ATTRIBUTES = {"kind", "by", "modality"}


def is_kind(node):
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in ATTRIBUTES
    return isinstance(node, ast.Name) and node.id in ATTRIBUTES


def strings_in(node):
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def faults_in(text):
    """Return (line, words) of every place in the code that asks what something is."""
    faults = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            names = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
            names |= {each.attr for each in ast.walk(node.args[1]) if isinstance(each, ast.Attribute)}
            faults += [(node.lineno, f"isinstance of {name}") for name in sorted(names & CLASSES)]
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_kind, sides)) and (names := set().union(*map(strings_in, sides)) & KINDS):
                faults.append((node.lineno, f"a kind is compared with {', '.join(sorted(names))}"))
        if isinstance(node, ast.Match):
            patterns = [each for case in node.cases for each in ast.walk(case.pattern)]
            names = {getattr(each.cls, "id", "") for each in patterns if isinstance(each, ast.MatchClass)} & CLASSES
            values = set().union(set(), *(strings_in(case.pattern) for case in node.cases)) & KINDS
            if names or (is_kind(node.subject) and values):
                faults.append((node.lineno, f"a match on {', '.join(sorted(names | values))}"))
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if len(keys) > 1 and keys <= KINDS:
                faults.append((node.lineno, f"a dictionary keyed by {', '.join(sorted(keys))}"))
    return faults


def modules():
    names = (path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")))
    return [name.as_posix() for name in names if name.parts[0] not in HOMES]


@pytest.mark.parametrize("name", modules())
def test_no_module_asks_what_an_answer_is(name):
    assert faults_in((PACKAGE / name).read_text()) == []


@pytest.mark.parametrize(
    "planted",
    [
        'if recipe.pairs.kind == "future": pass',
        'if about["kind"] == "vector": pass',
        'if recipe.dictionary.kind in ("queue", "bank"): pass',
        'if recipe.keys.by != "momentum": pass',
        "isinstance(items, Sequences)",
        "isinstance(tower, (Tower, pairs.FutureTower))",
        'match recipe.loss.kind:\n    case "nce":\n        pass',
        "match items:\n    case Sequences():\n        pass",
        'words = {"batch": "the batch", "queue": "a queue"}[kind]',
    ],
)
def test_a_planted_question_is_found(planted):
    assert faults_in(planted)


def imported_folders(path):
    """Return the folders of the package that a module imports while it is loaded."""
    tree = ast.parse(path.read_text())
    nested = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            nested |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in nested:
            parts = node.module.split(".")
            if parts[0] == "likewise":
                yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


# The data's way: a folder imports only those before it.
WAY = (
    *("data", "views", "encoders", "modalities", "dictionaries", "losses", "evaluation", "pairs", "training"),
    *("report", "search", "explorer", "commands"),
)


@pytest.mark.parametrize("folder", WAY)
def test_imports_go_one_way(folder):
    later = set(WAY[WAY.index(folder) + 1 :])
    for path in (PACKAGE / folder).glob("*.py"):
        assert not set(imported_folders(path)) & later, path.name
