"""While the first map is made, the page says what is being done and draws how much of it is done."""

import shutil
import threading

import pytest

from likewise.explorer import scene
from likewise.explorer.scene import Scene
from tests.browser import drawn, new_context
from tests.explorer.conftest import PATIENCE, serving, until
from tests.maps import real_maps

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 720}},
}


@pytest.fixture
def unseen(run, tmp_path):
    """A run that nobody has looked at yet: neither vectors nor a map are kept in it."""
    return shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("search", "explore"))


@pytest.fixture
def half_way(monkeypatch):
    """A map that stays at two fifths of its iterations until the event is set."""
    go_on, lay_out = threading.Event(), scene.laid_out

    def slow(units, tell_share):
        tell_share(0.4)
        assert go_on.wait(PATIENCE)
        return lay_out(units, tell_share)

    monkeypatch.setattr(scene, "laid_out", slow)
    yield go_on
    go_on.set()  # also where the test failed, or its thread would stay


def test_the_shares_of_embedding_and_of_the_map_grow_from_nothing_to_all(unseen):
    heard = []
    with real_maps():
        Scene.open(unseen, say=lambda words, share: heard.append((words, share)))
    for words in ("Embedding the items …", "Drawing a map of 61 items …"):
        shares = [share for said, share in heard if said == words]
        assert shares[0] == 0
        assert shares[-1] == pytest.approx(1)
        assert shares == sorted(shares)
    assert heard == sorted(heard, key=lambda each: each[0].startswith("Drawing")), "one after the other"


def test_the_status_has_the_share_that_is_done(unseen, half_way):
    with serving(unseen, ready=False) as server:
        until(lambda: server.json("/status")["share"] == 0.4)
        status = server.json("/status")
        assert (status["ready"], status["said"]) == (False, "Drawing a map of 61 items …")
        half_way.set()
        until(lambda: server.json("/status")["ready"])


def test_what_failed_has_no_share(unseen):
    (unseen / "encoder.safetensors").write_bytes(b"torn")
    with serving(unseen, ready=False) as server:
        until(lambda: server.json("/status")["failed"])
        assert server.json("/status")["share"] is None


@pytest.mark.parametrize("look", LOOKS)
def test_a_bar_is_drawn_until_the_map_is_there(browser, unseen, half_way, look):
    with serving(unseen, ready=False) as server, new_context(browser, **LOOKS[look]) as context:
        page = context.new_page()
        page.goto(server.url)
        page.wait_for_selector("[role=progressbar][aria-valuenow='40']")
        drawn(page)
        bar = page.get_by_role("progressbar", name="Drawing a map of 61 items …")
        whole, done = bar.bounding_box(), bar.locator("div").bounding_box()
        assert done["width"] == pytest.approx(0.4 * whole["width"], abs=1)
        assert whole["x"] + whole["width"] <= page.viewport_size["width"], "it fits beside nothing that scrolls"
        colours = [each.evaluate("(e) => getComputedStyle(e).backgroundColor") for each in (bar, bar.locator("div"))]
        assert colours[0] != colours[1]
        half_way.set()
        page.wait_for_selector("#legend button")
        assert bar.is_hidden()
        assert page.is_hidden("#message")
