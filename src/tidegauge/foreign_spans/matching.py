"""Joins a run's ended spans to its turns: which call of which turn a span shows.

The rules of :mod:`tidegauge.runs.turns` hold. What spans add to them:

- A turn is issued when the model's span has ended and shows its tool calls, which is before any of
  the tools runs. A tool that no model chose is a turn by itself.
- Where model spans do not show calls (contents are not captured), a turn is what ran between two
  model calls. It is issued, late, when the second has ended. With no model spans at all, as
  OpenInference shows CrewAI 1.15 and Google's ADK 2.13, tools that overlap in time are one turn.
- A call that our stop refused is no step: its span ends with that exception, which names the run.
  So what is chosen after a stop is issued when its calls have ended.
- A tool's span may come from another host, whose clock is off: it then seems to end before the
  model chose it, or apart from what another instrumentation shows of the same call. Its call is
  found by the model's id of it, by its parent, then by name and time. The contradiction is counted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from tidegauge._span_counts import span_faults
from tidegauge.events import ABSENT, GO_ON, Answer, CallResult, Decision, made
from tidegauge.foreign_spans.convention_reader import content_hint
from tidegauge.foreign_spans.dedupe import (
    MAX_SKEW,
    Interval,
    SeenModel,
    memory_of,
    same_arguments,
    same_model_call,
)
from tidegauge.foreign_spans.json_values import STOPPED, error_type, failure_text
from tidegauge.foreign_spans.span import (
    UNKNOWN_ARGUMENTS,
    ModelSpan,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.foreign_spans.usage import usage_of
from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.turn_calls import MAX_CALLS, ChosenCall, Turn, TurnCall
from tidegauge.runs.turns import MAX_SAID, TurnTracker
from tidegauge.safety.critical import here
from tidegauge.safety.guard import guarded

_MAX_RECENT: Final = 64
MAX_SHOWN_BYTES: Final = 1024 * 1024
"""Limit of the memory of the arguments of calls that a run remembers because they may be shown
again: of those of its turns, and of those that its models chose."""

_TURN_BYTES: Final = 1_000
"""What a turn of one call takes, about, without arguments and result; a model call takes less."""

_NO_RESULT: Final = CallResult()
_RESULT: Final = CallResult(None)
_HAND_OFFS: Final = ("transfer_to_", "handoff", "hand_off", "delegate_to_")
"""How names of tools begin that hand over to another agent: ``transfer_to_agent`` of Google's ADK,
``transfer_to_NAME`` of the OpenAI Agents SDK, ``handoff_to_agent`` of Strands."""

_HAND_OFF_SPANS: Final = ("handoff", "Handoff")
"""How names of spans begin that show a hand-off, by whatever tool it was chosen: the OpenAI Agents
SDK calls the span "handoff to researcher" where the model called ``transfer_to_researcher``."""


class SpanCall(TurnCall):
    """A call as spans show it.

    Attributes:
        scopes: the instrumentations that have shown it.
        when: when it ran; ``None`` until a span has shown it.
        clock: the clock of that time.
        parent: id of the span around the one that has shown it.
        refused: whether it was not run, because its run was stopped.
        service: the process that has shown it.
    """

    __slots__ = ("clock", "parent", "refused", "scopes", "service", "when")

    turn: SpanTurn

    def __init__(self, name: str, arguments: object, call_id: str | None = None) -> None:
        super().__init__(name, UNKNOWN_ARGUMENTS if arguments is ABSENT else arguments, call_id)
        self.scopes: set[str] = set()
        self.when: Interval | None = None
        self.clock = self.service = ""
        self.parent: int | None = None
        self.refused = False

    def show(self, span: SpanData, tool: ToolSpan, *, refused: bool) -> None:
        """A span shows it, or shows it being tried again."""
        self.scopes = {span.scope}
        self.refused = refused
        self.result, self.raised = tool.result, tool.raised
        self.when = made(Interval, (span.start, span.end))
        self.clock, self.parent = clock_of(span.resource), span.parent_id
        self.service = str(span.resource.get("service.name") or "")

    def show_again(self, span: SpanData, tool: ToolSpan) -> None:
        """Another span shows the same call: what the first left out is taken from it."""
        self.scopes.add(span.scope)
        if self.arguments is UNKNOWN_ARGUMENTS and tool.arguments is not ABSENT:
            self.arguments = tool.arguments
        if self.result is None or self.result.outcome is ABSENT:
            self.result = tool.result

    def take(self, known: SpanCall) -> None:
        """It was shown before it was known that a model chose it."""
        self.scopes, self.when, self.clock = known.scopes, known.when, known.clock
        self.parent, self.result, self.raised = known.parent, known.result, known.raised
        if self.arguments is UNKNOWN_ARGUMENTS:
            self.arguments = known.arguments

    def may_be(self, tool: ToolSpan) -> bool:
        """Whether a span of this name may show it."""
        if self.id and tool.id:
            return self.id == tool.id
        return same_arguments(self.arguments, tool.arguments)


class SpanTurn(Turn):
    """A turn as spans show it.

    Attributes:
        since: when it was chosen, in nanoseconds.
        clock: the clock of that time.
        postponed: whether it was chosen after a stop: its step is issued when it has ended.
        size: bytes of memory that the arguments of its calls take, about, once it has ended.
        remembered: whether it may be shown again.
        handed_on: whether its result was reported.
    """

    __slots__ = ("clock", "handed_on", "postponed", "remembered", "seconds", "since", "size")

    calls: list[SpanCall]  # type: ignore[assignment]

    def __init__(self, calls: list[SpanCall], since: int, clock: str) -> None:
        super().__init__(list(calls))
        self.since = since
        self.clock = clock
        self.seconds: float | None = None
        self.postponed = False
        self.size = 0
        self.remembered = self.handed_on = False

    @property
    def ended(self) -> bool:
        """Whether all calls have ended or were refused."""
        return all(call.result is not None or call.refused for call in self.calls)


class SpanTurns(TurnTracker):
    """Tracks the turns of one run by its ended spans, which end in any thread.

    Reports are put in a queue under the lock and sent after it, in that order, by one thread at a
    time. Another thread leaves its reports to that one and does not wait.
    """

    def __init__(self, recorded: RecordedRun) -> None:
        super().__init__(recorded)
        # Lists, because an empty deque takes 600 bytes.
        self._reports: list[Callable[[], object]] = []
        self._sending = threading.Lock()
        self._recent: list[SpanTurn] = []  # observed: may be shown again
        self._recent_size = self._models_size = 0
        self._unchosen: list[SpanCall] = []  # that no model span shows
        self._models: list[SeenModel] = []
        self._around_models: list[int | None] = []  # ids of their parents
        self._scopes: set[str] = set()  # the instrumentations that have shown it, two at most
        self._has_models = False  # whether there are model spans at all
        self._shows_calls = False  # whether they show their calls
        self._alone = 0  # the reported calls that no model had shown by then
        # Tokens of answers without calls since then, -1 for unknown: the last one ends the run.
        self._spoken: list[int] = []
        self._silent: str | None = None  # the scope of a model call that shows none, as yet
        self._refuses = False  # whether a call was refused
        self._handed_over: bool | None = None  # None: the run has not ended

    def model(
        self, span: SpanData, seen: SeenModel, shown: ModelSpan, *, in_tool: bool = False
    ) -> None:
        """A model call has ended: what came before is settled, what it chose is a step.

        Args:
            seen: what other spans are compared with.
            in_tool: it was made inside a tool: its tokens belong to that step, and it begins none.
        """
        with here.critical, self._lock:
            if self._shown_already(span, seen, shown, in_tool=in_tool):
                pass
            elif in_tool:
                self._count_tokens(shown.tokens, in_tool)
                if self._recorded.counts_usage:
                    self._spend(span, shown)
            else:
                calls = self._chosen_calls(seen) if shown.calls else []
                if self._unchosen or self._open.turns:
                    self._turn(shown.answers, seen)
                if self._spoken:
                    self._report_spoken()
                if shown.calls == () and not shown.failed and len(self._spoken) < MAX_SAID:
                    self._spoken.append(-1 if shown.tokens is None else shown.tokens)
                elif shown.tokens is not None:
                    self._tokens = (self._tokens or 0) + shown.tokens
                if self._recorded.counts_usage:
                    self._spend(span, shown)
                self._has_models = True
                if self._silent is not None:
                    self._report_silent()
                if shown.calls is None:
                    if not shown.failed and not self._shows_calls:
                        # Another span may still show them: the Anthropic SDK's own spans (2.12),
                        # which have no contents, end before those of OpenInference (3.1), which
                        # are around them, and of OpenLLMetry (0.62), which are beside them.
                        self._silent = seen.scope
                elif not self._shows_calls:
                    self._show_calls()
                if calls:
                    turn = self._open_turn(calls, span.end, seen.clock)
                    if calls[-1].result is not None:  # all of its tools may have ended
                        self._observe_ended(turn)
        self.send()

    def tool(self, span: SpanData, tool: ToolSpan, *, alone: bool = False) -> None:
        """A tool call has ended.

        Args:
            alone: whether it is a step by itself where no model chose it.
        """
        with here.critical, self._lock:
            alike = self._scopes == {span.scope} or not self._shown_by_another(span, tool)
            found = self._chosen(span, tool) if alike else None
            if found is not None:
                if span.end < found.turn.since:
                    _count_skew(span)
                found.show(span, tool, refused=span.failed and self._is_refused(span))
                self._observe_ended(found.turn)
            elif alike:
                self._take_unchosen(span, tool, alone=alone)
        self.send()

    def _report_spoken(self) -> None:
        """Report the answers without calls: the model is asked again. Texts are not looked at."""
        said, self._spoken = self._spoken, []
        for tokens in said:
            answer = Answer(self._recorded.id, tokens=None if tokens < 0 else tokens)
            self._reports.append(partial(self._recorded.answered, answer))

    def _take_unchosen(self, span: SpanData, tool: ToolSpan, *, alone: bool) -> None:
        """A tool call has ended that no model is known to have chosen."""
        if self._shown_elsewhere(span, tool):
            return
        call = SpanCall(tool.name, tool.arguments, tool.id)
        call.show(span, tool, refused=self._is_refused(span))
        if alone:
            self._observe_ended(self._open_turn([call], span.start, call.clock))
            return
        if not self._has_models and not self._overlaps_unchosen(span):
            self._report_unchosen()
        self._unchosen.append(call)
        if len(self._unchosen) > MAX_CALLS:
            self._report_unchosen()

    @guarded("spans.refuse", default=None)
    def refuse_waiting(self) -> None:
        """The calls that are waited for will not run: the caller raises the stop."""
        with here.critical, self._lock:
            for call in self._open_calls():
                call.refused = call.refused or call.result is None

    def waiting(self) -> list[str]:
        """The name of the tool of each call that is waited for."""
        with here.critical, self._lock:
            return [call.name for call in self._open_calls() if call.result is None]

    def has_results(self, since: int) -> bool:
        """Whether a call that was chosen at this time has a result, in nanoseconds."""
        with here.critical, self._lock:
            turns = [one for one in (*self._turns(), *self._recent) if one.since == since]
            return any(call.result is not None for turn in turns for call in turn.calls)

    def is_new(self, tool: ToolSpan) -> bool:
        """Whether the id of a tool's call shows that it is none of the calls so far."""
        if tool.id is None:
            return False
        with here.critical, self._lock:
            ids = {call.id for call in self._all_calls()}
        return None not in ids and tool.id not in ids

    @property
    def has_models(self) -> bool:
        """Whether there are model spans."""
        return self._has_models

    @property
    def shows_calls(self) -> bool:
        """Whether a model span has shown which calls it chose."""
        return self._shows_calls

    def goes_on(self) -> bool:
        """Whether its last turn is not over: it waits for tools, or hands over to another agent."""
        with here.critical, self._lock:
            turns = self._turns() or self._recent[-1:]
            if any(call.result is None for turn in turns for call in turn.calls):
                return bool(self._open)
            return _is_hand_off(turns)

    def hands_over(self) -> bool:
        """Whether its last call hands over to another agent."""
        with here.critical, self._lock:
            return self._hands_over() if self._handed_over is None else self._handed_over

    def _hands_over(self) -> bool:
        if self._unchosen:  # no model is shown, as in OpenInference's spans of Google's ADK
            return self._unchosen[-1].name.startswith(_HAND_OFFS)
        return _is_hand_off(self._turns() or self._recent[-1:])

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that it takes, about."""
        held = self._recent_size + self._models_size
        held += _TURN_BYTES * (len(self._recent) + len(self._models))
        for call in (*self._unchosen, *self._open_calls()):
            held += _TURN_BYTES + memory_of(call.arguments)
            if call.result is not None:
                held += memory_of(call.result.outcome)
        return held

    def settle(self, *, then: Callable[[], object] | None = None) -> None:
        """No more spans arrive: report what is known of the rest.

        Args:
            then: reported after it.
        """
        with here.critical, self._lock:
            self._turn((), None)
            self._report_silent()
            self._reports += [partial(self._issue_postponed, turn) for turn in self._turns()]
            if then is not None:
                self._reports.append(then)
            self._reports.append(self._end)
        self.send()

    def report_first(self, report: Callable[[], object]) -> None:
        """Report this before anything else, with the next :meth:`send`."""
        self._reports.append(report)

    def send(self) -> None:
        """Send the queued reports, unless another thread is sending."""
        reports = self._reports
        while reports:
            if not self._sending.acquire(blocking=False):
                return  # the thread that sends takes ours, too
            try:
                while reports:
                    reports.pop(0)()
            finally:
                self._sending.release()

    def _turn(self, answers: Sequence[tuple[str, CallResult]], seen: SeenModel | None) -> None:
        """The model chooses again. The answers that it is shown are for calls without a span.

        Only the answers show what tools returned where the client of a model is instrumented and
        the loop around it is the user's own.
        """
        if self._unchosen:
            unchosen = self._unchosen
            ahead = [] if seen is None else [one for one in unchosen if _may_be_ahead(one, seen)]
            self._unchosen = [call for call in unchosen if call not in ahead]
            self._report_unchosen()
            self._unchosen = ahead
        if self._open.turns:
            self._answer(answers)
            for turn in self._turns():
                if turn.ended:
                    self._close(turn)

    def _answer(self, answers: Sequence[tuple[str, CallResult]]) -> None:
        """The model was shown these results of calls, which may have no spans."""
        for call_id, result in answers:
            for call in self._open_calls():
                if call.id != call_id:
                    continue
                before = call.result
                known = call.refused or call.raised
                if before is None or (before.outcome is ABSENT and not known):
                    call.result = result
                    self._observe_ended(call.turn)

    def _chosen_calls(self, seen: SeenModel) -> list[SpanCall]:
        """The calls that a model chose; those whose tools ended before it are known already.

        Frameworks that stream run tools while the model still answers (the Vercel AI SDK, Mastra).
        """
        found: list[SpanCall] = []
        for chosen in seen.model.calls or ():
            call = SpanCall(*chosen)
            for known in self._unchosen:
                if _may_be_chosen(known, chosen, seen):
                    self._unchosen.remove(known)
                    call.take(known)
                    if known.clock != seen.clock:
                        span_faults.skew(known.service)
                    break
            found.append(call)
        return found

    def _spend(self, span: SpanData, shown: ModelSpan) -> None:
        """Budgets count a model call."""
        self._reports.append(partial(self._recorded.spend, usage_of(span, shown)))

    def _shown_already(
        self, span: SpanData, seen: SeenModel, shown: ModelSpan, *, in_tool: bool
    ) -> bool:
        """Whether another span has shown this model call; what it left out is taken."""
        one = self._scopes == {seen.scope} or self._shown_by_one(seen.scope)
        # Of one instrumentation, only the span around another one shows its call again, as
        # LiteLLM's span of a call does, around that of the raw request.
        again = not one or seen.span in self._around_models
        for index, before in enumerate(self._models if again else ()):
            if (one and before.parent != seen.span) or not same_model_call(before, seen):
                continue
            if in_tool:
                return True
            self._answer(shown.answers)
            if before.model.tokens is None:
                self._count_tokens(seen.model.tokens, False)
                if shown.tokens is not None and self._recorded.counts_usage:
                    self._spend(span, shown)
            if before.model.calls is None and seen.model.calls is not None:
                # The one that ended first has no contents, as the Anthropic SDK's: see `model`.
                self._models[index] = before._replace(model=seen.model, size=seen.size)
                self._models_size += seen.size - before.size
                self._silent = None
                self._show_calls()
                calls = self._chosen_calls(seen)
                if calls:
                    turn = self._open_turn(calls, seen.when.end, seen.clock)
                    if calls[-1].result is not None:
                        self._observe_ended(turn)
            return True
        models = self._models
        models.append(seen)
        self._around_models.append(seen.parent)
        self._models_size += seen.size
        while len(models) > _MAX_RECENT or self._models_size > MAX_SHOWN_BYTES:
            self._models_size -= models.pop(0).size
            del self._around_models[0]
        return False

    def _show_calls(self) -> None:
        """A model span shows which calls it chose."""
        if not self._shows_calls and self._alone:
            span_faults.repair("unmatched", self._alone)
        self._shows_calls = True

    def _report_silent(self) -> None:
        """No other span has shown the calls of the last model call."""
        if self._silent is not None:
            scope, self._silent = self._silent, None
            self._reports.append(partial(span_faults.unread, scope, "no_contents", content_hint))

    def _count_tokens(self, tokens: int | None, in_tool: bool) -> None:
        if tokens is None:
            return
        if in_tool and self._open:
            turn = self._turns()[-1]
            turn.tokens = (turn.tokens or 0) + tokens
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
            and call.may_be(tool)
        ]
        if not shown:
            return False
        call = next((call for call in shown if call.id and call.id == tool.id), shown[0])
        call.show_again(span, tool)
        return True

    def _shown_elsewhere(self, span: SpanData, tool: ToolSpan) -> bool:
        """Whether a call that is known is shown from another host, at another time."""
        clock = clock_of(span.resource)
        known = [call for call in self._all_calls() if call.name == tool.name]
        call = next((call for call in known if _same_id(call, tool, clock)), None)
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
                            and call.may_be(tool)
                        )
                    )
                ),
                None,
            )
        if call is None:
            return False
        if call.when is None:  # the model was shown its result
            call.show(span, tool, refused=self._is_refused(span))
        else:
            if call.clock != clock and not call.when.overlaps(Interval(span.start, span.end)):
                _count_skew(span)
            call.show_again(span, tool)
        return True

    def _turns(self) -> list[SpanTurn]:
        return cast("list[SpanTurn]", list(self._open.turns))

    def _open_calls(self) -> list[SpanCall]:
        open_turns = cast("dict[SpanTurn, None]", self._open.turns)
        return [call for turn in open_turns for call in turn.calls]

    def _all_calls(self) -> list[SpanCall]:
        recent = [call for turn in self._recent for call in turn.calls]
        return [*self._unchosen, *self._open_calls(), *recent]

    def _chosen(self, span: SpanData, tool: ToolSpan) -> SpanCall | None:
        """The call of a turn that a tool's span shows for the first time, or tried again."""
        open_turns = cast("dict[SpanTurn, None]", self._open.turns)
        called = [
            call
            for turn in open_turns
            for call in turn.calls
            if call.name == tool.name and (call.result is None or call.raised)
        ]
        # OpenInference 2.6, OpenAI Agents SDK 0.20: the model calls `transfer_to_billing`, and the
        # span is "handoff to billing".
        if not called and tool.name.startswith(_HAND_OFF_SPANS):
            called = [call for call in self._open_calls() if call.result is None]
        named = [call for call in called if span.end >= call.turn.since]
        if tool.id is not None:
            exact = [call for call in named if call.id == tool.id]
            if exact:
                return exact[-1]
            exact = [call for call in called if _elsewhere(call, span) and call.id == tool.id]
            if exact:
                return exact[0]
            if any(call.id == tool.id for call in self._all_calls()):
                return None
            # Google's ADK (2.13) gives tools' spans its own ids ("adk-" and a UUID), while the
            # model's span has the model's: then name and arguments decide. The id of a call that is
            # known here excludes all others.
            named = [call for call in named if call.result is None]
            called = [call for call in called if call.result is None]
        if not named:
            named = [
                call
                for call in called
                if _elsewhere(call, span) and call.turn.since - span.end <= MAX_SKEW
            ]
        # What raised may be tried again under the same choice of the model, each time with a span:
        # LangChain's ToolRetryMiddleware does so.
        waiting = [call for call in named if call.result is None]
        for candidates in (waiting, named):
            for call in candidates:
                if same_arguments(call.arguments, tool.arguments):
                    return call
        # OpenInference for smolagents (0.1.43) and OpenLLMetry's decorators (0.62) show without an
        # id how a tool's function was called (`args`, `kwargs`): the name decides.
        return waiting[0] if waiting and tool.id is None else None

    def _overlaps_unchosen(self, span: SpanData) -> bool:
        when = Interval(span.start, span.end)
        return any(call.when is not None and call.when.overlaps(when) for call in self._unchosen)

    def _report_unchosen(self) -> None:
        """The calls that no model span shows are a turn, which is over.

        Where model spans show calls, no model chose these: each is a turn.
        """
        unchosen, self._unchosen = self._unchosen, []
        turns = [unchosen]
        if self._shows_calls and unchosen:
            span_faults.repair("unmatched", len(unchosen))
            turns = [[call] for call in unchosen]
        else:
            self._alone += len(unchosen)
        for calls in turns:
            if calls:
                since = min(call.when.start for call in calls if call.when is not None)
                self._open_turn(calls, since, calls[0].clock, ends=True)

    def _open_turn(
        self, calls: list[SpanCall], since: int, clock: str, *, ends: bool = False
    ) -> SpanTurn:
        """A new turn, which is issued now.

        Args:
            since: when it was chosen, in nanoseconds.
            clock: the clock of that time.
            ends: whether it is over, too.
        """
        turn = SpanTurn(calls, since, clock)
        turn.spent, self._tokens = self._tokens, None
        self._reports.append(partial(self._issue, turn))
        if ends:
            self._close(turn)
        else:
            for dropped in self._open.add(turn):
                span_faults.drop("too_many", len(dropped.calls))
        return turn

    def _observe_ended(self, turn: SpanTurn) -> None:
        """Observe a turn that has ended.

        A call that raised may be tried again (see `_chosen`), and another span may show a result
        that is missing: AutoGen's own `execute_tool` (0.7.5) has none, and ends inside that of
        OpenInference, which has it.
        """
        for call in turn.calls:  # at every step
            result = call.result
            missing = result is None or (result.outcome is ABSENT and not call.raised)
            if call.raised or (missing and not call.refused):
                return
        self._close(turn)

    def _close(self, turn: Turn) -> None:
        if not turn.observed:
            self._reports.append(partial(self._observe, turn))
            one, recent = cast("SpanTurn", turn), self._recent
            one.remembered = True
            one.size = sum([memory_of(call.arguments) for call in one.calls])
            recent.append(one)
            self._recent_size += one.size
            while len(recent) > _MAX_RECENT or (
                self._recent_size > MAX_SHOWN_BYTES and len(recent) > 1
            ):
                self._forget_oldest()
        super()._close(turn)

    def _forget_oldest(self) -> None:
        turn = self._recent.pop(0)
        self._recent_size -= turn.size
        turn.remembered = False
        if turn.handed_on:
            turn.calls = []

    def _end(self) -> None:
        """All is reported. Those that the run was for may hold it for longer."""
        with here.critical, self._lock:
            self._handed_over = self._hands_over()
            self._models.clear()
            self._around_models.clear()
            while self._recent:
                self._forget_oldest()
            for turn in self._turns():
                self._open.remove(turn)
                turn.calls = []
            self._unchosen.clear()
            self._by_id.clear()
            self._recent_size = self._models_size = 0

    def _is_refused(self, span: SpanData) -> bool:
        """Whether a tool's span shows that the stop of this run refused its call."""
        if not span.failed or error_type(span) not in STOPPED:
            return False
        # The stop of another run may pass through the tool: that of an agent inside it.
        refused = f"run {self._recorded.event.run} stopped at step " in (failure_text(span) or "")
        self._refuses = self._refuses or refused
        return refused

    def _issue(self, turn: Turn, entropy: float | None = None, *, blockable: bool = False) -> None:
        if self._refuses or self._recorded.decision.stop:
            cast("SpanTurn", turn).postponed = True
        else:
            super()._issue(turn, entropy, blockable=blockable)

    def _issue_postponed(self, turn: SpanTurn) -> None:
        """Nothing shows that its calls were refused: it is a step without a result."""
        if turn.postponed:
            super()._issue(turn)

    def _observe(self, turn: Turn) -> Decision:
        one = cast("SpanTurn", turn)
        try:
            refused = sum([call.refused for call in one.calls])
            if refused:
                self._recorded.refused(refused)
            if refused == len(one.calls):
                return GO_ON  # there is no result
            if one.postponed:
                one.calls = [call for call in one.calls if not call.refused]
                super()._issue(one)
            if one.step is None:
                return GO_ON
            shown = [call.when for call in one.calls if call.when is not None]
            one.seconds = math.nan  # not known: our own clock would measure when spans arrive
            if shown and all(when.start <= when.end for when in shown):
                seconds = (max([when.end for when in shown]) - one.since) / 1e9
                if seconds >= 0:
                    one.seconds = seconds
            return super()._observe(one)
        finally:
            for call in one.calls:  # all that matters from now on is that there is a result
                if call.result is not None:
                    call.result = _NO_RESULT if call.result.outcome is ABSENT else _RESULT
            one.handed_on = True
            if not one.remembered:
                one.calls = []  # they refer to it: so it is freed at once, by no collector


