"""Make the pictures of this documentation again.

    python docs/pictures.py                         all of them
    python docs/pictures.py augmentations           those of the page on augmentations, in seconds
    python docs/pictures.py readme                  those of the README: report and explorer of the demo
    python docs/pictures.py photos --folder x       those of a tutorial, in the folder in which it was run
    python docs/pictures.py photos --write          the same, and the tutorial's outputs are recorded too

The demo or a tutorial's commands are run first, as `docs/record.py` does, unless `--folder` holds the run. Reports and
explorer are then photographed in headless Chromium. Needs playwright, matplotlib and a Chromium.
"""

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

from record import environment, run, run_page  # noqa: E402

from likewise import data, modalities, views  # noqa: E402
from likewise.randomness import generator  # noqa: E402
from likewise.views.sounds import DisturbedSounds  # noqa: E402
from likewise.views.vectors import VectorViews  # noqa: E402
from likewise.views.windows import DisturbedWindows  # noqa: E402

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
PATIENCE = 300_000  # milliseconds; it only bounds a hang
COLOURS = 128  # of a screenshot: few colours make a small file
LOADED = """() => [...document.querySelectorAll("#query img, #neighbours img")].slice(0, 12).every((image) =>
  image.complete && image.naturalWidth)"""  # those further down are loaded when they come into view
VIEWS, SIDE, GAP = 8, 96, 6
BLUE, ORANGE = "#0072b2", "#d55e00"


# Augmentations, by the library's own functions


def scene(side: int = 128, finer: int = 4) -> NDArray[np.uint8]:
    """Draw a house on a hill, (3, side, side): it has colours, a left and a right, large and small parts."""
    s = side * finer
    image = Image.new("RGB", (s, s), (150, 200, 235))
    pen = ImageDraw.Draw(image)

    def at(*places: float) -> list[float]:
        return [place * s for place in places]

    pen.ellipse(at(0.72, 0.08, 0.92, 0.28), fill=(250, 210, 70))
    pen.polygon(at(0, 0.62, 0.25, 0.42, 0.5, 0.6, 0.75, 0.38, 1, 0.6, 1, 1, 0, 1), fill=(110, 150, 120))
    pen.ellipse(at(-0.3, 0.6, 1.3, 1.6), fill=(90, 165, 70))
    pen.rectangle(at(0.22, 0.5, 0.58, 0.8), fill=(235, 225, 200))
    pen.polygon(at(0.17, 0.5, 0.4, 0.3, 0.63, 0.5), fill=(190, 60, 50))
    pen.rectangle(at(0.28, 0.57, 0.38, 0.67), fill=(70, 110, 160))
    pen.rectangle(at(0.44, 0.6, 0.53, 0.8), fill=(120, 75, 45))
    pen.rectangle(at(0.75, 0.6, 0.78, 0.78), fill=(100, 70, 45))
    pen.ellipse(at(0.66, 0.42, 0.87, 0.64), fill=(40, 110, 60))
    return np.asarray(image.resize((side, side), Image.Resampling.BOX)).transpose(2, 0, 1).copy()


def row_of_views(preset: str, image: NDArray[np.uint8], size: int) -> Image.Image:
    """Draw an image, (c, h, w), and eight views of it by a preset."""
    augmentation = views.preset(preset, size=size, channels=len(image))
    items = torch.from_numpy(image).expand(VIEWS, *image.shape)
    draws = augmentation.draw(VIEWS, generator(0, "first view"))
    made = augmentation.restored(augmentation.apply(items, draws)).clamp(0, 1).mul(255).round().byte().numpy()
    tiles = [tile[0] if len(tile) == 1 else tile.transpose(1, 2, 0) for tile in (image, *made)]
    return strip_of([Image.fromarray(tile).convert("RGB") for tile in tiles])


def strip_of(pictures: Sequence[Image.Image]) -> Image.Image:
    """Draw an original and its eight views side by side, the original a little apart."""
    strip = Image.new("RGB", ((VIEWS + 1) * (SIDE + GAP) + GAP, SIDE), "white")
    for place, picture in enumerate(pictures):
        resampling = Image.Resampling.LANCZOS if picture.height > SIDE else Image.Resampling.BICUBIC
        strip.paste(picture.resize((SIDE, SIDE), resampling), (place * (SIDE + GAP) + (2 * GAP if place else 0), 0))
    return strip


def axes(count: int) -> tuple[Any, Any]:
    """Return a figure of so many small charts in a row, without ticks."""
    from matplotlib import pyplot

    figure, charts = pyplot.subplots(1, count, figsize=(9.3, 1.0), sharey=True)
    for chart in charts:
        chart.set_xticks([])
        chart.set_yticks([])
        for side in chart.spines.values():
            side.set_color("#bbbbbb")
    return figure, charts


def save_charts(figure: Any, path: Path) -> None:
    figure.subplots_adjust(left=0.002, right=0.998, top=0.99, bottom=0.01, wspace=0.06)
    figure.savefig(path, metadata={"Date": None})


