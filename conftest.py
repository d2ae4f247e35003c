"""How tests are run: documentation as tests, which tests share a worker, and what was left out."""

from __future__ import annotations

import collections
import gc
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

collect_ignore = ["dashboards/preview", "dashboards/__main__.py"]  # programs
if not find_spec("mkdocs"):  # which makes the site, and needs more than the tests
    collect_ignore.append("docs/_site")

pytest_plugins = ["support.servers", "support.recorded_otlp"]

# The code blocks of the documentation are tests: each page runs from top to bottom.
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
).pytest()


class Deselected:
    """Counts the tests that markers leave out, in every worker, and says it at the end."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.get_closest_marker("end_to_end"):
                continue  # make test runs it
            for marker in ("slow", "system"):
                if item.get_closest_marker(marker):
                    self._counts[marker] += 1
                    break

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["deselected"] = dict(self._counts)
        yield

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        counts = getattr(node, "workeroutput", {}).get("deselected", {})
        self._counts = collections.Counter(counts)  # every worker selects from all tests

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slow, system = self._counts["slow"], self._counts["system"]
        if slow or system:
            terminalreporter.write_line(
                f"make test-all adds {slow} slow tests and {system} with a server, a broker or a"
                " browser"
            )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Deselected(), "deselected")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests live until the end: the garbage collector need not look at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_IN_PROCESSES_OF_THEIR_OWN = "tests/hostile/"
"""These tests share nothing, so each of them may run in any worker."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All tests of a file run in one worker, but those that share nothing."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrAlone(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_IN_PROCESSES_OF_THEIR_OWN):
                return nodeid
            return str(super()._split_scope(nodeid))

    return ByFileOrAlone(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Any order, but: files of minutes first, and the blocks of a page from top to bottom.

    Tests that share nothing come last: they keep all workers at work until the end.
    """
    pages = [item for item in items if item.path.suffix == ".md"]
    pages.sort(key=lambda item: (str(item.path), item.location[1] or 0))
    tests = [item for item in items if item.path.suffix != ".md"]
    tests.sort(key=_turn)
    items[:] = tests + pages


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("minutes"):
        return 0
    return 2 if item.nodeid.startswith(_IN_PROCESSES_OF_THEIR_OWN) else 1