def _is_hand_off(turns: Sequence[SpanTurn]) -> bool:
    return bool(turns) and turns[-1].calls[-1].name.startswith(_HAND_OFFS)


def _may_be_chosen(call: SpanCall, chosen: ChosenCall, seen: SeenModel) -> bool:
    """Whether a tool that ended before the model's span was chosen in it."""
    if call.name != chosen.name or call.when is None:
        return False
    if call.id is not None and call.id == chosen.id:
        return True
    if call.clock == seen.clock and not call.when.overlaps(seen.when):
        return False
    return call.when.near(seen.when) and same_arguments(call.arguments, chosen.arguments)


def _may_be_ahead(call: SpanCall, seen: SeenModel) -> bool:
    """Whether a tool that ended before this model call may yet be chosen by a later one."""
    if call.when is None or call.clock == seen.clock or not seen.model.calls:
        return False
    return seen.when.end - call.when.end <= MAX_SKEW


def _same_id(call: SpanCall, tool: ToolSpan, clock: str) -> bool:
    """Whether a call has this id, and it is not one that a model gave twice."""
    if call.id is None or call.id != tool.id or call.result is None or call.raised:
        return False
    return call.when is None or call.clock != clock


def _elsewhere(call: SpanCall, span: SpanData) -> bool:
    """Whether a span is from another process, as far as is known, than the model's."""
    return span.remote or call.turn.clock != clock_of(span.resource)


def _count_skew(span: SpanData) -> None:
    span_faults.skew(str(span.resource.get("service.name") or ""))
