"""Map roles such as `x`, `y` or `group` to the arrays of an .npz file, or the columns of a table, that play them."""

import difflib
from collections.abc import Iterable, Mapping

from likewise.data.items import TEXT, DataError

GROUPS = ("group", "speaker", "subject")
PARTS = ("", "_train", "_test")
SPLIT = ("x", "y", *GROUPS)  # roles that may come as a train and a test part
CAPTIONS = "captions"  # the only role that several arrays may play together
WHOLE = ("audio", "offsets", "rate", "channels", "is_test", "class_names", "views")
PICTURES = ("x", "y", "group", "is_test", CAPTIONS)  # roles of columns in tables of images
ARRAYS = (*WHOLE, TEXT, *(key + part for key in SPLIT for part in PARTS))


def check_roles(columns: Mapping[str, str], roles: Iterable[str], names: Iterable[str], source: str) -> None:
    """Raise an error if a role does not exist, or if the source has no column of the given name."""
    for role, name in columns.items():
        if role not in roles:
            raise DataError(f"expected a column for one of {_hint(role, roles)}, got {role!r}")
        if name not in names:
            raise DataError(f"expected a column of {source} as {role}, one of {_hint(name, names)}, got {name!r}")


def _hint(got: object, names: Iterable[str]) -> str:
    """List the valid names, or only the nearest ones if there are many."""
    names = sorted(filter(None, names))
    if len(names) > 12:
        names = difflib.get_close_matches(str(got), names, n=3, cutoff=0.4) or [*names[:12], "…"]
    return ", ".join(names) or "none"


def array_roles(keys: Iterable[str], columns: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the key that plays each role: the key of the same name, unless `columns` says otherwise.

    Labels under another key than `y` take their class names from `<key>_names`.
    """
    keys = list(keys)
    stems = {key.removesuffix("_train") for key in keys}  # y for y_train and y_test
    columns = {role: name for role, name in columns.items() if role != CAPTIONS}
    check_roles(columns, (*ARRAYS, CAPTIONS), {*keys, *stems}, source)
    key_of_role = {key: key for key in keys if key in ARRAYS}
    replaced = {*columns}
    if "audio" in columns:
        replaced |= {"x"}
    if TEXT in columns:
        replaced |= {"x", "audio"}
    for role in (role + part for role in replaced for part in PARTS):
        key_of_role.pop(role, None)
    for role, name in columns.items():
        key_of_role |= {role + part: name + part for part in PARTS if name + part in keys}
    if TEXT not in columns and key_of_role.keys() & {"x", "x_train", "x_test", "audio"}:
        key_of_role.pop(TEXT, None)  # it says something about these items, and is not read
    labels = key_of_role.get("y", key_of_role.get("y_train", "y")).removesuffix("_train")
    if labels != "y" and "class_names" not in columns:
        key_of_role.pop("class_names", None)
        if f"{labels}_names" in keys:
            key_of_role["class_names"] = f"{labels}_names"
    return key_of_role


def picture_columns(columns: Mapping[str, str], names: Iterable[str], source: str) -> dict[str, tuple[str, ...]]:
    """Return the columns that the user names for each role in a table of images; only captions may have several."""
    names = list(names)
    named = {}
    for role, text in columns.items():
        several = role == CAPTIONS and text not in names
        named[role] = tuple(name.strip() for name in text.split("+")) if several else (text,)
        for name in named[role]:
            check_roles({role: name}, PICTURES, names, source)
    return named


def caption_keys(keys: Iterable[str], columns: Mapping[str, str], source: str) -> dict[str, tuple[str, ...]]:
    """Return the keys that hold captions, one or several as in `title+keywords`, by part: "", "_train" or "_test"."""
    keys = list(keys)
    names = [name.strip() for name in columns.get(CAPTIONS, CAPTIONS).split("+")]
    for name in names if CAPTIONS in columns else ():
        check_roles({CAPTIONS: name}, (CAPTIONS,), {*keys, *(key.removesuffix("_train") for key in keys)}, source)
    by_part = {part: tuple(name + part for name in names if name + part in keys) for part in PARTS}
    return {part: part_keys for part, part_keys in by_part.items() if part_keys}
