"""What one step passes on its way, and how big the package is: these numbers only fall.

A *walk* is one step through the code, counted in calls of our functions, and in the files and
functions that they stand in. ``python tests/unit/test_budget.py`` writes what is counted now into
``budget.json``: after a change that lowers a number, so that it stays low. A number that rises is
argued for in the commit that raises it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.otlp_load import make_load
from benchmarks.scripted_agent import Discard, hook_run, scripted_run
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import tidegauge
from tidegauge.coding_agents.sessions import HookSessions
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.receivers.assembly import Assembly
from tidegauge.receivers.decoding import decode_protobuf

BUDGET: Final = Path(__file__).with_name("budget.json")
PACKAGE: Final = Path(tidegauge.__file__).parent
OURS: Final = str(PACKAGE)

Counts = dict[str, dict[str, int]]

COMPREHENSIONS: Final = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
"""They are functions in some versions of Python only."""

SHORT: Final = 10
LONG: Final = 30
"""Two run lengths: what the longer one calls more often belongs to its steps."""


@contextmanager
def _counted() -> Iterator[Counter[CodeType]]:
    """Calls of our functions within, by their code. A generator that goes on is called again."""
    calls: Counter[CodeType] = Counter()

    def seen(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(OURS)
        if event == "call" and ours and code.co_name not in COMPREHENSIONS:
            calls[code] += 1

    threading.setprofile(seen)  # LangGraph runs tools in other threads
    sys.setprofile(seen)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _langchain(steps: int) -> Callable[[], object]:
    return scripted_run(steps, lambda: [TidegaugeCallbackHandler(agent="walk")])


def _decorated(steps: int) -> Callable[[], object]:
    @tidegauge.tool
    def look(page: int) -> str:
        return f"page {page} has its own text"

    def walk() -> None:
        with tidegauge.run(agent="walk"):
            for page in range(steps):
                look(page)

    return walk


def _otlp(steps: int) -> Callable[[], object]:
    """The spans of a step: its model call and its tool call."""
    bodies = list(make_load(runs=1, steps=steps).wave(steps))
    assembly = Assembly()

    def walk() -> None:
        for body in bodies:
            assembly.take(decode_protobuf(body).spans, now=1.0)
        assembly.expire(1_000.0)

    return walk


def _hook(steps: int) -> Callable[[], object]:
    """The two hooks of a step: before its tool call and after it."""
    sessions = HookSessions(tidegauge.configure(serve_metrics=False).recorder)
    return hook_run(steps, sessions)


WALKS: Final[dict[str, tuple[Callable[[int], Callable[[], object]], bool]]] = {
    "a step of a LangChain agent, with spans": (_langchain, True),
    "a step of a LangChain agent, without spans": (_langchain, False),
    "a step received over OTLP": (_otlp, False),
    "a step of a coding agent's hooks": (_hook, False),
    "a decorated tool, with its span": (_decorated, True),
}
"""Each walk, and whether its spans are recorded."""


def _walked(name: str) -> dict[str, int]:
    """Calls, files and functions of one step."""
    make, spans = WALKS[name]
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Discard()))
    counts = []
    try:
        for steps in (SHORT, SHORT, LONG):  # the first fills caches
            tidegauge.configure(tracer_provider=provider if spans else None, serve_metrics=False)
            walk = make(steps)
            with _counted() as calls:
                walk()
            counts.append(calls)
    finally:
        provider.shutdown()
    more = {code: counts[2][code] - counts[1][code] for code in counts[2]}
    of_steps = [code for code, calls in more.items() if calls >= LONG - SHORT]
    return {
        "calls": round(sum(more.values()) / (LONG - SHORT)),
        "files": len({code.co_filename for code in of_steps}),
        "functions": len(of_steps),
    }


def _size() -> dict[str, int]:
    """Python files of the package, and their lines."""
    files = list(PACKAGE.rglob("*.py"))
    return {"files": len(files), "lines": sum(len(one.read_text().splitlines()) for one in files)}


def _now() -> Counts:
    return {**{name: _walked(name) for name in WALKS}, "the package, in Python": _size()}


@pytest.fixture(scope="module")
def budget() -> Counts:
    found: Counts = json.loads(BUDGET.read_text())
    return found


@pytest.fixture(scope="module")
def walked() -> Counts:
    """What a new process counts: other tests leave hooks and caches behind."""
    done = subprocess.run(
        [sys.executable, __file__, "--print"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: Counts = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", WALKS)
def test_a_step_passes_no_more_than_before(name: str, walked: Counts, budget: Counts) -> None:
    risen = {what: count for what, count in walked[name].items() if count > budget[name][what]}
    assert not risen, f"{name}: {risen}, at most {budget[name]}"


def test_the_package_does_not_grow(budget: Counts) -> None:
    size, most = _size(), budget["the package, in Python"]
    assert all(size[what] <= most[what] for what in size), f"{size}, at most {most}"


if __name__ == "__main__":
    now = json.dumps(_now(), indent=2)
    if "--print" not in sys.argv:
        BUDGET.write_text(now + "\n")
    print(now)
