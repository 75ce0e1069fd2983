"""The explorer in a browser, by a person's steps."""

import csv
import io
import itertools
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.browser import drawn, new_context
from tests.explorer.conftest import COLOURS, EACH, image, serving, trained

PHONE = {"viewport": {"width": 360, "height": 720}, "has_touch": True, "device_scale_factor": 2}
HOSTILE = "<img src=x onerror='window.hurt=1'>.png"


@pytest.fixture
def visit(browser, serve):
    """Open a server's page. Whatever it complains about, or asks another server for, fails the test.

    It depends on `serve`, so that every page is closed before the server that it keeps asking ends.
    """
    contexts, heard, expected = [], [], []

    def open_page(server, path="", script="0", **settings):
        contexts.append(new_context(browser, **settings))
        contexts[-1].add_init_script(script)
        page = contexts[-1].new_page()
        page.may_complain = expected.append
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        allowed = (server.url, "data:", f"blob:{server.url}")
        page.on("request", lambda asked: None if asked.url.startswith(allowed) else heard.append(asked.url))
        page.goto(server.url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # Asked only now, because complaints that a test expects may come after what it waits for.
    assert [said for said in heard if not any(words in said for words in expected)] == []


@pytest.fixture
def page(visit, server):
    return ready(visit(server))


def ready(page):
    """Wait until the map and the curves are there; they are asked for independently."""
    page.wait_for_selector("#legend button, #legend .scale")
    page.wait_for_function("() => document.querySelector('#step').textContent")
    drawn(page)
    return page


def place(page, item):
    """Where an item lies on the screen, in the middle of the window."""
    page.locator("#stage").scroll_into_view_if_needed()
    box = page.locator("#stage canvas").bounding_box()
    at = page.evaluate("(i) => document.querySelector('#stage canvas').placeOf(i)", item)
    return box["x"] + at["x"], box["y"] + at["y"]


def found(page):
    """Ids of the tiles in the list of what was found, once there is one."""
    page.wait_for_selector("#neighbours li")
    return [int(link.get_attribute("href")[1:]) for link in page.locator("#neighbours a").all()]


def test_opened_it_shows_the_map_and_what_it_is_of(page, photos):
    assert page.title() == page.inner_text("h1") == f"moco on {photos}"
    assert page.inner_text("#note").startswith("61 items, backbone of resnet_tiny, t-SNE")
    assert [re.sub(r"\s+", " ", text) for text in page.locator("#legend button").all_inner_texts()] == [
        f"{name} {EACH + (name == 'red')}" for name in COLOURS
    ]
    assert page.is_hidden("#message")
    pixels = page.evaluate("() => document.querySelector('#stage canvas').drawn")
    assert pixels["points"] == 61


def test_a_click_on_an_item_shows_its_neighbours(page, server):
    page.mouse.click(*place(page, 25))
    assert found(page) == [item["id"] for item in server.json("/like/25?k=24")]
    assert page.url.endswith("#25")
    assert page.inner_text("#query h2") == "green/05 of #1.png"
    assert "label\ngreen" in page.inner_text("#query dl")


def test_back_goes_to_the_item_before(page):
    page.mouse.click(*place(page, 25))
    found(page)
    page.locator("#neighbours a").first.click()
    page.wait_for_function("() => !document.querySelector('#query h2').textContent.startsWith('green/05')")
    page.go_back()
    page.wait_for_function("() => document.querySelector('#query h2').textContent.startsWith('green/05')")
    assert page.url.endswith("#25")


def test_the_last_one_asked_for_is_shown(page):
    """An answer that was slow does not come over a later one."""
    slow = []
    page.route("**/like/25*", lambda route: slow.append(route))
    with page.expect_request("**/like/25*"):
        page.evaluate("() => { location.hash = '#25'; }")
    page.evaluate("() => { location.hash = '#3'; }")
    page.wait_for_function("() => document.querySelector('#query h2')?.textContent.startsWith('blue/03')")
    with page.expect_response("**/like/25*") as answer:
        slow[0].continue_()
    answer.value.finished()
    page.evaluate("() => fetch('/like/26?k=1').then((answer) => answer.json())")  # so the page has read the one before
    drawn(page)
    assert page.inner_text("#query h2").startswith("blue/03")


def test_an_item_is_shown_again_after_a_search(page):
    page.mouse.click(*place(page, 25))
    found(page)
    page.fill("#words", "blue")
    page.click("#ask")
    page.wait_for_function("() => document.querySelector('#query h2').textContent === '“blue”'")
    page.mouse.click(*place(page, 25))
    page.wait_for_function("() => document.querySelector('#query h2').textContent.startsWith('green/05')")


def test_the_keyboard_stays_among_what_was_found(page):
    page.mouse.click(*place(page, 25))
    found(page)
    page.focus("#neighbours li:nth-child(2) a")
    page.keyboard.press("Enter")
    page.wait_for_function("() => !document.querySelector('#query h2').textContent.startsWith('green/05')")
    assert page.evaluate("() => document.activeElement.id") == "found-title"


def test_the_original_opens_from_its_picture(page):
    page.mouse.click(*place(page, 25))
    found(page)
    with page.context.expect_page() as opened:
        page.click("#query .item a")
    opened.value.wait_for_selector("img")
    assert opened.value.url.endswith("/file/25")
    opened.value.wait_for_function("() => document.images[0].naturalWidth === 32")


def test_a_hovered_item_says_its_name(page):
    page.mouse.move(*place(page, 5))
    page.wait_for_selector(".tip:visible")
    assert page.inner_text(".tip").split("\n") == ["blue/05 of #1.png", "label blue"]
    page.mouse.move(5, 5)
    page.wait_for_selector(".tip", state="hidden")


def test_an_id_and_part_of_a_name_are_searched_for(page):
    page.fill("#words", "25")
    page.press("#words", "Enter")
    page.wait_for_function("() => document.querySelector('#query h2')?.textContent.startsWith('green/05')")
    page.fill("#words", "blue/0")
    page.click("#ask")
    page.wait_for_function("() => document.querySelector('#found-title').textContent.startsWith('10 items with')")
    assert found(page) == list(range(10))
    page.fill("#words", "no such thing")
    page.click("#ask")
    page.wait_for_function("() => document.querySelector('#found-title').textContent === 'Nothing found'")


def test_an_id_beyond_the_last_is_said(page):
    page.fill("#words", "999")
    page.press("#words", "Enter")
    page.wait_for_selector("#message.bad")
    assert page.inner_text("#message") == "an id must be below 61, got 999"
    page.may_complain("404")  # the browser notes what was refused


def test_words_are_searched_for_where_they_are_known(visit, captioned_server):
    page = ready(visit(captioned_server))
    page.fill("#words", "a red square")
    page.press("#words", "Enter")
    expected = [item["id"] for item in captioned_server.json("/find?words=a+red+square&k=24")["found"]]
    page.wait_for_selector("#neighbours li")
    assert page.inner_text("#found-title") == "Most similar to this text"
    assert found(page) == expected
    shown = page.locator("#neighbours .cut").first.inner_text()
    assert re.fullmatch("a (blue|green|red) square", shown), "its caption, and not the name of its class"


def test_what_makes_an_answer_doubtful_is_shown(visit, captioned_server):
    page = ready(visit(captioned_server))
    doubt = captioned_server.json("/about")["doubt"]
    assert page.inner_text("#doubt") == (doubt or "")
    page.fill("#words", "a red zzz")
    page.press("#words", "Enter")
    page.wait_for_selector("#message.bad")
    assert page.inner_text("#message") == "no training caption contains zzz, so the results for it mean nothing"
    assert found(page), "and what was found"
    page.fill("#words", "a red square")
    page.press("#words", "Enter")
    page.wait_for_selector("#message", state="hidden")


def test_a_region_is_selected_and_exported(page, server, tmp_path):
    page.click("text=select")
    places = [place(page, i) for i in range(61)]
    inside = [i for i in range(61) if server.explorer.scene.searcher.items.labels[i] == 0]
    left, top = (min(places[i][axis] for i in inside) - 6 for axis in (0, 1))
    right, bottom = (max(places[i][axis] for i in inside) + 6 for axis in (0, 1))
    page.mouse.move(left, top)
    page.mouse.down()
    for corner in ((right, top), (right, bottom), (left, bottom)):
        page.mouse.move(*corner, steps=3)
    page.mouse.up()
    expected = [i for i, (x, y) in enumerate(places) if left < x < right and top < y < bottom]
    assert len(inside) <= len(expected) < 61
    assert page.inner_text("#selected") == f"{len(expected)} items selected"
    with page.expect_download() as download:
        page.click("#export")
    download.value.save_as(tmp_path / "items.csv")
    assert download.value.suggested_filename == "items.csv"
    with (tmp_path / "items.csv").open() as file:
        assert [int(row["id"]) for row in csv.DictReader(file)] == expected
    page.click("#clear")
    assert page.is_hidden("#selection")


def test_what_is_in_view_is_selected_without_a_mouse(page):
    page.focus("#stage canvas")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    for _ in range(6):
        page.keyboard.press("+")
    drawn(page)
    page.focus("text=in view")
    page.keyboard.press("Enter")
    count = int(page.inner_text("#selected").split()[0])
    assert 1 <= count < 61
    page.focus("#stage canvas")
    page.keyboard.press("Escape")
    assert page.is_hidden("#selection")


def test_everything_is_reached_by_keys(page):
    page.keyboard.press("Tab")
    reached = []
    for _ in range(14):
        reached.append(page.evaluate("() => document.activeElement.id || document.activeElement.textContent"))
        page.keyboard.press("Tab")
    assert reached[:4] == ["words", "ask", "file", "theme"]
    assert {"select", "in view", "+", "−", "all", "column"} <= set(reached)
    page.focus("#stage canvas")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".tip:visible")
    page.keyboard.press("Enter")
    assert len(found(page)) == 24


