"""Transcripts: what happened in a run, in words, for whoever judges it when it is over.

A transcript has room for so many characters. What does not fit is left out by one rule, and said
to be: the first steps are kept as far as they fit into a third of the room, of the others the last
ones that fit into the rest of it. A content that is too long is cut in its middle. So a run of any
length costs the same memory, and the same tokens.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tidegauge._canonical import MAX_TEXT
from tidegauge._critical import here
from tidegauge.diagnose.judges.text import writable
from tidegauge.events import ABSENT, Outcome, RunEnded, RunStarted, Step
from tidegauge.streaming_metrics.fingerprint import arguments_start, canonical_start

__all__ = ["CONTENT_CHARACTERS", "ROOM", "Transcript", "TranscriptStep"]

ROOM: Final = 80_000
"""Characters of a transcript: about 20,000 tokens."""

CONTENT_CHARACTERS: Final = 2_000
"""Characters of one content: the arguments of a call, its result, what was seen before."""

_TASK_CONTENTS: Final = 4  # the task has the room of so many
_MAX_CALLS: Final = 50
_STEP_CHARACTERS: Final = 60  # what a step takes beside its contents
_DIGEST: Final = "sha:"


@dataclass(slots=True)
class TranscriptStep:
    """A step in words.

    Attributes:
        index: counted from 0.
        calls: of each call ``action``, and ``arguments``, ``result``, ``failed`` where known.
        seen: what the agent saw before it acted, where that was told and is new.
        more_calls: calls of the round beyond the first 50.
        blocked: the calls were answered by a policy and not run.
        shortened: whether a content was cut.
        is_first: whether it is one of the first steps, which are kept for good.
        size: characters that it takes.
    """

    index: int
    calls: list[dict[str, Any]]
    seen: str | None = None
    more_calls: int = 0
    blocked: bool = False
    shortened: bool = False
    is_first: bool = field(default=False, repr=False)
    size: int = field(default=0, repr=False)

    def line(self) -> str:
        """The step as one line of JSON: nothing in it can pass for another step."""
        told: dict[str, Any] = {"step": self.index}
        if self.seen is not None:
            told["seen"] = self.seen
        if len(self.calls) == 1:
            told |= self.calls[0]
        else:
            told["calls"] = self.calls
        if self.more_calls:
            told["calls_left_out"] = self.more_calls
        if self.blocked:
            told["blocked"] = True
        return orjson.dumps(told).decode()


class Transcript:
    """What happened in one run, in words; filled step by step, within its room.

    Args:
        started: what is known of the run; its task is cut to four times a content's length.
        room: characters of the steps.
        content_characters: characters of one content.

    Attributes:
        ended: how it ended; ``None``, it has not, or nobody said.
        steps_taken: all steps of the run, kept or not.

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
        self._waiting: dict[int, TranscriptStep] = {}  # their outcome is still to come
        self._seen: set[str] = set()  # what needs not be told again at the next step
        self._readable = self._digests = 0
        self._lock = threading.Lock()  # tools of one run may end in several threads

    @property
    def run(self) -> str:
        """The run's id."""
        return self.started.run

    @property
    def steps(self) -> list[TranscriptStep]:
        """The steps that are kept."""
        with here.critical, self._lock:
            return sorted([*self._first, *self._last], key=lambda step: step.index)

    @property
    def left_out_steps(self) -> tuple[tuple[int, int], ...]:
        """The steps that are not kept, as (first, last) of each stretch."""
        kept = [step.index for step in self.steps]
        stretches = zip([-1, *kept], [*kept, self.steps_taken], strict=True)
        return tuple((left + 1, right - 1) for left, right in stretches if right > left + 1)

    @property
    def shortened_steps(self) -> int:
        """How many of the steps that are kept have a content that was cut."""
        return sum(step.shortened for step in self.steps)

    @property
    def has_only_digests(self) -> bool:
        """Whether digests stand for its contents: there is nothing to read."""
        return bool(self._digests and not self._readable)

    def lines(self) -> Iterator[str]:
        """A line of JSON for each step that is kept, and one where steps are left out."""
        expected = 0
        for step in self.steps:
            if step.index != expected:
                yield _gap(expected, step.index - 1)
            yield step.line()
            expected = step.index + 1

    def issue(self, event: Step, index: int | None = None) -> int:
        """An action was issued; gives the index of its step.

        Args:
            event: the step.
            index: its index, where somebody else counts; left out, it is the next.
        """
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
        """The outcome of a step was observed."""
        results = [
            (None if outcome is ABSENT else _text(outcome), failed)
            for outcome, failed in event.results[:_MAX_CALLS]
        ]
        with here.critical, self._lock:
            index = self.steps_taken - 1 if event.step is None else event.step
            step = self._waiting.pop(index, None)
            if step is None:
                return  # left out, or never issued
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
            moved = self._first.pop()  # its outcome was longer than there was room for
            moved.is_first = False
            self._first_size -= moved.size
            self._last.appendleft(moved)
            self._last_size += moved.size
        while self._last_size > self._last_room and len(self._last) > 1:
            dropped = self._last.popleft()
            self._last_size -= dropped.size
            self._waiting.pop(dropped.index, None)

    def _parsed(self, step: TranscriptStep, text: str) -> Any:
        """Arguments as JSON where they are: quoted once more they would take more tokens."""
        if text[:1] in ("{", "[") and len(text) <= self._content_characters:
            # What is nested deeper than orjson writes, inside a step, stays a text.
            with contextlib.suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
                found = orjson.loads(text)
                orjson.dumps([[[found]]])
                self._kept(step, text)
                return found
        return self._kept(step, text)

    def _kept(self, step: TranscriptStep, text: str) -> str:
        """What is kept of a content, which takes room and may be a digest only."""
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
    """A text without its middle: what failed is often told at the end."""
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end]} …[{len(text) - limit} characters left out]… {text[-end:]}"


def _gap(first: int, last: int) -> str:
    told = f"step {first} is" if first == last else f"steps {first} to {last} are"
    return orjson.dumps({"left_out": f"{told} not shown"}).decode()
