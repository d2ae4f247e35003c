"""The rounds of one run, from spans that have ended: what the model chose, what it brought back.

A round is what one model message chose. Where the model's span tells its tool calls, the step is
issued when that span ends, which is before any of the tools runs, and observed when the last of
their spans has ended. A tool that no model chose is a step of its own.

Where model spans don't tell (contents are not captured), a round is what ran between two model
calls: it is issued, late, when the second has ended. With no model spans at all, tools that
overlap in time are one round.

A tool's span may come from another host, whose clock is off: it then seems to end before the model
chose it, or apart from what another instrumentation shows of the same call. Its call is found by
the model's id of it, by its parent, then by name and time, and the contradiction is counted.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tidegauge._critical import here
from tidegauge._span_faults import span_faults
from tidegauge.events import ABSENT, Call, CallResult, Outcome, Step
from tidegauge.instrumentation.recorder import RecordedRun
from tidegauge.instrumentation.spans.dedupe import (
    MAX_SKEW,
    Interval,
    SeenModel,
    same_arguments,
    same_model_call,
)
from tidegauge.instrumentation.spans.span import (
    UNKNOWN_ARGUMENTS,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.instrumentation.told import ChosenCall

__all__ = ["SpanRounds"]

_MAX_WAITING: Final = 1_000
_MAX_RECENT: Final = 64


class _Call:
    """One call of a round. ``when`` is ``None`` until a span has shown it."""

    __slots__ = (
        "arguments",
        "clock",
        "id",
        "name",
        "parent",
        "raised",
        "result",
        "scopes",
        "when",
    )

    def __init__(self, name: str, arguments: object, call_id: str | None) -> None:
        self.name = name
        self.arguments = UNKNOWN_ARGUMENTS if arguments is ABSENT else arguments
        self.id = call_id
        self.result: CallResult | None = None
        self.raised = False
        self.scopes: set[str] = set()  # the instrumentations that have shown it
        self.when: Interval | None = None
        self.clock = ""
        self.parent: int | None = None  # id of the span around the one that has shown it

    def show(self, span: SpanData, tool: ToolSpan) -> None:
        """A span shows it, or shows it being tried again."""
        self.scopes = {span.scope}
        self.result, self.raised = tool.result, tool.raised
        self.when = Interval(span.start, span.end)
        self.clock, self.parent = clock_of(span.resource), span.parent_id


class _Round:
    """The calls of one step. ``step`` is ``None`` when it could not be reported."""

    __slots__ = ("calls", "clock", "observed", "since", "step", "tokens")

    def __init__(self, calls: list[_Call], since: int, clock: str) -> None:
        self.calls = calls
        self.since = since  # nanoseconds: when it was chosen
        self.clock = clock  # by which that is
        self.step: int | None = None
        self.tokens: int | None = None
        self.observed = False


class SpanRounds:
    """Reports one run's rounds. Spans end in any thread, hence the lock.

    What is to be reported is put in a queue under the lock and sent after it, in that order, by
    one thread at a time; another one leaves it what it has and does not wait.

    At most 1,000 calls are waited for; of more, the oldest rounds are given up: their steps stay
    unobserved.

    Args:
        recorded: takes the steps.
    """

    def __init__(self, recorded: RecordedRun) -> None:
        self._recorded = recorded
        self._lock = threading.Lock()
        self._reports: deque[Callable[[], object]] = deque()
        self._sending = threading.Lock()
        self._tokens: int | None = None  # spent since the last step
        self._open: list[_Round] = []  # issued and not observed
        self._recent: deque[_Round] = deque(maxlen=_MAX_RECENT)  # observed: may be shown again
        self._loose: list[_Call] = []  # that no model told
        self._models: deque[SeenModel] = deque(maxlen=_MAX_RECENT)
        self._scopes: set[str] = set()  # the instrumentations that have shown it, two at most
        self._asked = False  # whether there are model spans at all
        self._told = False  # whether they tell their calls

    def model(self, span: SpanData, seen: SeenModel, *, in_tool: bool = False) -> None:
        """A model call has ended: what came before is settled, what it chose is a step.

        Args:
            span: its span.
            seen: what the span tells.
            in_tool: it was made inside a tool: its tokens are that step's, its choice is no step.
        """
        with here.critical, self._lock:
            self._take_model(span, seen, in_tool=in_tool)
        self.send()

    def _take_model(self, span: SpanData, seen: SeenModel, *, in_tool: bool) -> None:
        told = seen.told
        again = self._shown_already(seen)
        if not again:
            if not in_tool:
                if told.calls is not None and self._loose:
                    span_faults.repair("unmatched", len(self._loose))
                self._turn(told.answers)
            self._add_tokens(told.tokens, in_tool)
        if in_tool:
            return
        self._asked = True
        if told.calls is not None:
            self._told = True
        if told.calls and not again:
            self._issue(_calls(told.calls), span.end, seen.clock)

    def tool(self, span: SpanData, tool: ToolSpan, *, alone: bool = False) -> None:
        """A tool call has ended.

        Args:
            span: its span.
            tool: what that tells.
            alone: a step of its own for sure, where no model chose it.
        """
        with here.critical, self._lock:
            self._take_tool(span, tool, alone=alone)
        self.send()

    def _take_tool(self, span: SpanData, tool: ToolSpan, *, alone: bool) -> None:
        if self._shown_by_another(span, tool):
            return
        found = self._chosen(span, tool)
        if found is not None:
            one, call = found
            if span.end < one.since:
                _count_skew(span)
            call.show(span, tool)
            self._observe_ended(one)
            return
        if self._shown_elsewhere(span, tool):
            return
        call = _Call(tool.name, tool.arguments, tool.id)
        call.show(span, tool)
        if self._told or alone:
            if not alone:
                span_faults.repair("unmatched")
            self._observe_ended(self._issue([call], span.start, call.clock))
            return
        if not self._asked and not self._overlaps_loose(span):
            self._issue_loose()
        self._loose.append(call)
        if len(self._loose) > _MAX_WAITING:
            self._issue_loose()

    def waiting(self) -> set[str]:
        """Names of the tools that are waited for."""
        with here.critical, self._lock:
            return {call.name for one in self._open for call in one.calls if call.result is None}

    def settle(self, *, then: Callable[[], object] | None = None) -> None:
        """Nothing more will come: report what is known of the rest.

        Args:
            then: reported after it.
        """
        with here.critical, self._lock:
            self._turn(())
            if then is not None:
                self._reports.append(then)
        self.send()

    def report_first(self, report: Callable[[], object]) -> None:
        """Report this before anything else, with the next :meth:`send`."""
        self._reports.append(report)

    def send(self) -> None:
        """Send what is to be reported, unless another thread is about it."""
        reports = self._reports
        while reports:
            if not self._sending.acquire(blocking=False):
                return  # the one who sends takes ours, too
            try:
                while reports:
                    reports.popleft()()
            finally:
                self._sending.release()

    def _turn(self, answers: Sequence[tuple[str, CallResult]]) -> None:
        """The model chooses again. What it is shown as answers tells of calls without a span."""
        self._issue_loose()
        for one in tuple(self._open):
            if all(call.result is not None for call in one.calls):
                self._observe(one)
        for call_id, result in answers:
            for one in tuple(self._open):
                for call in one.calls:
                    if call.id == call_id and call.result is None:
                        call.result = result
                        self._observe_ended(one)

    def _shown_already(self, seen: SeenModel) -> bool:
        """Whether another instrumentation has shown this model call; what it left out is taken."""
        for index, before in enumerate(() if self._shown_by_one(seen.scope) else self._models):
            if not same_model_call(before, seen):
                continue
            if before.told.tokens is None:
                self._add_tokens(seen.told.tokens, False)
            if before.told.calls is None and seen.told.calls is not None:
                self._models[index] = before._replace(told=seen.told)
                if seen.told.calls:
                    self._issue(_calls(seen.told.calls), seen.when.end, seen.clock)
            return True
        self._models.append(seen)
        return False

    def _add_tokens(self, tokens: int | None, in_tool: bool) -> None:
        if tokens is None:
            return
        if in_tool and self._open:
            one = self._open[-1]
            one.tokens = (one.tokens or 0) + tokens
        else:
            self._tokens = (self._tokens or 0) + tokens

    def _shown_by_one(self, scope: str) -> bool:
        """Whether this instrumentation alone has shown anything so far."""
        if len(self._scopes) < 2:
            self._scopes.add(scope)
        return len(self._scopes) < 2

    def _shown_by_another(self, span: SpanData, tool: ToolSpan) -> bool:
        if self._shown_by_one(span.scope):
            return False
        when = Interval(span.start, span.end)
        shown = [
            call
            for call in self._all_calls()
            if call.name == tool.name
            and call.when is not None
            and span.scope not in call.scopes
            and call.when.overlaps(when)
            and _may_be(call, tool)
        ]
        if not shown:
            return False
        call = next((call for call in shown if call.id and call.id == tool.id), shown[0])
        _show_again(call, span, tool)
        return True

    def _shown_elsewhere(self, span: SpanData, tool: ToolSpan) -> bool:
        """Whether a call that is known is shown from another host, at another time."""
        clock = clock_of(span.resource)
        known = [call for call in self._all_calls() if call.name == tool.name]
        call = next((call for call in known if _same_id(call, span, tool, clock)), None)
        if call is None:
            when = Interval(span.start, span.end)
            call = next(
                (
                    call
                    for call in known
                    if call.when is not None
                    and (
                        call.parent == span.span_id
                        or (
                            call.clock != clock
                            and span.scope not in call.scopes
                            and call.when.near(when)
                            and _may_be(call, tool)
                        )
                    )
                ),
                None,
            )
        if call is None:
            return False
        if call.when is None:  # the model was shown its result
            call.show(span, tool)
        else:
            if call.clock != clock and not call.when.overlaps(Interval(span.start, span.end)):
                _count_skew(span)
            _show_again(call, span, tool)
        return True

    def _all_calls(self) -> list[_Call]:
        rounds = (*self._open, *self._recent)
        return [*self._loose, *(call for one in rounds for call in one.calls)]

    def _chosen(self, span: SpanData, tool: ToolSpan) -> tuple[_Round, _Call] | None:
        """The call of a round that a tool's span shows for the first time, or tried again."""
        called = [
            (one, call)
            for one in self._open
            for call in one.calls
            if call.name == tool.name and (call.result is None or call.raised)
        ]
        named = [found for found in called if span.end >= found[0].since]
        if tool.id is not None:
            exact = [found for found in named if found[1].id == tool.id]
            if exact:
                return exact[-1]
            elsewhere = [found for found in called if _elsewhere(found[0], span)]
            exact = [found for found in elsewhere if found[1].id == tool.id]
            if exact:
                return exact[0]
            named = [found for found in named if found[1].id is None]
            called = [found for found in called if found[1].id is None]
        if not named:
            named = [
                found
                for found in called
                if _elsewhere(found[0], span) and found[0].since - span.end <= MAX_SKEW
            ]
        waiting = [found for found in named if found[1].result is None]
        for candidates in (waiting, named):
            for found in candidates:
                if same_arguments(found[1].arguments, tool.arguments):
                    return found
        return waiting[0] if waiting else None

    def _overlaps_loose(self, span: SpanData) -> bool:
        when = Interval(span.start, span.end)
        return any(call.when is not None and call.when.overlaps(when) for call in self._loose)

    def _issue_loose(self) -> None:
        calls, self._loose = self._loose, []
        if calls:
            since = min(call.when.start for call in calls if call.when is not None)
            self._observe(self._issue(calls, since, calls[0].clock))

    def _issue(self, calls: list[_Call], since: int, clock: str) -> _Round:
        one = _Round(calls, since, clock)
        tokens, self._tokens = self._tokens, None
        self._reports.append(partial(self._report_issue, one, tokens))
        self._open.append(one)
        while sum(len(waiting.calls) for waiting in self._open) > _MAX_WAITING > len(calls):
            span_faults.drop("too_many", len(self._open[0].calls))
            del self._open[0]
        return one

    def _observe_ended(self, one: _Round) -> None:
        """Observe a round that has ended; one with a call that raised may be tried again."""
        if all(call.result is not None and not call.raised for call in one.calls):
            self._observe(one)

    def _observe(self, one: _Round) -> None:
        if one in self._open:
            self._open.remove(one)
        self._recent.append(one)
        self._reports.append(partial(self._report_outcome, one))

    def _report_issue(self, one: _Round, tokens: int | None) -> None:
        recorded = self._recorded
        steps = recorded.steps
        chosen = tuple([Call(call.name, call.arguments) for call in one.calls])
        decision = recorded.issue(Step(recorded.id, chosen, ABSENT, tokens))
        if decision.signals is not None:
            one.step = decision.signals.step
        elif recorded.steps > steps:
            one.step = steps

    def _report_outcome(self, one: _Round) -> None:
        if one.step is None or one.observed:
            return
        one.observed = True
        results = tuple([call.result or CallResult() for call in one.calls])
        shown = [call.when for call in one.calls if call.when is not None]
        seconds = (max(when.end for when in shown) - one.since) / 1e9 if shown else None
        if seconds is not None and (seconds < 0 or any(when.end < when.start for when in shown)):
            seconds = math.nan  # not known, and no clock of ours tells it
        self._recorded.observe(
            Outcome(self._recorded.id, results, one.step, tokens=one.tokens, seconds=seconds)
        )


