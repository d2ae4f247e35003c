"""Serves the page that draws dashboards, and takes its picture in a headless Chromium."""

# ruff: noqa: S603 -- starts only what it names
from __future__ import annotations

import contextlib
import http.server
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["Site", "served", "take_picture"]

_PAGE: Final = Path(__file__).parent / "build"
_PATIENCE: Final = 30.0
"""Seconds until a page that does not draw is given up."""


class Site(http.server.ThreadingHTTPServer):
    """Serves the page and the dashboards, and knows when the page has drawn.

    Args:
        boards: the folder of the dashboards.
    """

    daemon_threads = True

    def __init__(self, boards: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.boards = boards
        self.drawn = threading.Event()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(http.server.SimpleHTTPRequestHandler):
    """A file; at ``/drawn``, an answer that waits until the page has reported its drawing.

    The page holds an image from there, and a browser takes its picture when all images are there.
    """

    server: Site

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, directory=str(_PAGE))

    def translate_path(self, path: str) -> str:
        """Dashboards are taken from their own folder."""
        folder, _, name = path.partition("?")[0].removeprefix("/").rpartition("/")
        return (
            str(self.server.boards / name) if folder == "boards" else super().translate_path(path)
        )

    def do_GET(self) -> None:
        if self.path == "/drawn":
            self.server.drawn.wait(_PATIENCE)
            self.send_error(http.HTTPStatus.NOT_FOUND)  # there is no image
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.server.drawn.set()
        self.send_response(http.HTTPStatus.NO_CONTENT)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@contextlib.contextmanager
def served(boards: Path) -> Iterator[Site]:
    """The site, as long as the block runs.

    Raises:
        RuntimeError: the page is not built.
    """
    if not _PAGE.is_dir():
        raise RuntimeError("the page is not built: npm install && npm run build")
    with Site(boards) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


def take_picture(site: Site, address: str, size: tuple[int, int], file: Path) -> None:
    """Take the picture of a page of the site once it has drawn.

    Raises:
        RuntimeError: it does not draw.
    """
    site.drawn.clear()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            "chromium",
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--hide-scrollbars", f"--window-size={size[0]},{size[1]}"),
            *(f"--user-data-dir={profile}", f"--screenshot={file}", address),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=2 * _PATIENCE)
    if not site.drawn.is_set():
        raise RuntimeError(f"not drawn within {_PATIENCE:.0f} s: {address}")
