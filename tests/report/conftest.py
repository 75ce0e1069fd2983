"""A page of the report in a real browser."""

import pytest

from tests.browser import browser as browser
from tests.browser import drawn, new_context
from tests.maps import real_maps


@pytest.fixture(scope="package", autouse=True)
def real():
    with real_maps():
        yield


@pytest.fixture
def show(browser, tmp_path):
    """Open a page from a file. Whatever it complains about, or asks the network for, fails the test."""
    file, contexts, heard = tmp_path / "page.html", [], []

    def asked(request):
        if not request.url.startswith(("data:", file.as_uri())):
            heard.append(f"asked for {request.url}")

    def open_page(html, **settings):
        file.write_text(html, encoding="utf-8")
        contexts.append(new_context(browser, **settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("request", asked)
        page.goto(file.as_uri())
        if settings.get("java_script_enabled", True):
            drawn(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []
