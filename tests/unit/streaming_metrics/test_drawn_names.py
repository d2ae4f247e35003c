"""Names drawn by chance are distinguished from chosen ones by what they look like."""

from __future__ import annotations

import ctypes
import random
import string
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegauge.streaming_metrics.drawn_names import looks_drawn, surely_drawn

PREFIXES = ("build", "foo", "job", "pip-install", "npm", "output", "data", "my_app", "test", "x")
ALPHANUMERIC = string.ascii_letters + string.digits
OF_PYTHON = string.ascii_lowercase + string.digits + "_"
TIMES = 4_000


def drawn(draw: random.Random, characters: str, length: int) -> str:
    return "".join(draw.choices(characters, k=length))


Generator = Callable[[random.Random], str]
GENERATORS: dict[str, tuple[Generator, float, float]] = {
    # how a name is drawn, and the shares that are recognized in results and in arguments
    "Python": (lambda draw: "tmp" + drawn(draw, OF_PYTHON, 8), 1.0, 0.92),
    "Python, with a suffix": (lambda draw: f"tmp{drawn(draw, OF_PYTHON, 8)}.py", 1.0, 0.92),
    "Python, with a prefix": (
        lambda draw: f"{draw.choice(PREFIXES)}-{drawn(draw, OF_PYTHON, 8)}",
        0.99,
        0.4,
    ),
    "mktemp": (lambda draw: f"tmp.{drawn(draw, ALPHANUMERIC, 10)}", 1.0, 0.98),
    "mktemp of BusyBox": (lambda draw: f"tmp.{drawn(draw, ALPHANUMERIC, 6)}", 1.0, 0.97),
    "mktemp of macOS": (
        lambda draw: f"{draw.choice(PREFIXES)}.{drawn(draw, ALPHANUMERIC, 8)}",
        0.99,
        0.88,
    ),
    "mkdtemp of C": (
        lambda draw: f"{draw.choice(PREFIXES)}{draw.choice('-_.')}{drawn(draw, ALPHANUMERIC, 6)}",
        0.985,
        0.65,
    ),
    "Node": (lambda draw: f"{draw.choice(PREFIXES)}-{drawn(draw, ALPHANUMERIC, 6)}", 0.985, 0.65),
    "Go": (lambda draw: f"{draw.choice(PREFIXES)}{draw.randrange(2**32)}", 0.999, 0.97),
    "Rust": (lambda draw: f".tmp{drawn(draw, ALPHANUMERIC, 6)}", 1.0, 0.97),
    "Java": (lambda draw: f"{draw.choice(PREFIXES)}{draw.randrange(2**64)}.tmp", 1.0, 0.99),
}


@pytest.mark.parametrize("generator", GENERATORS)
def test_drawn_names_are_recognized(generator: str) -> None:
    make, looking, sure = GENERATORS[generator]
    draw = random.Random(generator)
    names = [make(draw) for _ in range(TIMES)]
    assert sum(map(looks_drawn, names)) >= looking * TIMES
    assert sum(map(surely_drawn, names)) >= sure * TIMES


def test_names_that_this_machine_draws(tmp_path: Path) -> None:
    names = [Path(tempfile.mkdtemp(dir=tmp_path)).name for _ in range(100)]
    libc = ctypes.CDLL(None)
    for _ in range(100):
        template = ctypes.create_string_buffer(f"{tmp_path}/log-XXXXXX".encode())
        libc.mkdtemp(template)
        names.append(Path(template.value.decode()).name)
    for _ in range(20):
        made = subprocess.run(
            ["mktemp", "-d", "-p", str(tmp_path)], capture_output=True, text=True, check=True
        )
        names.append(Path(made.stdout.strip()).name)
    assert sum(map(looks_drawn, names)) >= len(names) - 6


CHOSEN = [
    *(f"part_{n}.csv" for n in range(40)),
    *(f"output{n}.txt" for n in range(40)),
    *(f"run-202611{n:02}" for n in range(1, 31)),
    *(f"report-{year}Q{quarter}.csv" for year in range(2000, 2010) for quarter in range(1, 5)),
    *(f"tmp_file_{n:02}" for n in range(40)),
    *(f"test_{word}.py" for word in ("parser", "client", "server", "config", "models")),
    *("data.csv", "results.json", "step2_results.json", "myTestFile.py", "README.md", "a.out"),
    *("notes", "fix.patch", "v1.2.3", "checkpoint-500", "weights_final.pt", "tmp_results"),
]


@pytest.mark.parametrize("name", CHOSEN)
def test_no_chosen_name_is_surely_drawn(name: str) -> None:
    assert not surely_drawn(name)


def test_most_file_names_of_people_are_not_surely_drawn() -> None:
    names = {path.name for path in Path(tempfile.__file__).parent.rglob("*.py")}
    assert len(names) > 200
    assert sum(map(surely_drawn, names)) <= len(names) / 200
