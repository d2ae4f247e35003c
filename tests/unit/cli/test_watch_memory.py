"""What the watcher of coding agents holds on to."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tidegauge.cli import watch
from tidegauge.cli.watch_view import WatchView


def test_garbage_is_collected_as_usual_while_watching(tmp_path: Path, monkeypatch: Any) -> None:
    """Calls and their turns refer to one another, in sessions that go on for days."""
    seen = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(watch, "set_on_signal", threading.Event)
    monkeypatch.setattr(WatchView, "follow", lambda *_: seen.append(gc.get_threshold()))
    done = CliRunner().invoke(watch.watch, ["--metrics-port", "0", "--page", "off"])
    assert done.exit_code == 0, done.output
    assert seen == [gc.get_threshold()]
