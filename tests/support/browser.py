"""A real headless Chromium, driven by playwright; everything that a page asks for is noted."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from support.requirements import missing

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
WIDE = {"width": 1400, "height": 900}


@dataclass(slots=True)
class Visit:
    """A page that is open.

    Attributes:
        page: playwright's.
        complaints: errors of its scripts and of the browser about it, but for lost connections.
        hosts: everybody who was asked for something.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start it, and end it. Playwright's loop blocks those of others in this thread meanwhile."""
    path = shutil.which("chromium")
    if path is None:
        missing("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def visit(browser: Browser, url: str | None, **context: object) -> Iterator[Visit]:
    """Open a page in a context of its own.

    Args:
        browser: where.
        url: what.
        **context: as playwright's ``new_context`` takes it.
    """
    assert url is not None
    opened = browser.new_context(**({"viewport": WIDE} | context))  # type: ignore[arg-type]
    opened.set_default_timeout(10_000)
    seen = Visit(opened.new_page())

    def complained(text: str) -> None:
        if "net::ERR_" not in text:  # a server that is gone is part of some tests
            seen.complaints.append(text)

    seen.page.on("pageerror", lambda error: complained(str(error)))
    seen.page.on(
        "console",
        lambda message: complained(message.text) if message.type in ("error", "warning") else None,
    )
    seen.page.on("request", lambda request: seen.hosts.add(urlsplit(request.url).netloc))
    seen.page.goto(url)
    try:
        yield seen
    finally:
        opened.close()
