"""likewise learns which of your data are alike, with no labels.

Nothing is imported until it is asked for, so `import likewise` costs next to nothing.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["evaluation", "losses"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"likewise.{name}")
    raise AttributeError(f"module 'likewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
