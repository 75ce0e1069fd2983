"""The documentation builds without a warning, every link leads somewhere, and no page needs a network."""

import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import browser as browser
from tests.browser import new_context
from tests.docs.markdown import DOCS, ROOT, anchors, links, name_of, pages

SCREEN, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
CONTRAST = 4.5  # of text and what is behind it: what WCAG asks for (AA)
# What sticks out of the page to the right. Tables, code and formulas may be wider: they scroll inside themselves.
STICKING_OUT = """() => {
  const article = document.querySelector("article"), wide = document.documentElement.clientWidth;
  const scrolls = (element) => element !== article
    && (["auto", "scroll"].includes(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
  const outside = [...article.querySelectorAll("*")].filter((element) =>
    element.getBoundingClientRect().right > wide + 1 && !scrolls(element.parentElement));
  return { wide, whole: document.documentElement.scrollWidth, outside: outside.map((element) => element.outerHTML) };
}"""
# Texts that are hard to read: the contrast of a text's colour and the colour behind it, by the formula of WCAG.
HARD_TO_READ = """(least) => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const known = new Map([[null, [255, 255, 255]]]);
  const behind = (element) => {
    if (!known.has(element)) {
      const [r, g, b, opacity = 1] = parts(getComputedStyle(element).backgroundColor);
      const under = opacity === 1 ? [0, 0, 0] : behind(element.parentElement);
      known.set(element, [r, g, b].map((value, i) => opacity * value + (1 - opacity) * under[i]));
    }
    return known.get(element);
  };
  const light = (colour) => colour.slice(0, 3).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (...colours) => {
    const [dark, bright] = colours.map(light).sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const found = {}, seen = { visibilityProperty: true, opacityProperty: true };
  const texts = document.createTreeWalker(document.querySelector(".main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility(seen)) continue;
    const colour = parts(getComputedStyle(element).color), reached = contrast(colour, behind(element));
    if (reached < least) found[`${colour} on ${behind(element)}`] = `${reached.toFixed(2)}: ${element.outerHTML}`;
  }
  return { found, background: light(behind(document.querySelector("article"))) };
}"""
LOADED = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src"}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, str]:
    """Build the site as `make docs` does, in a process of its own: Sphinx leaves much behind in a process."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-d", str(folder / "read")]
    command += [str(DOCS), str(folder / "html")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return folder / "html", run.stderr if run.returncode else ""


@pytest.fixture(scope="module")
def site(built) -> Path:
    return built[0]


def test_the_site_builds_without_a_warning(built):
    assert built[1] == ""


class Page(HTMLParser):
    """The ids of a page of HTML, where it leads, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.targets.append(values["href"])
        if tag in LOADED and values.get(LOADED[tag]):
            self.loads.append(values[LOADED[tag]])


@cache
def read(path: Path) -> Page:
    return Page(path.read_text())


def is_elsewhere(target: str) -> bool:
    return bool(urlsplit(target).scheme or urlsplit(target).netloc)


def test_every_link_of_the_site_leads_somewhere(site):
    missing = []
    for page in sorted(site.rglob("*.html")):
        for target in [*read(page).targets, *read(page).loads]:
            path, _, anchor = target.partition("#")
            if is_elsewhere(target):
                continue
            file = (page.parent / unquote(path.partition("?")[0])).resolve() if path else page
            is_there = file.exists() and (not anchor or file.suffix != ".html" or unquote(anchor) in read(file).ids)
            if not is_there:
                missing.append(f"{page.relative_to(site)}: {target}")
    assert not missing


def test_no_page_loads_anything_from_a_network(site):
    loads = [f"{page.relative_to(site)}: {url}" for page in site.rglob("*.html") for url in read(page).loads]
    assert loads
    assert not [load for load in loads if is_elsewhere(load.partition(": ")[2]) and "data:" not in load]
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import\s+|url\()[\"']?(?:https?:)?//", style.read_text()), style


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_of_a_markdown_file_leads_somewhere(page, site):
    missing = []
    for target in links(page.read_text()):
        path, _, anchor = target.partition("#")
        if is_elsewhere(target):
            continue
        file = (page.parent / unquote(path)).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors_of(file, site)):
            missing.append(target)
    assert not missing


def anchors_of(page: Path, site: Path) -> set[str]:
    """The anchors of a page's headings, and those that it has on the site, such as functions."""
    on_site = read((site / page.relative_to(DOCS)).with_suffix(".html")).ids if page.is_relative_to(DOCS) else set()
    return anchors(page.read_text()) | on_site


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_to_elsewhere_are_https(page):
    """No network is used: whether somebody answers there is not looked at."""
    for target in filter(is_elsewhere, links(page.read_text())):
        url = urlsplit(target)
        if url.scheme == "mailto":
            continue
        assert url.scheme == "https", target
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", url.netloc), target


@pytest.fixture(scope="module")
def looked_at(site, browser) -> dict[str, dict[str, dict]]:
    """Look at every page once: in both themes, and on a phone."""
    context = new_context(browser, viewport=SCREEN)
    page, found = context.new_page(), {}
    for path in sorted(site.rglob("*.html")):
        page.set_viewport_size(SCREEN)
        page.goto(path.as_uri())
        seen = found[path.relative_to(site).as_posix()] = {}
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            seen[theme] = page.evaluate(HARD_TO_READ, CONTRAST)
        page.set_viewport_size(PHONE)
        seen["phone"] = page.evaluate(STICKING_OUT)
    context.close()
    return found


def test_no_page_is_wider_than_a_phone(looked_at):
    phones = {name: seen["phone"] for name, seen in looked_at.items()}
    assert {phone["wide"] for phone in phones.values()} == {PHONE["width"]}
    assert not {name: phone for name, phone in phones.items() if phone["whole"] > phone["wide"] or phone["outside"]}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_in_both_themes(looked_at, theme):
    for name, seen in looked_at.items():
        assert (seen[theme]["background"] > 0.5) == (theme == "light"), name
        assert not seen[theme]["found"], name
