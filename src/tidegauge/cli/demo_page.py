"""The demo's live page in a browser, where somebody sits before one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Final

__all__ = ["has_browser", "open_page"]

_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


def has_browser(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a browser with windows is plausible: not on a server, nor over SSH.

    >>> has_browser({"DISPLAY": ":0"}, "linux"), has_browser({}, "linux"), has_browser({}, "darwin")
    (True, False, True)
    >>> has_browser({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "10.0.0.7 50022"}, "linux")
    False
    """
    if "SSH_CONNECTION" in environ:
        return False
    return platform in ("darwin", "win32") or any(environ.get(name) for name in _DISPLAYS)


def open_page(url: str) -> None:
    """Open the page in the user's browser. Waits for nothing, and nothing is printed.

    In a process of its own: a browser may print, block, or want the terminal.
    """
    command = [sys.executable, "-I", "-m", "webbrowser", url]
    threading.Thread(target=_run, args=(command,), daemon=True).start()


def _run(command: list[str]) -> None:
    subprocess.run(  # noqa: S603 -- our own words, and an address of our own
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a browser in the terminal gets none
        check=False,
    )
