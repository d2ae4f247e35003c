"""Transcripts of runs in words, for judges, and the step sink that writes them.

A transcript has a limit of characters. It keeps the first steps that fit into a third of the limit,
and the last steps that fit into the rest; it marks the gap. A long content is cut in its middle. So
a run of any length costs limited memory and tokens.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tidegauge.events import ABSENT, Decision, Outcome, RunEnded, RunObserver, RunStarted, Step
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.streaming_metrics.fingerprint import arguments_start
from tidegauge.values import MAX_TEXT, canonical_start


def writable(text: str) -> str:
    """A text without lone surrogates, which agents and models write and UTF-8 cannot encode.

    >>> writable("half of a \\ud83d face")
    'half of a ? face'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


ROOM: Final = 80_000
"""Characters of a transcript: about 20,000 tokens."""

CONTENT_CHARACTERS: Final = 2_000
"""Characters of one content: the arguments of a call, its result, what was seen before."""

_TASK_CONTENTS: Final = 4  # limit of the task, in contents
_MAX_CALLS: Final = 50
_STEP_CHARACTERS: Final = 60  # of a step without its contents
_DIGEST: Final = "sha:"
_CHOSEN: Final = ("action", "arguments")
"""What the agent itself wrote of a call."""


@dataclass(slots=True)
class TranscriptStep:
    """A step in words.

    Attributes:
        index: counted from 0.
        calls: ``action`` of each call, and ``arguments``, ``result``, ``failed`` if known.
        seen: the state before the step, if given and new.
        more_calls: calls of the round after the first 50.
        blocked: whether a policy answered the calls instead of running them.
        shortened: whether a content was cut.
        is_first: whether it is one of the first steps, which stay.
        size: its number of characters.
    """

    index: int
    calls: list[dict[str, Any]]
    seen: str | None = None
    more_calls: int = 0
    blocked: bool = False
    shortened: bool = False
    is_first: bool = field(default=False, repr=False)
    size: int = field(default=0, repr=False)

    def line(self, *, observations: bool = True) -> str:
        """The step as one line of JSON, so that no content can imitate another step.

        Args:
            observations: whether to show what the agent saw and what came back.
        """
        shown: dict[str, Any] = {"step": self.index}
        if self.seen is not None and observations:
            shown["seen"] = self.seen
        calls = self.calls
        if not observations:
            calls = [{key: call[key] for key in _CHOSEN if key in call} for call in calls]
        if len(calls) == 1:
            shown |= calls[0]
        else:
            shown["calls"] = calls
        if self.more_calls:
            shown["calls_left_out"] = self.more_calls
        if self.blocked and observations:
            shown["blocked"] = True
        return orjson.dumps(shown).decode()