def test_the_map_moves_and_zooms(page):
    before = np.array([place(page, 3), place(page, 50)])
    page.mouse.move(*before[0])
    page.mouse.wheel(0, -400)
    drawn(page)
    zoomed = np.array([place(page, 3), place(page, 50)])
    assert np.allclose(zoomed[0], before[0], atol=3)  # what is pointed at stays
    assert np.linalg.norm(zoomed[1] - zoomed[0]) > 2 * np.linalg.norm(before[1] - before[0])
    x, y = zoomed[0]
    page.mouse.down()
    page.mouse.move(x + 40, y + 25, steps=4)
    page.mouse.up()
    drawn(page)
    assert np.allclose(np.array(place(page, 3)) - zoomed[0], (40, 25), atol=4)
    page.click("text=all")
    drawn(page)
    assert np.allclose([place(page, 3), place(page, 50)], before)


def test_a_colour_by_another_column_and_a_class_alone(page):
    def shot():
        drawn(page)
        return page.evaluate("() => document.querySelector('#stage canvas').toDataURL()")

    page.mouse.move(5, 5)
    by_label = shot()
    page.locator("#legend button").nth(1).click()
    assert page.locator("#legend button").nth(1).get_attribute("aria-pressed") == "true"
    assert shot() != by_label
    page.click("#theme")
    page.click("#theme")
    assert page.locator("#legend button").nth(1).get_attribute("aria-pressed") == "true"  # as the points are
    page.select_option("#column", label="part")
    page.wait_for_function("() => document.querySelector('#legend').innerText.includes('held out')")
    assert shot() != by_label
    page.select_option("#column", label="label")
    page.wait_for_function("() => document.querySelector('#legend').innerText.includes('green')")
    assert shot() == by_label


