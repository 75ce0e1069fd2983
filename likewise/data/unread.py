"""Decide which files of a folder are left out because of their type, and describe in words what was left out."""

import re
from collections import Counter
from collections.abc import Sequence, Set

from likewise.data import audio, images
from likewise.data.folder import File
from likewise.data.items import NO_CAPTION, TEXT, Items, Skipped

IMAGES, RECORDINGS, TABLES, SHARDS, TEXTS = (
    "images",
    "recordings",
    "tables",
    "shards",
    "texts",
)  # what a folder can be read as
ENDING = re.compile(r"[a-z0-9]{1,8}")
WITHOUT = "without an ending"
SHOWN = 5  # kinds that are listed with their own count
# Files that describe data without being part of them; they are not reported as left out.
SIDE_FILES = (
    *(
        "txt",
        "md",
        "rst",
        "json",
        "jsonl",
        "xml",
        "yaml",
        "yml",
        "toml",
        "ini",
        "cfg",
        "csv",
        "tsv",
        "log",
        "html",
        "htm",
    ),
    *("pdf", "bib", "py", "ipynb", "sh", "db", "lock"),
)
SIDE_NAMES = ("readme", "license", "licence", "copying", "notice", "authors", "changelog", "citation", "makefile")
# File types that would belong into such a folder, and why they are not read.
REASONS = {
    IMAGES: {
        **dict.fromkeys(("heic", "heif"), "it is read where pillow-heif is installed: pip install pillow-heif"),
        "avif": "this build of Pillow does not read it: pip install -U pillow",
        "svg": "it has no pixels: convert it to PNG",
    },
    RECORDINGS: dict.fromkeys(("m4a", "aac", "wma", "aif", "aiff", "amr"), "convert it to WAV, FLAC or MP3"),
}
VIDEO = ("mp4", "mov", "avi", "mkv", "webm", "mpg", "mpeg", "m4v", "wmv")
# The phrases for one image that is not square, and for several.
FITTED = {
    "crop": ("centre-cropped to a square", "centre-cropped to squares"),
    "pad": ("padded to a square", "padded to squares"),
    "stretch": ("stretched to a square", "stretched to squares"),
}
READ = (*images.EXTENSIONS, *audio.EXTENSIONS, "csv", "parquet", "tar", "npy", "npz")


def left_out(files: Sequence[File], used: Set[str], read_as: str) -> tuple[Skipped, ...]:
    """Return the files of a folder that are not among those `used`, each with the reason; side files are ignored."""
    others = ((file.path, ending_of(file.path)) for file in files if file.path not in used and not _is_side(file.path))
    return tuple(Skipped(path, reason_for(kind, read_as), f".{kind}" if kind else WITHOUT) for path, kind in others)


def ending_of(path: str) -> str:
    """Return a file's extension in lower case, or an empty string if it has none."""
    name, point, ending = path.rpartition("/")[2].rpartition(".")
    return ending.lower() if name and point and ENDING.fullmatch(ending.lower()) else ""


def reason_for(kind: str, read_as: str) -> str:
    """Return why files of this type are left out of a folder, with advice if there is any."""
    if reason := REASONS.get(read_as, {}).get(kind):
        return reason
    if kind in VIDEO:
        return "video is not read: save its frames as images, or its sound as WAV"
    return f"the folder is read as {read_as}" if kind in READ else "a kind of file that is not read"


def may_be_data(path: str) -> bool:
    """Return whether a file is not just there to describe data: a table may be either."""
    return ending_of(path) in READ or not _is_side(path)


def _is_side(path: str) -> bool:
    return ending_of(path) in SIDE_FILES or path.rpartition("/")[2].lower() in SIDE_NAMES


def kinds_in_words(skipped: Sequence[Skipped]) -> str:
    """Count what was left out because of its kind: `12 .heic (pip install pillow-heif), 3 .mp4`."""
    counts = Counter(skip.kind for skip in skipped if skip.kind)
    advice = {skip.kind: skip.reason.partition(": ")[2] for skip in skipped if ": pip install" in skip.reason}
    most = counts.most_common(SHOWN)
    words = [f"{count:,} {kind}" + (f" ({advice[kind]})" if kind in advice else "") for kind, count in most]
    if more := counts.total() - sum(count for _, count in most):
        words.append(f"{more:,} of other kinds")
    return ", ".join(words)


def unusable_in_words(items: Items) -> str:
    """Count what could not be read or used, and items without a caption; empty if there are none."""
    uncaptioned = sum(skip.reason == NO_CAPTION for skip in items.skipped)
    damaged = sum(not skip.kind for skip in items.skipped) - uncaptioned
    words = []
    if damaged:
        one, many, verb = "file", "files", "read"
        if items.kind == "sequence":
            one, many, verb = "sequence", "sequences", "used"
        elif items.kind == TEXT:
            one, many = "text", "texts"
        elif items.captions is not None:
            one, many, verb = "image or line of captions", "images or lines of captions", "used"
        words.append(f"{damaged:,} {one if damaged == 1 else many} could not be {verb}")
    if uncaptioned:
        what = f"{items.kind} without a caption" if uncaptioned == 1 else f"{items.kind}s without captions"
        words.append(f"{uncaptioned:,} {what} left out")
    return ", ".join(words)


def fit_in_words(items: Items, fit: str) -> str:
    """Describe what is done to images that are not square; empty if all are square."""
    one, many = FITTED[fit]
    oblong = items.main.oblong
    if oblong == len(items):
        return f", {many}"
    return f", {oblong:,} of them {one if oblong == 1 else many}" if oblong else ""


def in_words(items: Items) -> str:
    """Count everything that was left out of a source; empty if nothing was."""
    kinds = kinds_in_words(items.skipped)
    return "; ".join(filter(None, [unusable_in_words(items), kinds and f"left out: {kinds}"]))
