"""How well do images and words find each other after some minutes, where a style or a picture was never seen?

    python -m studies.captions emoji.npz openclipart.npz

Radford et al., 2021 (CLIP). Emoji are drawn by four vendors: the encoder is trained on three of them, and the
drawings of the fourth are looked up among all names. Clip art: a tenth of the pictures is held out with its titles.
"""

import hashlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.measure import describe_machine, table
from likewise.encoders.features import features
from likewise.evaluation.cross_modal import cross_modal
from likewise.modalities.text import matches
from likewise.training.encoder import CaptionEncoder
from likewise.training.plan import make_plan
from likewise.training.progress import Observer
from likewise.training.trainer import Trainer
from studies.page import measured_once, print_row, write_section

STUDY = "captions"
SETTINGS: dict[str, Any] = {
    "data.size": 32,
    "training.batch_size": 256,
    "training.checkpoint_every": 1_000_000,
    "training.evaluate_every": 1_000_000,
}
EMOJI_STEPS, CLIPART_STEPS = 1100, 1000
WAYS = {"image_to_text": "image → text", "text_to_image": "text → image"}
HEAD = [f"{way} {cell}" for way in WAYS.values() for cell in ("@1", "@5", "@10", "median rank")]

Arrays = dict[str, NDArray[Any]]


def main() -> None:
    emoji, clipart = (dict(np.load(path, allow_pickle=False)) for path in sys.argv[1:])
    print(table(["", *HEAD, "seconds"], []))
    by_vendor = {str(vendor): learn_emoji(emoji, place) for place, vendor in enumerate(emoji["views"])}
    by_captions = {captions: learn_clipart(clipart, captions) for captions in ("title", "title+keywords")}
    by_captions["title, whole titles held out"] = learn_clipart(clipart, "title", apart=True)
    write(by_vendor, by_captions, len(emoji["name"]), overlap(titled(clipart)))


def learn_emoji(arrays: Arrays, unseen: int) -> dict[str, Any]:
    """Train on the drawings of all vendors but one; look that one's up among all names."""
    count, vendors = arrays["x"].shape[:2]
    settings = SETTINGS | {"training.steps": EMOJI_STEPS}
    source = {
        "x": arrays["x"].reshape(-1, *arrays["x"].shape[2:]),
        "captions": np.repeat(arrays["name"], vendors),
        "group": np.repeat(np.arange(count), vendors),
        "is_test": np.tile(np.arange(vendors) == unseen, count),
    }
    vendor = str(arrays["views"][unseen])
    found = measured_once(STUDY, {"emoji": vendor} | settings, lambda: learn(source, settings, len(source["x"])))
    print_row(vendor, *cells(found), f"{found['seconds']:.0f}")
    return found


def learn_clipart(arrays: Arrays, captions: str, apart: bool = False) -> dict[str, Any]:
    """Train on nine tenths; look up the rest by title, whatever was trained on. `apart`: whole titles are held out."""
    settings = SETTINGS | {"training.steps": CLIPART_STEPS, "data.columns": f"captions={captions}"}
    source = titled(arrays)
    if apart:
        source["group"] = np.unique(np.char.lower(source["title"]), return_inverse=True)[1]
    key = {"clipart": captions + ", apart" * apart}
    found = measured_once(STUDY, key | settings, lambda: learn(source, settings))
    print_row(captions, *cells(found), f"{found['seconds']:.0f}")
    return found


def titled(arrays: Arrays) -> Arrays:
    """The clip-art that has a title."""
    kept = np.char.str_len(np.char.strip(arrays["title"])) > 0
    return {name: arrays[name][kept] for name in ("x", "title", "keywords")}


def overlap(source: Arrays) -> dict[str, Any]:
    """How much of a tenth drawn at random is in the other nine too: titles, and pictures to the pixel."""
    ready = make_plan(source, "clip", SETTINGS | {"data.columns": "captions=title"}, progress=False)
    assert ready.items.captions is not None
    titles = [texts[0].lower() for texts in ready.items.captions]
    pictures = [hashlib.sha256(picture.tobytes()).digest() for picture in ready.items.array]
    trained = {pictures[i] for i in ready.train}
    names = Counter(titles[item] for item in ready.test)
    return {
        "titles": np.mean(np.isin([titles[i] for i in ready.test], [titles[i] for i in ready.train])),
        "pictures": np.mean([pictures[i] in trained for i in ready.test]),
        "commonest": names.most_common(1)[0],
    }


