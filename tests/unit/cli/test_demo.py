"""The live page is opened in a browser that neither blocks nor prints."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tidegauge.cli.demo import has_browser


def test_a_browser_that_prints_and_stays_is_neither_heard_nor_waited_for(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(
        f'#!/bin/sh\necho noise\necho noise >&2\necho "$1" >{opened}\nexec sleep 5\n'
    )
    browser.chmod(0o755)
    code = (
        "import pathlib, sys, time\n"
        "from tidegauge.cli.demo import open_page\n"
        "open_page('http://127.0.0.1:9464/')\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(opened)],
        capture_output=True,
        env={"BROWSER": str(browser), "PATH": "/usr/bin:/bin"},
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    until = time.monotonic() + 10
    while not (reported := opened.read_text()) and time.monotonic() < until:
        time.sleep(0.01)
    assert reported == "http://127.0.0.1:9464/\n"


def test_a_display_is_one_that_is_named() -> None:
    assert has_browser({"WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert not has_browser({"DISPLAY": ""}, "linux")
    assert has_browser({}, "win32")
