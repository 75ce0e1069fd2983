"""A real browser for the tests of pages; where there is none, they are skipped."""

import shutil

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


# For this folder and not for the session: while Playwright runs, no other test could use asyncio.
@pytest.fixture(scope="package")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested with Playwright: pip install it")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"pages are tested in a browser, and none of {', '.join(PROGRAMS)} is here")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a page from a file. Whatever it complains about, or asks the network for, fails the test."""
    file, contexts, heard = tmp_path / "page.html", [], []

    def asked(request):
        if not request.url.startswith(("data:", file.as_uri())):
            heard.append(f"asked for {request.url}")

    def open_page(html, **settings):
        file.write_text(html, encoding="utf-8")
        contexts.append(browser.new_context(**settings))
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


def drawn(page):
    """Wait until what was asked for is on the screen: two frames, as sizes are only known in the first."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