def draw_windows(folder: Path) -> None:
    """Draw a window of two channels, and eight views of it."""
    t = np.linspace(0, 4, 160)
    window = np.stack([np.sin(2 * np.pi * t) + 0.4 * np.sin(10 * np.pi * t), 2 + 0.5 * t + np.cos(np.pi * t)], axis=1)
    augmentation = DisturbedWindows(mean=tuple(window.mean(axis=0)), std=tuple(window.std(axis=0)))
    items = torch.from_numpy(window).float().expand(VIEWS, *window.shape)
    made = augmentation.apply(items, augmentation.draw(VIEWS, generator(3, "first view")))
    figure, charts = axes(VIEWS + 1)
    for chart, rows in zip(charts, [augmentation.plain(items)[0], *made], strict=True):
        for channel, colour in zip(rows.T.numpy(), (BLUE, ORANGE), strict=True):
            chart.plot(t, channel, color=colour, linewidth=1)
    save_charts(figure, folder / "views-sequence.svg")


def draw_sounds(folder: Path) -> None:
    """Draw spectrograms of a recording, and of eight views of it; each is mixed with another recording."""
    part = data.open("sounds", progress=False).main
    modality = modalities.of(part)
    augmentation = DisturbedSounds((0.0,), (1.0,))
    both, beginning = np.array([0, 400]), np.zeros(2, dtype=np.int64)
    pair = torch.from_numpy(part.windows(both, beginning, 8000))
    group = pair[[0, 1, 1, 1]]  # the first window of each group is mixed with one of the others
    items = group.repeat(VIEWS, 1, 1)
    made = augmentation.apply(items, augmentation.draw(len(items), generator(0, "first view")))[:: len(group)]
    tiles = modality.pictures_of_views(torch.cat([pair[:1], made]), augmentation, part)
    save(strip_of([Image.fromarray(tile) for tile in tiles]), folder / "views-sound.png", 256)


def draw_vectors(folder: Path) -> None:
    """Draw a vector of 20 features, and eight views of it."""
    vector = torch.randn(1, 20, generator=generator(1, "vector"))
    augmentation = VectorViews(20)
    items = vector.expand(VIEWS, 20)
    made = augmentation.apply(items, augmentation.draw(VIEWS, generator(0, "first view")))
    figure, charts = axes(VIEWS + 1)
    for chart, row in zip(charts, [augmentation.plain(items)[0], *made], strict=True):
        chart.bar(range(20), row.numpy(), color=BLUE, width=0.8)
        chart.axhline(0, color="#888888", linewidth=0.5)
    save_charts(figure, folder / "views-vector.svg")


def augmentations() -> None:
    """Draw every preset."""
    folder = DOCS / "reference"
    photo = scene()
    for preset in ("moco_v1", "moco_v2", "simclr", "captions"):
        save(row_of_views(preset, photo, 96), folder / f"views-{preset}.png", 256)
    digit = data.open("mnist5k", progress=False).array[1300]
    save(row_of_views("greyscale", digit, 28), folder / "views-greyscale.png", 32)
    draw_windows(folder)
    draw_sounds(folder)
    draw_vectors(folder)


# Screens


def save(picture: Image.Image, path: Path, colours: int = COLOURS) -> None:
    picture.convert("RGB").quantize(colours).save(path, optimize=True)
    print(f"{path.relative_to(DOCS.parent)}: {path.stat().st_size / 1000:.0f} KB")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise SystemExit(f"expected a browser, one of {', '.join(PROGRAMS)}, got none")
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=PATIENCE)
        yield chromium
        chromium.close()


def opened(chromium: Any, url: str, width: int, height: int) -> Any:
    context = chromium.new_context(viewport={"width": width, "height": height}, device_scale_factor=1.25)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(url)
    return page


def settled(page: Any) -> None:
    """Wait until what was asked for is on the screen."""
    page.wait_for_timeout(500)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def shot(page: Any, path: Path, clip: dict[str, float], full_page: bool = True) -> None:
    """Photograph a part of a page, of all of it or of what is in view."""
    with tempfile.TemporaryDirectory() as folder:
        page.screenshot(path=f"{folder}/shot.png", clip=clip, full_page=full_page)
        with Image.open(f"{folder}/shot.png") as picture:
            save(picture, path)


def report(
    chromium: Any, file: Path, sections: Sequence[str], path: Path, *, most: int = 900, width: int = 900
) -> None:
    """Photograph some sections of a report that follow each other, at most so many pixels of them."""
    page = opened(chromium, file.as_uri(), width, 900)
    settled(page)
    boxes = [page.locator(f"#{name}").bounding_box() for name in sections]
    top = boxes[0]["y"]
    bottom = boxes[-1]["y"] + boxes[-1]["height"]
    shot(page, path, {"x": 0, "y": top, "width": width, "height": min(most, bottom - top)})
    page.context.close()


def chart(chromium: Any, file: Path, heading: str, path: Path) -> None:
    """Photograph one chart of a report."""
    page = opened(chromium, file.as_uri(), 900, 900)
    settled(page)
    box = page.locator("#training h3", has_text=heading).locator("..").bounding_box()
    shot(page, path, {"x": box["x"] - 8, "y": box["y"] - 4, "width": box["width"] + 16, "height": box["height"] + 8})
    page.context.close()


