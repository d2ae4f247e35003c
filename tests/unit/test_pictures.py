"""The pictures of the docs show what the code shows now."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from benchmarks.evidence import _pictures as pictures_of_evidence
from click.testing import CliRunner

from tidegauge.cli.main import cli

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "images"


def loaded(path: Path) -> Any:
    """A script, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHOWN: Final = loaded(IMAGES / "shown.py")
TERMINALS: Final = ("demo", "watch", "local-model")
ELSEWHERE: Final = ("near-loops",)  # tests/integration/test_recorded_runs.py draws it from the runs


def test_every_picture_has_a_test() -> None:
    tested = (*SHOWN.SHOWS, *TERMINALS, *ELSEWHERE, "evidence")
    pictures = [path.stem for path in IMAGES.iterdir() if path.suffix in (".png", ".svg")]
    assert [name for name in pictures if not name.startswith(tested)] == []


@pytest.mark.parametrize("name", SHOWN.SHOWS)
def test_a_picture_shows_what_the_code_shows(name: str) -> None:
    taken = json.loads(SHOWN.ENTRIES.read_text())[name]
    assert taken == SHOWN.SHOWS[name](), f"take the pictures {name}-* again; shown.py says how"


def test_the_pictures_of_the_evidence_are_those_of_its_numbers() -> None:
    numbers = orjson.loads((ROOT / "docs" / "evidence.json").read_bytes())
    drawn = pictures_of_evidence(numbers)
    assert len(drawn) == len([*IMAGES.glob("evidence-*.svg")])
    for name, picture in drawn.items():
        assert picture == (IMAGES / f"evidence-{name}.svg").read_text(), f"evidence-{name}.svg"


def last_screen(name: str) -> list[str]:
    """The lines of the last screen of a recorded terminal."""
    frame = (IMAGES / f"{name}.svg").read_text().rpartition('<g id="frame-')[2]
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text[^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', frame):
        plain = html.unescape(re.sub("<[^>]+>", "", text)).replace("\N{NO-BREAK SPACE}", " ")
        rows.setdefault(float(y), []).append((float(x), plain))
    return ["".join(text for _, text in sorted(rows[y])).rstrip() for y in sorted(rows)]


def words(text: str) -> set[str]:
    """The words of a text, without numbers and the lines of tables."""
    return {word for word in text.split() if re.fullmatch(r"[a-z].*", word, re.IGNORECASE)}


def figures(text: str) -> set[str]:
    """What the demo's summary says with numbers that do not depend on times."""
    said = r"Loop ratio [\d.]+%: \d+ of \d+|\d+ times|stopped at step \d+ by [a-z ]+:|Rule\(.*?\)"
    return set(re.findall(said, " ".join(text.split())))


def test_the_demo_ends_as_in_its_picture() -> None:
    ended = CliRunner().invoke(
        cli, ["demo", "--fast", "--no-browser", "--no-alerts", "--port", "0"]
    )
    assert ended.exit_code == 0, ended.output
    screen = "\n".join(last_screen("demo"))
    picture = words(screen[screen.index("agent ") : screen.index("looper-twin, only observed")])
    assert {"looper-twin", "merrow-datum", "Loop"} <= picture
    assert picture - words(ended.output) == set(), ended.output  # the rest depends on times
    assert figures(screen) == figures(ended.output)
    page = (ROOT / "docs" / "demo.md").read_text().partition("```text")[2].partition("```")[0]
    assert len(figures(page)) == 4
    assert figures(page) <= figures(ended.output)


def test_watch_says_what_is_in_its_picture(tmp_path: Path) -> None:
    news = {line for line in last_screen("watch") if line.startswith("claude / ")}
    assert len(news) > 4
    script = [sys.executable, str(IMAGES / "watched_sessions.py"), "--fast"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        script, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            news.discard(line.rstrip())
            if not news:
                break
        os.killpg(watching.pid, signal.SIGINT)
    assert not news


def test_the_small_model_is_shown_with_these_columns() -> None:
    columns = loaded(ROOT / "examples" / "local_model" / "show.py")._COLUMNS
    screen = "\n".join(last_screen("local-model"))
    assert [name for name in columns if name not in screen] == []