def test_a_column_of_numbers_has_a_scale(visit, captioned_server):
    page = ready(visit(captioned_server))
    page.select_option("#column", label="light")
    page.wait_for_selector("#legend .scale")
    assert page.locator("#legend .scale").get_attribute("aria-label").startswith("light from ")


def test_a_good_file_is_found_and_a_bad_one_refused(page, photos, tmp_path):
    page.set_input_files("#file", photos / "red" / "05 of #1.png")
    assert found(page)[0] == 45
    assert page.inner_text("#query h2") == "05 of #1.png"
    page.wait_for_function("() => document.querySelector('#query .preview').naturalWidth === 32")
    bad = tmp_path / "bad.png"
    bad.write_text("no picture")
    page.set_input_files("#file", bad)
    page.wait_for_selector("#message.bad")
    assert page.inner_text("#message").startswith("bad.png must be an image")
    assert found(page)[0] == 45  # what was there stays
    page.may_complain("400")
    page.set_input_files("#file", photos / "blue" / "01 of #1.png")
    page.wait_for_selector("#message", state="hidden")
    assert found(page)[0] == 1


def test_a_file_too_large_is_refused_before_it_is_sent(page, monkeypatch, tmp_path):
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate((32 << 20) + 1)
    page.set_input_files("#file", large)
    page.wait_for_selector("#message.bad")
    assert page.inner_text("#message") == "At most 32 MiB are accepted, got 32 MiB."


