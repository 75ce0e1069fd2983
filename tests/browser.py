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
# Milliseconds. It only bounds a hang: Playwright's own 30 s can run out on a busy machine.
PATIENCE = 300_000


# For a module and not for the session: while Playwright runs, no other test can use asyncio, nor another Playwright.
@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested with Playwright: pip install it")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"pages are tested in a browser, and none of {', '.join(PROGRAMS)} is here")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=PATIENCE)
        yield browser
        browser.close()


def new_context(browser, **settings):
    """Open a browser context whose waits do not fail because the machine is busy."""
    context = browser.new_context(**settings)
    context.set_default_timeout(PATIENCE)
    return context


def drawn(page):
    """Wait until what was asked for is on the screen: two frames, as sizes are only known in the first."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
