"""The report's page, as text and in a browser."""

import base64
import copy
import io
import itertools
import json
import re
import wave
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from likewise.report.page import render
from tests.browser import drawn

PHONE = {"viewport": {"width": 360, "height": 720}, "device_scale_factor": 2}
HOSTILE = '</script><img src=x onerror="window.hurt=1">\'"`${1}\u2028&amp;--><!--'
ITEMS = 30


def colour(tile):
    return (37 * tile % 256, 91 * tile % 256, 151 * tile % 256)


def sprite(count, columns, side=8):
    """Tiles of one colour each, so that a screenshot tells which one is seen."""
    sheet = np.zeros((-(-count // columns) * side, columns * side, 3), np.uint8)
    for tile in range(count):
        row, column = divmod(tile, columns)
        sheet[row * side : (row + 1) * side, column * side : (column + 1) * side] = colour(tile)
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "webp", lossless=True)
    uri = "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
    return {"uri": uri, "columns": columns, "side": side}


def chart(*series, title="Loss", x="step"):
    return {"title": title, "note": "One or two sentences.", "x": x, "series": list(series)}


def line(points, name="loss", kind="line"):
    return {"name": name, "points": points, "kind": kind}


def neighbour(tile, same):
    label = None if same is None else "1" if same else "2"
    return {"tile": tile, "name": f"item {tile}", "label": label, "similarity": 0.9 - tile / 100, "same": same}


def whole():
    """Contents with something in every section."""
    random = np.random.default_rng(0)
    steps = range(10, 2001, 10)
    return {
        "title": "moco on squares",
        "when": "2026-11-16 03:12",
        "version": "likewise 0.1.0",
        "about": [["data", "squares: 30 images of 3×8×8"], ["method", "moco"]],
        "figures": [
            {"name": "k-NN", "value": "0.970", "note": "k 20", "beside": [["raw pixels", "0.913"], ["chance", "0.1"]]},
            {"name": "rank", "value": "61 of 128"},
        ],
        "figures_note": "Intervals are Wilson's.",
        "worth": "Better than raw pixels by 13 points.",
        "doubt": "8 test items say nothing.",
        "verdict": "The embeddings are spread out.",
        "warnings": ["step 120: the queue is still filling (40%)"],
        "charts": [
            chart(
                line([[step, 8 / step**0.3] for step in steps]),
                line([[10, 8.3], [2000, 8.3]], "chance, log N", "reference"),
            ),
            chart(line([[500, 0.8], [1000, 0.9]], "k-NN"), title="k-NN"),
        ],
        "histogram": {
            "title": "Similarities",
            "note": "Cosines.",
            "x": "cosine",
            "edges": np.linspace(-1, 1, 5).tolist(),
            "series": [
                {"name": "positives", "shares": [0, 0, 0.25, 0.75]},
                {"name": "negatives", "shares": [0.1, 0.4, 0.4, 0.1]},
            ],
        },
        "map": {
            "title": "Map",
            "note": f"t-SNE of {ITEMS} items",
            # A grid with a little noise: no two dots lie on each other.
            "points": [[(i % 6 + random.random() / 4) / 6, (i // 6 + random.random() / 4) / 5] for i in range(ITEMS)],
            "labels": [i % 3 if i < 29 else -1 for i in range(ITEMS)],
            "classes": ["ant", "bee", "cat"],
            "names": [f"train/{i}.png" for i in range(ITEMS)],
            "sprite": sprite(ITEMS, 7),
        },
        "neighbours": {
            "title": "Neighbours",
            "note": "By cosine.",
            "sprite": sprite(9, 3),
            "rows": [
                {
                    "query": {"tile": 0, "name": "item 0", "label": "1"},
                    "found": [neighbour(tile, (True, False, None)[tile % 3]) for tile in range(1, 9)],
                }
            ],
        },
        "words": {
            "title": "Found by words",
            "note": "By cosine.",
            "sprite": sprite(3, 3),
            "rows": [
                {
                    "query": {"name": "a small red star"},
                    "found": [
                        {"tile": tile, "name": f"star {tile}", "similarity": 0.5, "same": tile == 1}
                        for tile in range(3)
                    ],
                }
            ],
        },
        "pairs": {
            "title": "What should agree",
            "note": "As the first step saw them.",
            "sprite": sprite(6, 3, side=64),
            "columns": ["item", "first view", "second view"],
            "rows": [[0, 1, 2], [3, 4, 5]],
        },
        "recipe": 'method = "moco"\nseed = 0\n',
        "skipped": {"count": 12, "said": "12 files could not be read", "files": [["a/b.jpg", "truncated"]]},
    }


def seen(element):
    """The colour in the middle of what is on the screen."""
    image = Image.open(io.BytesIO(element.screenshot())).convert("RGB")
    return image.getpixel((image.width // 2, image.height // 2))


def place(page, item):
    """Where the dot of an item is in the window."""
    return page.evaluate(
        """(i) => {
            const canvas = document.querySelector("#map canvas");
            canvas.scrollIntoView({ block: "center", behavior: "instant" });
            const box = canvas.getBoundingClientRect(), { x, y } = canvas.placeOf(i);
            return [box.left + x, box.top + y];
        }""",
        item,
    )


def overflow(page):
    return page.evaluate("document.scrollingElement.scrollWidth - innerWidth")


# As text


class Parts(HTMLParser):
    """The tags of a page, and the texts of its scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)


def test_what_is_embedded_can_be_read_back():
    contents = whole()
    contents["map"]["names"][3] = HOSTILE
    embedded = json.loads(Parts(render(contents)).scripts[0])
    assert embedded["map"] == contents["map"]
    assert embedded["charts"] == contents["charts"]


def test_nothing_in_names_becomes_markup():
    def spoil(value):
        if isinstance(value, dict):
            return {key: value[key] if key in ("uri", "kind") else spoil(value[key]) for key in value}
        if isinstance(value, list):
            return [spoil(part) for part in value]
        return value + HOSTILE if isinstance(value, str) else value

    plain, spoiled = Parts(render(whole())), Parts(render(spoil(whole())))
    assert [tag for tag, _ in spoiled.tags] == [tag for tag, _ in plain.tags]
    assert len(spoiled.scripts) == 2


def test_it_loads_nothing():
    parts = Parts(render(whole()))
    addresses = [attrs[name] for _, attrs in parts.tags for name in ("src", "href") if name in attrs]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    policy = next(attrs["content"] for _, attrs in parts.tags if "http-equiv" in attrs)
    inline = "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    assert policy == f"default-src 'none'; img-src data:; media-src data:; {inline}"


def test_names_that_are_not_utf8_can_be_written():
    contents = whole()
    contents["skipped"]["files"] = [["caf\udce9.jpg", "truncated"]]
    contents["map"]["names"][0] = "caf\udce9.jpg"
    assert "caf\\udce9.jpg" in render(contents).encode("utf-8").decode("utf-8")


def test_a_loss_that_is_not_finite_is_a_gap():
    contents = whole() | {"charts": [chart(line([[1, 2.0], [2, float("nan")], [3, float("inf")]]))]}
    embedded = json.loads(Parts(render(contents)).scripts[0])
    assert embedded["charts"][0]["series"][0]["points"] == [[1, 2.0], [2, None], [3, None]]


def test_many_warnings_and_skipped_files_are_folded():
    contents = whole()
    assert "<details>" not in render(contents)
    contents["warnings"] = [f"step {step}: careful" for step in range(50)]
    assert "<summary>Show 40 more</summary>" in render(contents)
    contents["skipped"] = {
        "count": 5000,
        "said": "5,000 files & more",
        "files": [[f"{i}.jpg", "empty"] for i in range(100)],
    }
    assert "5,000 files &amp; more." in render(contents)
    assert "<summary>Show the first 100</summary>" in render(contents)


# In a browser


def test_every_section_is_there(show):
    page = show(render(whole()))
    names = [
        "figures",
        "warnings",
        "map",
        "words",
        "neighbours",
        "similarities",
        "training",
        "pairs",
        "plan",
        "recipe",
        "skipped",
    ]
    assert page.eval_on_selector_all("section", "all => all.map((one) => one.id)") == names
    assert page.eval_on_selector_all("nav a", "all => all.map((one) => one.hash)") == [f"#{name}" for name in names]
    assert page.locator("h1").inner_text() == page.title() == "moco on squares"
    assert page.locator("#training svg[role=img]").count() == 2
    assert page.locator("#similarities svg[role=img]").count() == 1
    assert page.locator("#pairs .tile").count() == 6
    assert "0.970" in page.locator("#figures").inner_text()
    assert page.locator("#recipe pre").inner_text().startswith('method = "moco"')


def test_empty_sections_are_left_out(show):
    nothing = dict.fromkeys(("histogram", "map", "words", "neighbours", "pairs"))
    nothing |= {"about": [], "figures": [], "warnings": [], "charts": [], "skipped": {"count": 0, "files": []}}
    page = show(render(whole() | nothing | {"verdict": "", "recipe": ""}))
    assert page.locator("section").count() == page.locator("nav a").count() == 0
    assert page.locator("h1").is_visible()


def test_pictures_are_there(show):
    page = show(render(whole()))
    sizes = page.evaluate(
        """() => Promise.all([...document.querySelectorAll(".tile")].map(async (tile) => {
            const image = new Image();
            image.src = getComputedStyle(tile).backgroundImage.slice(5, -2);
            await image.decode();
            return [image.naturalWidth, tile.offsetWidth, tile.getAttribute("role")];
        }))"""
    )
    assert sizes == [[24, 88, "img"]] * 12 + [[192, 80, "img"]] * 6
    for section in ("words", "neighbours", "pairs"):
        for tile, element in enumerate(page.locator(f"#{section} .tile").all()):
            assert seen(element) == colour(tile)


def test_small_pictures_stay_sharp_and_large_ones_smooth(show):
    page = show(render(whole()))
    how = "(one) => getComputedStyle(one).imageRendering"
    assert page.locator("#neighbours .tile").first.evaluate(how) == "pixelated"
    assert page.locator("#pairs .tile").first.evaluate(how) == "auto"


def test_neighbours_are_marked_by_more_than_colour(show):
    page = show(render(whole()))
    found = page.locator("#neighbours .found > div")
    labels = [found.nth(i).locator(".tile").get_attribute("aria-label") for i in range(3)]
    assert labels == [
        "item 1, class 2, similarity 0.89, a different class",
        "item 2, similarity 0.88",
        "item 3, class 1, similarity 0.87, same class as the query",
    ]
    lines = [found.nth(i).locator(".mark").evaluate("(one) => getComputedStyle(one).borderBottomStyle") for i in (0, 2)]
    assert lines == ["dotted", "solid"]
    assert page.locator("#neighbours .key li").all_inner_texts() == [
        "same class as the query",
        "a different class",
    ]


def test_a_caption_that_asks_is_text_and_its_images_are_marked(show):
    page = show(render(whole()))
    assert page.locator("#words .neighbours > li > :first-child").all_inner_texts() == ["a small red star"]
    assert page.locator("#words .key li").all_inner_texts() == ["the image of this caption", "another image"]
    tiles = page.locator("#words .tile")
    assert [tile.get_attribute("aria-label") for tile in tiles.all()] == [
        "star 0, similarity 0.50, another image",
        "star 1, similarity 0.50, the image of this caption",
        "star 2, similarity 0.50, another image",
    ]
    assert page.locator("#words .found .caption").all_inner_texts() == ["0.50"] * 3
    styles = page.locator("#words .mark").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).borderBottomStyle)"
    )
    assert styles == ["solid", "dotted", "dotted", "solid", "dotted"], "those of the key first"


def test_a_pairs_caption_is_below_its_views(show):
    contents = whole()
    assert show(render(contents)).locator("#pairs .caption").count() == 0
    contents["pairs"] |= {"columns": ["item", "view"], "rows": [[0, 1], [3, 4]], "captions": ["red star", "x" * 100]}
    page = show(render(contents))
    rows = page.locator("#pairs li")
    assert rows.locator(".caption").all_inner_texts() == ["red star", "x" * 100]
    for i in range(2):
        view, caption = (rows.nth(i).locator(part).bounding_box() for part in (".views", ".caption"))
        assert caption["y"] >= view["y"] + view["height"]
        assert caption["width"] == view["width"] == 168, "however long it is"


def test_a_caption_goes_in_its_own_direction(show):
    contents = whole()
    hebrew = "כלב אדום קטן."
    contents["words"]["rows"].append({"query": {"name": hebrew}, "found": []})
    contents["pairs"]["captions"] = ["red star", hebrew]
    contents["neighbours"]["rows"][0]["query"]["name"] = contents["map"]["names"][4] = hebrew
    page = show(render(contents))
    page.mouse.move(*place(page, 4))
    for where in ("#words .asked", "#pairs .caption", "#neighbours .name", "#map .tip [dir]"):
        ways = page.locator(where).evaluate_all("all => all.map((one) => getComputedStyle(one).direction)")
        assert ways[-1] == "rtl", where
        assert set(ways[:-1]) <= {"ltr"}, where


def test_hovering_a_dot_shows_its_picture_and_name(show):
    page = show(render(whole()))
    tip = page.locator("#map .tip")
    assert tip.is_hidden()
    for item, kind in ((0, "class ant"), (17, "class cat"), (28, "class bee")):
        page.mouse.move(*place(page, item))
        assert f"train/{item}.png" in tip.inner_text()
        assert kind in tip.inner_text()
        assert seen(tip.locator(".tile")) == colour(item)
    page.mouse.move(1, 1)
    assert tip.is_hidden()


def test_tapping_a_dot_shows_the_same(show):
    page = show(render(whole()), has_touch=True, **PHONE)
    page.touchscreen.tap(*place(page, 8))
    assert "train/8.png" in page.locator("#map .tip").inner_text()
    assert overflow(page) <= 0


def test_keys_go_from_dot_to_dot(show):
    page = show(render(whole()))
    tip = page.locator("#map .tip")
    page.locator("#map canvas").focus()
    for key, item in (
        ("ArrowRight", 0),
        ("ArrowRight", 1),
        ("ArrowDown", 7),
        ("ArrowLeft", 6),
        ("ArrowUp", 0),
        ("PageUp", 29),
        ("PageDown", 0),
    ):
        page.keyboard.press(key)
        assert f"train/{item}.png" in tip.inner_text(), key
        assert ("no class" in tip.inner_text()) == (item == 29)
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_a_highlighted_class_is_the_only_one_offered(show):
    page = show(render(whole()))
    bee = page.get_by_role("button", name="Highlight class bee")
    tip = page.locator("#map .tip")
    bee.click()
    assert bee.get_attribute("aria-pressed") == "true"
    page.mouse.move(*place(page, 0))
    assert tip.is_hidden()
    page.mouse.move(*place(page, 1))
    assert tip.is_visible()
    bee.click()
    page.mouse.move(*place(page, 0))
    assert tip.is_visible()


def test_the_map_zooms_and_moves(show):
    page = show(render(whole()))
    before = place(page, 14)
    page.mouse.move(*before)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    drawn(page)
    assert place(page, 14) == pytest.approx(before, abs=5)  # the pointer's place, known to a pixel, stays
    assert place(page, 15)[0] - place(page, 14)[0] > 200
    zoomed = place(page, 14)
    page.mouse.down()
    page.mouse.move(before[0] + 40, before[1] + 25)
    page.mouse.up()
    assert place(page, 14) == pytest.approx([zoomed[0] + 40, zoomed[1] + 25], abs=2)
    page.get_by_role("button", name="Draw pictures").click()


@pytest.mark.parametrize("classes", [0, 14, 120])
def test_a_map_with_any_number_of_classes(show, classes):
    contents = whole()
    names = [f"class {c}" for c in range(classes)]
    labels = [i * 7 % classes for i in range(ITEMS)] if classes else None
    contents["map"] |= {"classes": names, "labels": labels, "sprite": None}
    page = show(render(contents))
    assert page.locator("#map .legend button").count() == min(classes, 20)
    assert page.get_by_text("and 100 more classes").count() == (classes == 120)
    page.mouse.move(*place(page, 5))
    assert "train/5.png" in page.locator("#map .tip").inner_text()


def test_a_chart_is_read_by_mouse_and_by_keys(show):
    page = show(render(whole()))
    figure = page.locator("#training figure").first
    values, picture = figure.locator(".read b"), figure.locator("svg[role=img]")
    assert picture.get_attribute("aria-label") == "Loss. Last values: loss 0.8181, chance, log N 8.3"
    assert values.all_inner_texts() == ["0.8181", "8.3"]
    picture.hover(position={"x": 1, "y": 50})
    assert values.all_inner_texts() == ["4.009", "8.3"]
    assert figure.locator(".here").text_content() == "step 10"
    page.mouse.move(1, 1)
    assert values.all_inner_texts() == ["0.8181", "8.3"]
    picture.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert figure.locator(".here").text_content() == "step 20"
    assert values.all_inner_texts() == ["3.257", "8.3"]  # chance is known between its two points


def test_a_chart_of_one_point_is_a_number(show):
    one = chart(line([[60, 0.933]], "k-NN"), line([[60, 0.1]], "chance", "reference"), title="k-NN accuracy")
    page = show(render(whole() | {"charts": [one]}), **PHONE)
    figure = page.locator("#training figure")
    assert figure.locator("svg").count() == 0
    assert figure.locator("h3").inner_text() == "k-NN accuracy"
    assert figure.locator(".single li").all_inner_texts() == ["0.933\nk-NN", "0.1\nchance"]
    assert "Measured once, at step 60." in figure.inner_text()
    assert overflow(page) <= 0


def heard():
    """Contents whose query and first two neighbours can be heard: 0.1 s of silence each."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 800, "NONE", ""))
        sound.writeframes(bytes(1600))
    uri = "data:audio/wav;base64," + base64.b64encode(file.getvalue()).decode()
    contents = whole()
    contents["neighbours"]["sounds"] = dict.fromkeys(range(3), uri)
    return contents


def test_sounds_are_played_below_their_pictures_by_the_keyboard(show):
    page = show(render(heard()))
    buttons = page.locator("#neighbours button")
    assert page.locator(".players").count() == 0, "they stand with the pictures now"
    labels = [button.get_attribute("aria-label") for button in buttons.all()]
    assert labels == ["Play query: item 0, class 1", "Play neighbour 1: item 1, class 2", "Play neighbour 2: item 2"]
    second = buttons.nth(1)
    assert second.evaluate("(node) => node.parentElement.querySelector('.tile').title").startswith("item 1")
    second.focus()
    # The button is watched from before the key is pressed, because 0.1 s are soon over.
    page.evaluate(
        """() => {
            const node = document.querySelectorAll("#neighbours button")[1];
            let wasPressed = false;
            window.over = new Promise((done) => new MutationObserver(() => {
                wasPressed ||= node.ariaPressed === "true";
                if (wasPressed && node.ariaPressed === "false") done(true);
            }).observe(node, { attributeFilter: ["aria-pressed"] }));
        }"""
    )
    page.keyboard.press("Space")
    assert page.evaluate("() => window.over")
    assert second.inner_text() == "▶", "it has come to its end"
    page.set_viewport_size(PHONE["viewport"])
    drawn(page)
    assert overflow(page) <= 0


def test_sounds_can_be_heard_without_javascript(show):
    page = show(render(heard()), java_script_enabled=False)
    assert page.locator("#neighbours").is_visible()
    assert page.locator("#neighbours .players audio:visible").count() == 3
    assert "neighbour 1: item 1, class 2" in page.locator("#neighbours").inner_text()


def test_a_histogram_is_read_bin_by_bin(show):
    page = show(render(whole()))
    figure = page.locator("#similarities figure")
    label = "Similarities. positives most often near 0.75, 75%; negatives most often near −0.25, 40%"
    assert figure.locator("svg[role=img]").get_attribute("aria-label") == label
    figure.locator("svg[role=img]").focus()
    page.keyboard.press("End")
    assert figure.locator(".here").text_content() == "cosine 0.5 to 1"
    assert figure.locator(".read b").all_inner_texts() == ["75%", "10%"]


AWKWARD = {
    "no point": [line([])],
    "no series": [],
    "only gaps": [line([[1, None], [2]])],
    "gaps": [line([[1, 3.0], [2, None], [3, 2.0], [4], [5, 1.0], [6, 0.5]])],
    "one value": [line([[step, 0.25] for step in range(100)])],
    "zeros": [line([[0, 0], [1, 0]])],
    "tiny": [line([[step, 1e-7 * step] for step in range(100)])],
    "vast": [line([[1, -3e30], [200_000_000, 4e30]])],
    "narrow": [line([[step, 1000 + step * 1e-3] for step in range(50)])],
    "many": [line([[step, np.sin(step / 999)] for step in range(20_000)], f"series {i}") for i in range(3)],
}


@pytest.mark.parametrize("width", [360, 1200])
def test_awkward_charts(show, width):
    charts = [chart(*series, title=kind) for kind, series in AWKWARD.items()]
    page = show(render(whole() | {"charts": charts}), viewport={"width": width, "height": 800})
    assert overflow(page) <= 0
    for kind, figure in zip(AWKWARD, page.locator("#training figure").all(), strict=True):
        picture = figure.locator("svg[role=img]")
        dots = {"gaps": 4, "zeros": 2, "vast": 2}.get(kind, 0)
        assert figure.locator(".series circle").count() == dots, kind
        picture.hover()
        picture.focus()
        page.keyboard.press("ArrowLeft")
        drawing = picture.inner_html()
        assert "NaN" not in drawing, kind
        assert "Infinity" not in drawing, kind
        boxes = picture.locator("text").evaluate_all("all => all.map((one) => one.getBoundingClientRect().toJSON())")
        assert all(apart(*two) for two in itertools.combinations(boxes, 2)), kind
        outer = picture.bounding_box()
        assert min(box["left"] for box in boxes) >= outer["x"] - 1, kind
        assert max(box["right"] for box in boxes) <= outer["x"] + outer["width"] + 1, kind


def apart(one, other):
    """Two boxes of text do not lie on each other; four pixels of their height are air."""
    beside = one["left"] >= other["right"] or other["left"] >= one["right"]
    return beside or one["top"] >= other["bottom"] - 4 or other["top"] >= one["bottom"] - 4


def test_dark_and_light(show):
    page = show(render(whole()), color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    canvas = "document.querySelector('#map canvas').toDataURL()"
    light = page.evaluate(background), page.evaluate(canvas)
    page.emulate_media(color_scheme="dark")
    drawn(page)
    dark = page.evaluate(background), page.evaluate(canvas)
    assert sum(map(int, re.findall(r"\d+", light[0]))) > 3 * 230
    assert sum(map(int, re.findall(r"\d+", dark[0]))) < 3 * 40
    assert light[1] != dark[1]  # the map follows at once


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_paper(show, scheme):
    page = show(render(whole()), color_scheme=scheme)

    def brightness(name):
        value = page.evaluate(f"getComputedStyle(document.body).getPropertyValue('--{name}')").strip()
        parts = np.array([int(value[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)

    for name in ("ink", "muted", "bad", "accent"):
        for paper in ("paper", "raised", "sunk"):
            low, high = sorted((brightness(name), brightness(paper)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, paper)  # WCAG AA


def test_nothing_is_wider_than_the_window(show):
    contents = whole()
    contents["title"] = "a" * 200
    contents["recipe"] = "x = " + "1" * 500
    contents["skipped"]["files"] = [["b" * 300, "c" * 300]]
    contents["about"].append(["d" * 100, "e" * 300])
    contents["figures"].append({"name": "f" * 100, "value": "0.893 ± 0.012" * 9, "note": "g" * 200})
    contents["map"]["names"] = ["h" * 300] * ITEMS
    contents["map"]["classes"] = ["i" * 200, "j", "k"]
    contents["charts"][0]["series"][0]["name"] = "l" * 200
    contents["neighbours"]["rows"][0]["query"]["name"] = "m" * 200
    contents["neighbours"]["rows"][0]["found"][0]["label"] = "n" * 200
    contents["neighbours"]["sprite"] |= {"side": 40}
    contents["words"]["rows"][0]["query"]["name"] = "o" * 200
    contents["pairs"]["captions"] = ["p" * 200, "👩‍👩‍👧‍👦" * 40]
    page = show(render(contents), **PHONE)
    for width in (360, 320, 700, 900):
        page.set_viewport_size({"width": width, "height": 700})
        drawn(page)
        assert overflow(page) <= 0, width
        page.mouse.move(*place(page, 11))
        assert overflow(page) <= 0, width


def test_charts_and_map_follow_the_width(show):
    page = show(render(whole()))
    page.set_viewport_size({"width": 400, "height": 700})
    drawn(page)
    assert overflow(page) <= 0
    assert page.locator("#training svg[role=img]").first.get_attribute("viewBox").split()[2] == "368"
    assert page.locator("#map canvas").bounding_box()["height"] < 400


def test_hostile_names_stay_text(show):
    contents = copy.deepcopy(whole())
    contents["title"] = contents["recipe"] = contents["verdict"] = HOSTILE
    contents["map"] |= {"names": [HOSTILE] * ITEMS, "classes": [HOSTILE] * 3, "title": HOSTILE}
    contents["charts"][0] |= {"title": HOSTILE, "note": HOSTILE}
    contents["charts"][0]["series"][0]["name"] = HOSTILE
    contents["neighbours"]["rows"][0]["query"] |= {"name": HOSTILE, "label": HOSTILE}
    contents["words"]["rows"][0]["query"]["name"] = contents["words"]["rows"][0]["found"][0]["name"] = HOSTILE
    contents["pairs"] |= {"columns": [HOSTILE] * 3, "captions": [HOSTILE, HOSTILE]}
    contents["skipped"]["files"] = [[HOSTILE, HOSTILE]]
    page = show(render(contents))
    page.mouse.move(*place(page, 4))
    assert HOSTILE in page.locator("#map .tip").text_content()
    assert page.locator("h1").text_content() == HOSTILE
    assert page.locator("#training h3").first.text_content() == HOSTILE
    assert page.locator("#skipped td").first.text_content() == HOSTILE
    assert page.locator("#words .asked").text_content() == HOSTILE
    assert page.locator("#words .tile").first.get_attribute("title").startswith(HOSTILE)
    assert page.locator("#pairs .caption").all_text_contents() == [HOSTILE, HOSTILE]
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hurt") is None


def test_without_javascript_words_and_figures_remain(show):
    page = show(render(whole()), java_script_enabled=False)
    body = page.locator("body").inner_text()
    for words in (
        "need JavaScript",
        "0.970",
        "raw pixels",
        "by 13 points",
        "8 test items",
        "spread out",
        "still filling",
        'method = "moco"',
        "a/b.jpg",
        "30 images",
    ):
        assert words in body
    assert page.locator("#map").is_hidden()
    assert page.locator("nav a:visible").count() == 5