@contextlib.contextmanager
def explorer(folder: Path, run: str) -> Iterator[str]:
    """Serve a run's explorer, and return its address."""
    command = [sys.executable, "-m", "likewise", "explore", run]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as started:
        assert started.stdout is not None
        address = next(filter(None, (re.search(r"http://\S+", line) for line in started.stdout)))[0]
        try:
            yield address
        finally:
            started.send_signal(signal.SIGINT)


def explored(
    chromium: Any, folder: Path, run: str, path: Path, act: Callable[[Any], None], size: tuple[int, int] = (1120, 700)
) -> None:
    """Photograph a run's explorer after `act` has done something in it."""
    with explorer(folder, run) as address:
        page = opened(chromium, address, *size)
        page.wait_for_selector("#legend button, #legend .scale")
        act(page)
        settled(page)
        map_of_items = page.locator("#stage").bounding_box()
        bottom = map_of_items["y"] + map_of_items["height"] + 14  # what is below explains the keys
        shot(page, path, {"x": 0, "y": 0, "width": size[0], "height": min(bottom, size[1])}, full_page=False)
        page.context.close()


def asking(words: str) -> Callable[[Any], None]:
    """Return what types words, or an id, into the explorer's search and waits for the answer."""

    def act(page: Any) -> None:
        page.fill("#words", words)
        page.click("#ask")
        page.wait_for_selector("#neighbours li")
        page.wait_for_function(LOADED)

    return act


def photos(chromium: Any, folder: Path) -> None:
    at = DOCS / "tutorials"
    report(chromium, folder / "runs/photos/report.html", ["map"], at / "photos-map.png", most=790)
    report(chromium, folder / "runs/photos/report.html", ["neighbours"], at / "photos-neighbours.png", most=505)
    report(chromium, folder / "runs/photos/report.html", ["pairs"], at / "photos-pairs.png", most=420)
    explored(chromium, folder, "runs/photos", at / "photos-explore.png", asking("450"))
    with Image.open(folder / "like.png") as picture:
        save(picture, at / "photos-like.png")
    with Image.open(folder / "copies.png") as picture:
        save(picture.crop((0, 0, picture.width, min(472, picture.height))), at / "photos-copies.png")  # seven rows


def recordings(chromium: Any, folder: Path) -> None:
    at = DOCS / "tutorials"
    report(
        chromium,
        folder / "runs/recordings/report.html",
        ["neighbours"],
        at / "recordings-neighbours.png",
        most=540,
        width=1060,
    )
    chart(chromium, folder / "runs/recordings/report.html", "Accuracy over the horizon", at / "recordings-horizon.png")
    explored(chromium, folder, "runs/recordings", at / "recordings-explore.png", asking("300"))


def sensors(chromium: Any, folder: Path) -> None:
    at = DOCS / "tutorials"
    report(chromium, folder / "runs/machines/report.html", ["map"], at / "sensors-map.png", most=790)
    report(
        chromium,
        folder / "runs/machines/report.html",
        ["neighbours"],
        at / "sensors-neighbours.png",
        most=390,
        width=1060,
    )


def captions(chromium: Any, folder: Path) -> None:
    at = DOCS / "tutorials"
    explored(chromium, folder, "runs/pictures", at / "captions-explore.png", asking("a small red star"))
    with Image.open(folder / "stars.png") as picture:
        save(picture, at / "captions-stars.png")


TUTORIALS = {"photos": photos, "recordings": recordings, "sensors": sensors, "captions": captions}


def tutorial(name: str, folder: Path, write: bool) -> None:
    """Run a tutorial, unless the folder holds its run, and take its pictures."""
    page = DOCS / "tutorials" / f"{name}.md"
    if write or not (folder / "runs").exists():
        recorded = run_page(page, folder)
        if write:
            page.write_text(recorded)
    with browser() as chromium:
        TUTORIALS[name](chromium, folder)


def readme(folder: Path) -> None:
    """Run the demo, unless the folder holds its run, and take the pictures of the README."""
    if not (folder / "runs" / "demo").exists():
        run("likewise demo", folder, environment(folder), is_stopped=False)
    with browser() as chromium:
        report(chromium, folder / "runs/demo/report.html", ["map", "neighbours"], DOCS / "report.png", most=1140)
        explored(chromium, folder, "runs/demo", DOCS / "explore.png", asking("3456"), size=(1440, 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", choices=["augmentations", "readme", *TUTORIALS, []])
    parser.add_argument("--folder", type=Path, help="where the tutorial runs, or has been run")
    parser.add_argument("--write", action="store_true", help="run it, and put the outputs into the page")
    options = parser.parse_args()
    for name in options.pages or ["augmentations", "readme", *TUTORIALS]:
        if name == "augmentations":
            augmentations()
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.folder or Path(temporary)).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            readme(folder) if name == "readme" else tutorial(name, folder, options.write)


if __name__ == "__main__":
    main()