class Transcript:
    """The transcript of one run, filled step by step.

    Args:
        started: the start of the run; its task is cut to four times a content's limit.
        room: limit of the characters of all steps.
        content_characters: limit of the characters of one content.

    Attributes:
        ended: the end of the run; ``None`` without one.
        steps_taken: number of steps of the run, including omitted ones.

    >>> from tidegauge.events import Call, CallResult
    >>> transcript = Transcript(RunStarted(run="r1", task="find the order"))
    >>> _ = transcript.issue(Step("r1", (Call("search", {"q": "order"}),)))
    >>> transcript.observe(Outcome("r1", (CallResult("2 orders"),)))
    >>> print(*transcript.lines(), sep="\\n")
    {"step":0,"action":"search","arguments":{"q":"order"},"result":"2 orders"}
    """

    def __init__(
        self,
        started: RunStarted,
        *,
        room: int = ROOM,
        content_characters: int = CONTENT_CHARACTERS,
    ) -> None:
        self.started = started
        self.ended: RunEnded | None = None
        self.steps_taken = 0
        self.task: str | None = None
        if started.task is not None and not started.task.startswith(_DIGEST):
            self.task = _cut(writable(started.task), _TASK_CONTENTS * content_characters)
        self._content_characters = content_characters
        self._first_room = room // 3
        self._last_room = room - room // 3
        self._first: list[TranscriptStep] = []
        self._last: deque[TranscriptStep] = deque()
        self._first_size = self._last_size = 0
        self._waiting: dict[int, TranscriptStep] = {}  # without their result yet
        self._seen: set[str] = set()  # need not be repeated in the next step
        self._readable = self._digests = 0
        self._lock = threading.Lock()  # tools of one run may end in several threads

    @property
    def run(self) -> str:
        """The run's id."""
        return self.started.run

    @property
    def completed(self) -> int:
        """Number of steps that have a result."""
        return self.steps_taken - len(self._waiting)

    @property
    def steps(self) -> list[TranscriptStep]:
        """The steps in the transcript."""
        with here.critical, self._lock:
            return sorted([*self._first, *self._last], key=lambda step: step.index)

    @property
    def left_out_steps(self) -> tuple[tuple[int, int], ...]:
        """The omitted steps, as (first, last) of each range."""
        kept = [step.index for step in self.steps]
        stretches = zip([-1, *kept], [*kept, self.steps_taken], strict=True)
        return tuple((left + 1, right - 1) for left, right in stretches if right > left + 1)

    @property
    def shortened_steps(self) -> int:
        """Number of steps with a shortened content."""
        return sum(step.shortened for step in self.steps)

    @property
    def has_only_digests(self) -> bool:
        """Whether all contents are digests, so that there is nothing to read."""
        return bool(self._digests and not self._readable)

    def lines(self, *, observations: bool = True) -> Iterator[str]:
        """A line of JSON for each step, and one for each range of omitted steps."""
        expected = 0
        for step in self.steps:
            if step.index != expected:
                yield _gap(expected, step.index - 1)
            yield step.line(observations=observations)
            expected = step.index + 1

    def issue(self, event: Step, index: int | None = None) -> int:
        """Add an issued step; returns its index."""
        state = None if event.state is ABSENT else _text(event.state)
        calls = [
            (writable(call.action), None if call.arguments is None else _arguments(call.arguments))
            for call in event.calls[:_MAX_CALLS]
        ]
        with here.critical, self._lock:
            index = self.steps_taken if index is None else index
            self.steps_taken = max(self.steps_taken, index + 1)
            step = TranscriptStep(index, [], size=_STEP_CHARACTERS)
            if state is not None:
                seen = self._kept(step, state)
                if seen in self._seen:
                    step.size -= len(seen)
                else:
                    step.seen = seen
                self._seen = {seen}
            for action, arguments in calls:
                shown: dict[str, Any] = {"action": action}
                step.size += len(action)
                if arguments is not None:
                    shown["arguments"] = self._parsed(step, arguments)
                step.calls.append(shown)
            step.more_calls = max(len(event.calls) - _MAX_CALLS, 0)
            self._waiting[index] = step
            self._keep(step)
            return index

    def observe(self, event: Outcome) -> None:
        """Add the result of a step."""
        results = [
            (None if outcome is ABSENT else _text(outcome), failed)
            for outcome, failed in event.results[:_MAX_CALLS]
        ]
        with here.critical, self._lock:
            index = self.steps_taken - 1 if event.step is None else event.step
            step = self._waiting.pop(index, None)
            if step is None:
                return  # omitted, or never issued
            before = step.size
            step.blocked = event.blocked
            for shown, (result, failed) in zip(step.calls, results, strict=False):
                if result is not None:
                    shown["result"] = self._kept(step, result)
                    self._seen.add(shown["result"])
                if failed is True:
                    shown["failed"] = True
            if step.is_first:
                self._first_size += step.size - before
            else:
                self._last_size += step.size - before
            self._make_room()

    def _keep(self, step: TranscriptStep) -> None:
        if not self._last and self._first_size < self._first_room:
            step.is_first = True
            self._first.append(step)
            self._first_size += step.size
            return
        self._last.append(step)
        self._last_size += step.size
        self._make_room()

    def _make_room(self) -> None:
        while self._first_size > self._first_room and len(self._first) > 1:
            moved = self._first.pop()  # its result does not fit
            moved.is_first = False
            self._first_size -= moved.size
            self._last.appendleft(moved)
            self._last_size += moved.size
        while self._last_size > self._last_room and len(self._last) > 1:
            dropped = self._last.popleft()
            self._last_size -= dropped.size
            self._waiting.pop(dropped.index, None)

    def _parsed(self, step: TranscriptStep, text: str) -> Any:
        """Arguments as JSON if possible, because a quoted text takes more tokens."""
        if text[:1] in ("{", "[") and len(text) <= self._content_characters:
            # Arguments nested deeper than orjson can write inside a step stay a text.
            with contextlib.suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
                found = orjson.loads(text)
                orjson.dumps([[[found]]])
                self._kept(step, text)
                return found
        return self._kept(step, text)

    def _kept(self, step: TranscriptStep, text: str) -> str:
        """A content, cut to its limit; counts its size and whether it is readable."""
        if text.startswith(_DIGEST):
            self._digests += 1
        elif text:
            self._readable += 1
        step.shortened |= len(text) > self._content_characters
        kept = _cut(writable(text), self._content_characters)
        step.size += len(kept)
        return kept


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    return canonical_start(value, MAX_TEXT).decode("utf-8", "replace")


