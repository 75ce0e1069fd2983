"""Columns by another name: which array of an .npz, or which column of a table, is what here."""

import difflib
from collections.abc import Iterable, Mapping

from likewise.data.items import DataError

GROUPS = ("group", "speaker", "subject")
PARTS = ("", "_train", "_test")
SPLIT = ("x", "y", *GROUPS)  # those that may come as a train and a test part
CAPTIONS = "captions"  # the one role that several arrays may play together
WHOLE = ("audio", "offsets", "rate", "channels", "is_test", "class_names", "views")
ARRAYS = (*WHOLE, *(key + part for key in SPLIT for part in PARTS))


def checked(columns: Mapping[str, str], roles: Iterable[str], names: Iterable[str], source: str) -> None:
    """Each role and each name is known."""
    for role, name in columns.items():
        if role not in roles:
            raise DataError(f"expected a column for one of {_hint(role, roles)}, got {role!r}")
        if name not in names:
            raise DataError(f"expected a column of {source} as {role}, one of {_hint(name, names)}, got {name!r}")


def _hint(got: object, names: Iterable[str]) -> str:
    """What there is; of much, the nearest."""
    names = sorted(filter(None, names))
    if len(names) > 12:
        names = difflib.get_close_matches(str(got), names, n=3, cutoff=0.4) or [*names[:12], "…"]
    return ", ".join(names) or "none"


def of_arrays(keys: Iterable[str], columns: Mapping[str, str], source: str) -> dict[str, str]:
    """Which key plays which role: its own name's, unless `columns` say another.

    Labels by another key than `y` take the names of their classes from `<key>_names`.
    """
    keys = list(keys)
    stems = {key.removesuffix("_train") for key in keys}  # y for y_train and y_test
    columns = {role: name for role, name in columns.items() if role != CAPTIONS}
    checked(columns, (*ARRAYS, CAPTIONS), {*keys, *stems}, source)
    found = {key: key for key in keys if key in ARRAYS}
    replaced = {*columns, "x"} if "audio" in columns else {*columns}
    for role in (role + part for role in replaced for part in PARTS):
        found.pop(role, None)
    for role, name in columns.items():
        found |= {role + part: name + part for part in PARTS if name + part in keys}
    labels = found.get("y", found.get("y_train", "y")).removesuffix("_train")
    if labels != "y" and "class_names" not in columns:
        found.pop("class_names", None)
        if f"{labels}_names" in keys:
            found["class_names"] = f"{labels}_names"
    return found


def of_captions(keys: Iterable[str], columns: Mapping[str, str], source: str) -> dict[str, tuple[str, ...]]:
    """Which keys hold captions, one or several as `title+keywords`, by part: all items', or train's and test's."""
    keys = list(keys)
    names = [name.strip() for name in columns.get(CAPTIONS, CAPTIONS).split("+")]
    for name in names if CAPTIONS in columns else ():
        checked({CAPTIONS: name}, (CAPTIONS,), {*keys, *(key.removesuffix("_train") for key in keys)}, source)
    found = {part: tuple(name + part for name in names if name + part in keys) for part in PARTS}
    return {part: held for part, held in found.items() if held}
