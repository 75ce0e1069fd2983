"""likewise learns which of your data are alike, without labels.

Submodules and functions are imported when they are first used, so that `import likewise` is fast.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = ("data", "dictionaries", "encoders", "evaluation", "losses", "methods", "pairs", "views")
_FUNCTIONS = {
    "cache": "likewise.commands.cache",
    "embed": "likewise.commands.embed",
    "evaluate": "likewise.commands.evaluate",
    "explore": "likewise.commands.explore",
    "export": "likewise.commands.export",
    "finetune": "likewise.commands.finetune",
    "Searcher": "likewise.search.searcher",
    "load": "likewise.training.encoder",
    "train": "likewise.commands.train",
}
__all__ = sorted([*_MODULES, *_FUNCTIONS])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"likewise.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'likewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