def test_a_dropped_file_is_found(page, photos):
    content = list((photos / "green" / "07 of #1.png").read_bytes())
    transfer = page.evaluate_handle(
        """(bytes) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], "dropped.png", { type: "image/png" }));
          return transfer;
        }""",
        content,
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    assert page.is_visible("#drop")
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    assert found(page)[0] == EACH + 7
    assert page.is_hidden("#drop")


def test_dark_and_light_are_switched_and_kept(visit, server):
    page = ready(visit(server, color_scheme="light"))

    def colours():
        drawn(page)
        canvas = page.locator("#stage canvas").screenshot()
        return page.evaluate("() => getComputedStyle(document.body).backgroundColor"), canvas

    light = colours()
    page.click("#theme")
    dark = colours()
    assert light[0] == "rgb(252, 251, 249)"
    assert dark[0] == "rgb(20, 22, 26)"
    assert dark[1] != light[1]
    page.reload()
    ready(page)
    assert colours()[0] == dark[0]
    page.click("#theme")
    assert colours()[0] == light[0]


def test_the_machine_s_own_preference_comes_first(visit, server):
    page = ready(visit(server, color_scheme="dark"))
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    assert page.get_attribute("#theme", "aria-pressed") == "true"


def test_a_phone_shows_it_all_in_one_column(visit, server):
    page = ready(visit(server, **PHONE))
    page.touchscreen.tap(*place(page, 25))
    assert len(found(page)) == 24
    assert page.evaluate("() => document.documentElement.scrollWidth") == 360
    boxes = [page.locator(name).bounding_box() for name in ("#look", "#colours", "#found", "#training")]
    assert all(above["y"] + above["height"] <= below["y"] for above, below in itertools.pairwise(boxes))
    for tool in page.locator("#stage .tools button").all():
        assert tool.bounding_box()["height"] >= 32


def test_recordings_can_be_played(visit, recordings_server):
    page = ready(visit(recordings_server, "#3"))
    found(page)
    page.evaluate("() => document.querySelector('#query audio').load()")
    page.wait_for_function("() => document.querySelector('#query audio').duration > 0.4")


def test_curves_follow_a_run_that_goes_on(visit, serve, run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("encoder.safetensors", "explore"))
    row = json.loads((copy / "metrics.jsonl").read_text().splitlines()[0]) | {"step": 1, "loss": 3.5, "fill": 0.25}
    (copy / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    server = serve(copy, ready=False)
    page = visit(server)
    page.wait_for_function("() => document.querySelector('#charts').innerText.includes('3.5')")
    said = "The map will appear when the run is finished."
    page.wait_for_function("(said) => document.querySelector('#message').innerText === said", arg=said)
    assert page.inner_text("#step").startswith("Step 1, logged ")
    assert page.is_hidden("#look")
    assert "filled\n0.25" in page.inner_text("#meters")
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row | {"step": 2, "loss": 3.25, "fill": 0.5}) + "\n")
    page.wait_for_selector("#charts svg")  # one row is shown as a number, two as a curve
    page.wait_for_function("() => document.querySelector('#charts').innerText.includes('3.25')")
    page.wait_for_function("() => document.querySelector('#meters').innerText.includes('0.5')")
    shutil.copy(run / "encoder.safetensors", copy / "encoder.safetensors")
    ready(page)
    page.wait_for_function("() => document.querySelector('#step').textContent.startsWith('Finished')")


def test_hostile_names_stay_text(visit, serve, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("<b>bold", "plain"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(10):
            image((200, 10 * i, 40), rng).save(tmp_path / "data" / name / f"{i}{HOSTILE}".replace("/", ""))
    server = serve(trained(str(tmp_path / "data"), tmp_path / "run"))
    page = ready(visit(server, "#3"))
    found(page)
    page.mouse.move(*place(page, 3))
    page.wait_for_selector(".tip:visible")
    assert HOSTILE in page.inner_text("#query h2")
    assert "<b>bold" in page.inner_text("#legend")
    assert page.evaluate("() => window.hurt") is None
    assert page.locator("b").count() == page.locator("#charts b, #training b").count()


def test_a_server_that_ended_is_said(visit, run):
    with serving(run) as server:
        page = ready(visit(server))
    page.fill("#words", "7")
    page.press("#words", "Enter")
    page.wait_for_selector("#message.bad")
    assert page.inner_text("#message") == "The server does not answer. Is likewise explore still running?"
    page.may_complain("Failed to load resource")


def test_pictures_are_seen(page):
    """What is drawn has the colours of the classes: a screenshot is not one flat surface."""
    shot = np.asarray(Image.open(io.BytesIO(page.locator("#stage canvas").screenshot())).convert("RGB")).reshape(-1, 3)
    for name in ("#214cc5", "#cb7a33", "#4ead8d"):
        wanted = np.array([int(name[i : i + 2], 16) for i in (1, 3, 5)])
        assert (np.abs(shot.astype(int) - wanted).sum(axis=1) < 60).sum() > 50


def test_a_page_over_a_restart_is_loaded_anew(visit, run, server):
    """Another explorer at the same address is another run."""
    # A finished run is asked about every ten seconds; here, every fifth of one.
    script = "window.setTimeout = ((later) => (act, time) => later(act, Math.min(time, 200)))(window.setTimeout)"
    page = ready(visit(server, script=script))
    page.evaluate("() => { window.before = true; }")
    before, server.explorer.id = server.explorer.id, "another"
    server.explorer._curves = (None, {})
    try:
        page.wait_for_function("() => !window.before")
    finally:
        server.explorer.id, server.explorer._curves = before, (None, {})
