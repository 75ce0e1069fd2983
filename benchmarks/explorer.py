"""How fast the explorer draws 50,000 points while its map is moved and zoomed, in headless Chromium without a GPU.

python -m benchmarks.explorer
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import Browser, sync_playwright

import likewise
from benchmarks.measure import describe_machine, table, write_section
from likewise import data

ITEMS = 50_000
FRAMES = 120
SIZE = {"width": 1440, "height": 1000}
# Wheel events as a hand makes them, one a frame: into the middle and out again, which moves every point.
MOVED = """async (frames) => {
  const canvas = document.querySelector("#stage canvas"), box = canvas.getBoundingClientRect(), found = [];
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  for (let i = 0; i < frames; i++) {
    const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 3, cancelable: true };
    canvas.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: i % 40 < 20 ? -25 : 25 }));
    await frame();
    found.push(canvas.drawn.milliseconds);
  }
  return found;
}"""


def many(folder: Path) -> Path:
    """The small digits again and again, each time with other noise."""
    items, rng = data.open("digits"), np.random.default_rng(0)
    ids = np.arange(ITEMS) % len(items)
    pixels = items[ids].astype(np.float32) + rng.normal(0, 25, (ITEMS, 1, 8, 8))
    assert items.labels is not None
    np.savez(folder / "many.npz", x=np.clip(pixels, 0, 255).astype(np.uint8), y=items.labels[ids])
    return folder / "many.npz"


def frames(browser: Browser, url: str, density: int) -> list[float]:
    """Milliseconds of each frame."""
    page = browser.new_page(viewport=SIZE, device_scale_factor=density)
    page.goto(url)
    page.wait_for_selector("#legend button", timeout=600_000)
    page.evaluate(MOVED, 20)
    found: list[float] = page.evaluate(MOVED, FRAMES)
    page.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        likewise.train("digits", method="moco", steps=60, out=folder / "run", progress=False)
        command = [sys.executable, "-m", "likewise", "explore", str(folder / "run"), "--data", str(many(folder))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
            assert server.stdout is not None
            (url,) = re.findall(r"http://\S+", server.stdout.readline())
            program = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
            try:
                measured = {density: frames(browser, url, density) for density in (1, 2)}
                version = browser.version
            finally:
                browser.close()
                server.terminate()
    rows = [
        [f"{density}", f"{median(each):.1f} ms", f"{sorted(each)[int(0.95 * len(each))]:.1f} ms", f"{max(each):.1f} ms"]
        for density, each in measured.items()
    ]
    found = table(["pixels per CSS pixel", "a frame, median", "95 % of frames below", "slowest"], rows)
    what = f"{ITEMS:,} points, {FRAMES} frames of zooming, a window of {SIZE['width']} × {SIZE['height']}"
    machine = f"{describe_machine([])[:-1]}; Chromium {version} without a GPU."
    text = f"{machine}\n\n{what}; 16.7 ms are 60 frames a second. While it moves it is drawn at one pixel each.\n\n"
    write_section("Explorer", text + found)
    print(text + found)


if __name__ == "__main__":
    main()
