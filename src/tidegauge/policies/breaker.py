"""Breakers: a tool that fails again and again, over all runs, is left alone for a while."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

from tidegauge.catalog import BREAKER_OPENED, BREAKER_STATE, MetricDefinition
from tidegauge.errors import ConfigurationError
from tidegauge.events import CallResult
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.settings import shown

BREAKER: Final = "breaker"
"""The reason of its decisions."""

_MAX_TOOLS: Final = 200
_MAX_OPEN: Final = 10_000
_Step: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Breaker:
    """Blocks the calls of a tool that failed in ``failures`` of its last ``calls`` calls.

    The calls of all runs of the process count. The breaker is then open: for ``seconds``, calls are
    answered instead of run. Then one call is tried: if it succeeds, the breaker is closed, and it
    has forgotten what was; if it fails, the breaker is open for as long again.

    Args:
        tool: the tool; ``None``, every tool, each by itself.
        failures: how many calls have failed.
        calls: of how many.
        seconds: how long it is open.

    Raises:
        ConfigurationError: a value is not valid.
    """

    tool: str | None = None
    failures: int = 5
    calls: int = 10
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.tool is not None and not isinstance(self.tool, str):
            raise ConfigurationError(f"the tool of a breaker is {shown(self.tool)}; use a name")
        for name, value in (("failures", self.failures), ("calls", self.calls)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
                raise ConfigurationError(
                    f"{name} of a breaker is {shown(value)}; use a whole number from 1 to 10000"
                )
        if self.failures > self.calls:
            raise ConfigurationError(
                f"a breaker opens at {self.failures} failures of {self.calls} calls; "
                "use as many calls or more"
            )
        seconds = self.seconds
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 < seconds < inf
        ):
            raise ConfigurationError(
                f"seconds of a breaker is {shown(seconds)}; use a number above 0"
            )


class _Tool:
    """What is known of a tool.

    Attributes:
        failed: of its last calls, whether each has failed.
        until: while it is open: when the next call is tried; ``None``, it is closed.
        trial: the step of the call that is tried.
        why: why it is open, in words.
        opened: how often it was opened.
    """

    __slots__ = ("breaker", "failed", "opened", "trial", "until", "why")

    def __init__(self, breaker: Breaker) -> None:
        self.breaker = breaker
        self.failed: deque[bool] = deque(maxlen=breaker.calls)
        self.until: float | None = None
        self.trial: _Step | None = None
        self.opened = 0
        self.why = ""

    def take(self, step: _Step, failed: bool, now: float) -> None:
        if self.until is not None:
            if step != self.trial:
                return  # it began before the breaker was open
            self.trial = None
            if not failed:
                self.until = None
                self.failed.clear()
                return
            self.why = "failed again when it was tried"
        else:
            self.failed.append(failed)
            failures, calls = sum(self.failed), len(self.failed)
            if failures < self.breaker.failures:
                return
            self.why = f"failed in {failures} of its last {calls} calls"
        self.until, self.opened = now + self.breaker.seconds, self.opened + 1


class LiveBreakers:
    """The breakers of a process. Thread-safe; memory for 200 tools and 10,000 calls under way."""

    def __init__(self, breakers: Iterable[Breaker]) -> None:
        by_tool = {breaker.tool: breaker for breaker in breakers}
        self._of_all = by_tool.pop(None, None)
        self._tools = OrderedDict(
            (name, _Tool(breaker)) for name, breaker in by_tool.items() if name is not None
        )
        self._open: OrderedDict[_Step, Sequence[str]] = OrderedDict()
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    def refusal(self, step: _Step, names: Sequence[str], now: float, *, blocks: bool) -> str | None:
        """Why the calls of a step must not be run; ``None``, they may be.

        Then they are waited for, and tried where a breaker is open.

        Args:
            step: its run and its index.
            names: the tools that it calls.
            now: seconds since the epoch.
            blocks: whether the calls can be answered without being run.
        """
        with here.critical, self._lock:
            tried: list[_Tool] = []
            for name in dict.fromkeys(names):
                tool = self._tools.get(name)
                if tool is None or tool.until is None:
                    continue
                if now < tool.until and blocks:
                    when = f"is tried again in {max(tool.until - now, 1):.0f} s"
                    if tool.trial is not None:
                        when = "is being tried again"
                    return f"{name} {tool.why}, and {when}"
                if now >= tool.until:
                    tried.append(tool)
            for tool in tried:  # others wait for its result, or as long again
                tool.trial, tool.until = step, now + tool.breaker.seconds
            self._open[step] = names
            if len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
            return None

    def give_back(self, step: _Step, now: float) -> None:
        """The calls of a step are not run after all."""
        with here.critical, self._lock:
            for name in self._open.pop(step, ()):
                tool = self._tools.get(name)
                if tool is not None and tool.trial == step:
                    tool.trial, tool.until = None, now

    def observe(self, step: _Step, results: Sequence[CallResult], now: float) -> None:
        """The calls of a step have ended."""
        with here.critical, self._lock:
            for name, result in zip(self._open.pop(step, ()), results, strict=False):
                failed = result.error
                if failed is None:
                    continue
                tool = self._tools.get(name)
                if tool is None and self._of_all is not None:
                    tool = self._tools[name] = _Tool(self._of_all)
                    self._make_room()
                if tool is not None:
                    tool.take(step, failed, now)

    def _make_room(self) -> None:
        if len(self._tools) <= _MAX_TOOLS:
            return
        for name, tool in self._tools.items():
            if tool.breaker is self._of_all and tool.until is None:
                del self._tools[name]
                return

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Which breakers are open, and how often each was opened."""
        with here.critical, self._lock:
            tools = list(self._tools.items())
        return {
            BREAKER_STATE: {(name,): float(tool.until is not None) for name, tool in tools},
            BREAKER_OPENED: {(name,): float(tool.opened) for name, tool in tools},
        }