def learn(source: Arrays, settings: dict[str, Any], rows: int | None = None) -> dict[str, Any]:
    """Train, and let held-out images and their first captions find each other."""
    ready = make_plan(source, "clip", settings, progress=False)
    assert rows in (None, len(ready.items)), "every drawing has a name"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        encoder = Trainer(ready, Path(folder), Observer()).run().encoder
    seconds = time.monotonic() - began
    assert isinstance(encoder, CaptionEncoder)
    assert ready.items.captions is not None
    texts, pairs = matches([ready.items.captions[item][:1] for item in ready.test])
    network = torch.nn.Sequential(encoder.image, encoder.head)
    images = features(network, encoder.augmentation, ready.items, ready.test)
    found = cross_modal(images, torch.from_numpy(encoder.embed_text(texts)), pairs)
    ways = {way: getattr(found, way) for way in WAYS}
    shown = {
        way: {"recall": [ranks.recall[k] for k in (1, 5, 10)], "median_rank": ranks.median_rank}
        for way, ranks in ways.items()
    }
    counts = {"images": len(images), "texts": len(texts), "train": len(ready.train)}
    return shown | counts | {"seconds": seconds}


def cells(found: dict[str, Any]) -> list[str]:
    return [
        cell
        for way in WAYS
        for cell in (*(f"{share:.3f}" for share in found[way]["recall"]), f"{found[way]['median_rank']:g}")
    ]


def write(by_vendor: dict[str, Any], by_captions: dict[str, Any], names: int, shared: dict[str, Any]) -> None:
    at_10 = {vendor: found["image_to_text"]["recall"][2] for vendor, found in by_vendor.items()}
    hardest, easiest = min(at_10, key=at_10.__getitem__), max(at_10, key=at_10.__getitem__)
    clipart, apart = by_captions["title"], by_captions["title, whole titles held out"]
    parts = [
        "How well do images and words find each other after some minutes, where a style or a picture was never seen? "
        "(Radford et al., 2021.)",
        "`clip` with its defaults: resnet_tiny at 32 pixels, text_tiny, symmetric InfoNCE with a learned temperature, "
        "batches of 256, AdamW at 0.002, seed 0, the last step, one thread a run and two runs at a time. recall@k by "
        f"cosine after the heads; a tie counts as not found. {describe_machine([])}",
        f"Emoji: {names:,} of them, drawn by four vendors, with their names. Trained on three vendors "
        f"({EMOJI_STEPS} steps), the drawings of the fourth, a style never seen, are looked up among all {names:,} "
        f"names; chance is {10 / names:.3f} at 10. Drawings of one emoji are not each other's negatives.",
        table(
            ["vendor never seen", *HEAD, "training"],
            [[vendor, *cells(found), f"{found['seconds']:.0f} s"] for vendor, found in by_vendor.items()],
        ),
        f"The names were all trained on; the drawings were not. {easiest} is easiest to recognise from the others "
        f"({at_10[easiest]:.3f} at 10), {hardest} hardest ({at_10[hardest]:.3f}). One seed each.",
        f"Clip-art: {clipart['train']:,} pictures trained on ({CLIPART_STEPS} steps), {clipart['images']:,} held out, "
        f"looked up among their {clipart['texts']:,} titles, and these among the pictures; chance is about "
        f"{10 / clipart['texts']:.3f} at 10. Keywords, where they are trained on, are a second caption of each "
        "picture; titles are what is looked up either way. Titles of clip-art name series "
        f"({shared['commonest'][1]} of the held-out pictures are called `{shared['commonest'][0]}`): of a tenth drawn "
        f"at random, {shared['titles']:.0%} have a title, and {shared['pictures']:.0%} a picture to the pixel, that is "
        "in the part trained on too. So whole titles are held out in the last row, which is the "
        f"one that says how well unseen words and pictures meet: {apart['images']:,} pictures among "
        f"{apart['texts']:,} titles.",
        table(
            ["trained on", *HEAD, "training"],
            [[captions, *cells(found), f"{found['seconds']:.0f} s"] for captions, found in by_captions.items()],
        ),
    ]
    write_section("Images and words", parts)
    print("\n" + "\n\n".join(parts[2:]))


if __name__ == "__main__":
    main()