def _arguments(value: object) -> str:
    return arguments_start(value, MAX_TEXT).decode("utf-8", "replace")


def _cut(text: str, limit: int) -> str:
    """A text without its middle, because errors are often at the end."""
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end]} …[{len(text) - limit} characters left out]… {text[-end:]}"


def _gap(first: int, last: int) -> str:
    steps = f"step {first} is" if first == last else f"steps {first} to {last} are"
    return orjson.dumps({"left_out": f"{steps} not shown"}).decode()


class Transcripts(RunObserver):
    """Writes the transcripts of active runs.

    Args:
        wanted: whether to write a transcript of a run; default: of every run.
        max_runs: limit of open transcripts; one more evicts the oldest. ``None``: no limit.

    Attributes:
        evicted: number of transcripts evicted before the end of their run.

    >>> finished = []
    >>> transcripts = Transcripts(finished.append)
    >>> transcripts.run_started(RunStarted(run="r1"))
    >>> transcripts.run_ended(RunEnded(run="r1"))
    >>> [transcript.run for transcript in finished]
    ['r1']
    """

    name = "judging"

    def __init__(
        self,
        on_finished: Callable[[Transcript], object],
        *,
        wanted: Callable[[RunStarted], bool] | None = None,
        max_runs: int | None = None,
        room: int = ROOM,
        content_characters: int = CONTENT_CHARACTERS,
    ) -> None:
        self.evicted = 0
        self._on_finished = on_finished
        self._wanted = wanted
        self._max_runs = max_runs
        self._room = room
        self._content_characters = content_characters
        self._open: OrderedDict[str, Transcript] = OrderedDict()
        self._lock = threading.Lock()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._open.clear()
        self.evicted = 0

    def run_started(self, event: RunStarted) -> None:
        """A run started; an open run of the same id ends."""
        if self._wanted is not None and not self._wanted(event):
            return
        transcript = Transcript(event, room=self._room, content_characters=self._content_characters)
        with here.critical, self._lock:
            before = self._open.pop(event.run, None)
            self._open[event.run] = transcript
            if self._max_runs is not None and len(self._open) > self._max_runs:
                self._open.popitem(last=False)
                self.evicted += 1
        if before is not None:
            self._on_finished(before)

    def step_issued(self, event: Step, decision: Decision) -> None:
        """An action was issued."""
        transcript, signals = self._open.get(event.run), decision.signals
        if transcript is not None and signals is not None:
            transcript.issue(event, signals.step)
            if decision.block:
                transcript.observe(Outcome(event.run, (), signals.step, blocked=True))

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        """A result was observed."""
        transcript = self._open.get(event.run)
        if transcript is not None:
            transcript.observe(event)

    def run_restored(self, event: RunStarted, steps: int, completed: int) -> None:
        """A run comes back from elsewhere: drop its transcript if something happened there."""
        with here.critical, self._lock:
            known = self._open.get(event.run)
            if known is not None and (known.steps_taken, known.completed) != (steps, completed):
                del self._open[event.run]

    def run_ended(self, event: RunEnded) -> None:
        """A run ended: pass its transcript on."""
        with here.critical, self._lock:
            transcript = self._open.pop(event.run, None)
        if transcript is not None:
            transcript.ended = event
            self._on_finished(transcript)

    def close(self) -> None:
        """Pass on the transcripts of the runs that did not end."""
        with here.critical, self._lock:
            left = list(self._open.values())
            self._open.clear()
        for transcript in left:
            self._on_finished(transcript)