def _calls(chosen: Sequence[ChosenCall]) -> list[_Call]:
    return [_Call(call.name, call.arguments, call.id) for call in chosen]


def _show_again(call: _Call, span: SpanData, tool: ToolSpan) -> None:
    """Another span shows the same call: what the first left out is taken from it."""
    call.scopes.add(span.scope)
    if call.arguments is UNKNOWN_ARGUMENTS and tool.arguments is not ABSENT:
        call.arguments = tool.arguments
    if call.result is None or call.result.outcome is ABSENT:
        call.result = tool.result


def _same_id(call: _Call, span: SpanData, tool: ToolSpan, clock: str) -> bool:
    """Whether a call has this id, and it is not one that a model gave twice."""
    if call.id is None or call.id != tool.id or call.result is None or call.raised:
        return False
    return call.when is None or call.clock != clock


def _elsewhere(one: _Round, span: SpanData) -> bool:
    """Whether a span is from another process, as far as is known, than the model's."""
    return span.remote or one.clock != clock_of(span.resource)


def _count_skew(span: SpanData) -> None:
    span_faults.skew(str(span.resource.get("service.name") or ""))


def _may_be(call: _Call, tool: ToolSpan) -> bool:
    if call.id and tool.id:
        return call.id == tool.id
    return same_arguments(call.arguments, tool.arguments)
