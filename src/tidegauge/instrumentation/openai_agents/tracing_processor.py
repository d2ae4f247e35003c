"""The trace processor for the OpenAI Agents SDK.

What a run and a step are:

- Every ``Runner.run`` (``run_sync``, ``run_streamed``) is a run: from its task span, or from its
  agent's span where task spans are switched off.
- All tool calls of one model response are one step, issued when the response is there.
- An agent that is handed over to goes on with the same run, and the hand-off is a call of the
  step in which the model chose it. An agent as a tool, or in a guardrail, is a separate run,
  child of the run around it.
- A run that waits for an approval ends there, with unknown outcome; resumed, it is another one.

A trace processor cannot stop anything: see :mod:`tidegauge.instrumentation.openai_agents.hooks`.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from agents import (
    AgentSpanData,
    FunctionSpanData,
    GenerationSpanData,
    HandoffSpanData,
    ResponseSpanData,
    Span,
    TaskSpanData,
    Trace,
    TracingProcessor,
    TurnSpanData,
    get_current_span,
)

from tidegauge.errors import ConfigurationError
from tidegauge.events import ABSENT
from tidegauge.instrumentation.openai_agents import item_contents, parsing
from tidegauge.instrumentation.openai_agents.agent_run import (
    AgentRun,
    Scope,
    open_child_run,
    open_root_run,
)
from tidegauge.runs.request_metadata import RunLabels
from tidegauge.runs.run_map import RunMap, RunScope
from tidegauge.safety.guard import guarded, log
from tidegauge.tracer import ModelRequest, Prompt, Reply

P = ParamSpec("P")
R = TypeVar("R")

_MAX_TASKS: Final = 10_000
_NO_HOOKS: Final = (
    "rules with the actions nudge, block and stop need the run hooks; "
    "use Runner.run(..., hooks=TidegaugeRunHooks(processor))"
)


@guarded("openai_agents.watch_only", default=None)
def _watch_only(processor: TidegaugeTracingProcessor, span: Span[Any]) -> None:
    scope = processor._runs.find(span.span_id) or processor._runs.find(span.parent_id)
    if scope is not None:
        scope.run.watched_only = True


def _callback(method: Callable[P, R]) -> Callable[P, R | None]:
    """Let no fault of ours leave a callback; after one, its run is only watched."""
    on_fault = cast("Callable[P, None]", _watch_only)
    return guarded(f"openai_agents.{method.__name__}", default=None, on_fault=on_fault)(method)


class TidegaugeTracingProcessor(TracingProcessor):
    """Makes every ``Runner.run`` of the process a run, and its turns of tool calls steps.

    Give it to ``agents.add_trace_processor`` once, or with ``agents.set_trace_processors`` in
    place of the exporter that the SDK brings.

    The metadata of a trace (``RunConfig(trace_metadata=...)``) override what is given here:
    ``tidegauge_agent``, ``tidegauge_task``, ``tidegauge_task_group``, ``tidegauge_t_max`` and
    ``tidegauge_memory``; ``user_id``, ``session_id`` and ``tags`` are put on the run's span. The
    agent is the one that the run starts with, unless it is given; the conversation is the trace's
    ``group_id``.

    Args:
        task_group: family of tasks whose runs are compared.
        t_max: turns within which a solved task counts towards AUV.
        memory: arm of a memory experiment, such as ``"on"`` and ``"off"``.

    Raises:
        ConfigurationError: ``t_max`` is below 1.
    """

    def __init__(
        self,
        *,
        task_group: str | None = None,
        t_max: int | None = None,
        memory: str | None = None,
    ) -> None:
        if t_max is not None and t_max < 1:
            raise ConfigurationError(f"t_max={t_max} is out of range; use 1 or more")
        self._labels = RunLabels(task_group=task_group, t_max=t_max, memory=memory)
        self._runs: RunMap[str, AgentRun] = RunMap()
        # open task spans -> what is around them
        self._tasks: OrderedDict[str, Scope | None] = OrderedDict()
        self._warned_of_no_contents = False

    def current(self) -> Scope | None:
        """Where the caller is, by the SDK's current span; ``None`` outside of every run."""
        span = get_current_span()
        return None if span is None else self._runs.find(span.span_id)

    def seen(self, run: AgentRun) -> None:
        """The run is alive."""
        self._runs.seen(run)

    def on_trace_start(self, trace: Trace) -> None:
        """Nothing: a trace may hold several runs."""

    def on_trace_end(self, trace: Trace) -> None:
        """Nothing: a run ends with its span."""

    @_callback
    def on_span_start(self, span: Span[Any]) -> None:
        """Something began: a run, a turn, a model call or a tool."""
        data, key = span.span_data, span.span_id
        scope = self._runs.find(span.parent_id)
        if isinstance(data, TaskSpanData):
            self._hold_task(key, scope)
        elif isinstance(data, AgentSpanData):
            self._start_agent(span, data, scope)
        elif scope is not None:
            if isinstance(data, GenerationSpanData | ResponseSpanData):
                self._start_model(key, data, scope)
            elif isinstance(data, FunctionSpanData) and scope.tool is None:
                self._start_tool(key, data.name, scope.run)
                return
            elif isinstance(data, HandoffSpanData) and scope.tool is None:
                self._start_tool(key, "handoff", scope.run)
                return
            elif isinstance(data, TurnSpanData) and scope.tool is None:
                scope.run.turns.next_turn()
            self._runs.enter(key, scope)

    @_callback
    def on_span_end(self, span: Span[Any]) -> None:
        """Something ended: its result is known."""
        data, key = span.span_data, span.span_id
        self._tasks.pop(key, None)
        scope = self._runs.leave(key)
        if scope is None:
            return
        run = scope.run
        if isinstance(data, AgentSpanData):
            run.error = parsing.failure(span.error) or run.error
        elif isinstance(data, GenerationSpanData):
            request = parsing.generation_request(data)
            self._end_model(span, parsing.generation_answer(data), request, scope)
        elif isinstance(data, ResponseSpanData):
            request = parsing.response_parameters(data)
            self._end_model(span, parsing.response_answer(data), request, scope)
        elif isinstance(data, FunctionSpanData):
            self._end_function(span, data, scope)
        elif isinstance(data, HandoffSpanData):
            self._end_handoff(span, data, scope)
        if run.root == key:
            self._runs.close(run)
            run.end()

    def shutdown(self) -> None:
        """Nothing: what is sent is sent by the pipeline, which closes itself."""

    def force_flush(self) -> None:
        """Nothing waits here."""

    def _hold_task(self, key: str, around: Scope | None) -> None:
        """A ``Runner.run`` began; its run is opened when its agent is known."""
        self._tasks[key] = around
        if len(self._tasks) > _MAX_TASKS:
            self._tasks.popitem(last=False)

    def _start_agent(
        self, span: Span[AgentSpanData], data: AgentSpanData, scope: Scope | None
    ) -> None:
        runs, key = self._runs, span.span_id
        if scope is not None and scope.run.root == span.parent_id and scope.tool is None:
            runs.enter(key, scope)  # handed over to
            return
        task = span.parent_id if span.parent_id in self._tasks else None
        root, around = (key, scope) if task is None else (task, self._tasks[task])
        if around is None:
            run = open_root_run(root, data.name, span.trace_metadata or {}, labels=self._labels)
        else:
            run = open_child_run(root, data.name, around=around)
        runs.open(RunScope(run))
        if root != key:
            runs.enter(key, RunScope(run))

    def _start_model(
        self, key: str, data: GenerationSpanData | ResponseSpanData, scope: Scope
    ) -> None:
        run = scope.run
        self._runs.seen(run)
        if not run.traced:
            return
        if run.asked is not None and scope.tool is None:
            run.models[key], run.asked = run.asked, None
        else:
            request = (
                parsing.generation_request(data)
                if isinstance(data, GenerationSpanData)
                else parsing.response_parameters(data)
            )
            run.models[key] = run.recorded.spans.start_chat(request, inside=scope.tool_span)

    def _end_model(
        self, span: Span[Any], answer: parsing.ModelAnswer, request: ModelRequest, scope: Scope
    ) -> None:
        run = scope.run
        chat = run.models.pop(span.span_id, None)
        if chat is not None:
            spans, data = run.recorded.spans, span.span_data
            spans.end_chat(
                chat,
                answer.response,
                answer=self._said(data, answer) if spans.shows_contents else None,
                request=request,
                prompt=self._shown(data, run) if spans.shows_contents else None,
                error=parsing.failure(span.error),
            )
        if run.hooked and scope.tool is None:
            return  # the hooks report it once for all attempts
        if run.recorded.counts_usage:
            run.recorded.spend(answer.response.usage(request.model))
        run.recorded.read_answer(item_contents.text_of(self._items(span.span_data)))
        if answer.calls and scope.tool is None:
            run.recorded.without_control(_NO_HOOKS)
            run.turns.choose(answer.calls, tokens=answer.tokens)
        else:
            run.turns.add_tokens(answer.tokens, scope.tool)

    def _said(self, data: Any, answer: parsing.ModelAnswer) -> Reply | None:
        return item_contents.answer_of(self._items(data), answer.response.finish_reasons)

    def _items(self, data: Any) -> object:
        if isinstance(data, ResponseSpanData):
            return None if data.response is None else data.response.output
        return parsing.output_items(data)

    def _shown(self, data: Any, run: AgentRun) -> Prompt | None:
        """What the model was shown, unless the hooks reported it at the start."""
        if run.hooked or data.input is None:
            return None
        response = getattr(data, "response", None)
        system, tools = getattr(response, "instructions", None), getattr(response, "tools", None)
        return item_contents.prompt_of(data.input, system, tools)

    def _start_tool(self, key: str, name: str, run: AgentRun) -> None:
        call = run.turns.begin(name)
        if run.traced:
            call.span = run.recorded.spans.start_tool(
                call.name,
                call_id=call.id,
                signals=call.turn.signals,
                arguments=None if call.arguments is ABSENT else call.arguments,
            )
        self._runs.enter(key, RunScope(run, call))

    def _end_function(self, span: Span[Any], data: FunctionSpanData, scope: Scope) -> None:
        captured = data.input is not None or data.output is not None
        if not captured and not scope.run.hooked:
            self._warn_of_no_contents()
        arguments = parsing.arguments_value(data.input) if captured else ABSENT
        self._end_tool(span, data.output if captured else ABSENT, arguments, scope)

    def _end_handoff(self, span: Span[Any], data: HandoffSpanData, scope: Scope) -> None:
        # Its error is about other hand-offs that were requested at once: this one took place.
        to = data.to_agent
        self._end_tool(span, to, to, scope, failed=to is None, hand_off=to)

    def _end_tool(
        self,
        span: Span[Any],
        outcome: object,
        arguments: object,
        scope: Scope,
        *,
        failed: bool = True,
        hand_off: str | None = None,
    ) -> None:
        run, call = scope.run, scope.tool
        if call is None:
            return
        outcome = call.output if outcome is ABSENT else outcome
        result = parsing.tool_result(outcome, span.error if failed else None)
        ended = time.time_ns()
        decision = run.turns.end(call, result, arguments=arguments)
        if run.traced:
            run.recorded.spans.end_tool(
                call.span,
                result.outcome,
                parsing.tool_failure(result, span.error),
                ended,
                signals=decision.signals,
                hand_off=hand_off,
            )

    def _warn_of_no_contents(self) -> None:
        if not self._warned_of_no_contents:
            self._warned_of_no_contents = True
            log(
                logging.WARNING,
                "tidegauge: the traces of the Agents SDK have no contents "
                "(trace_include_sensitive_data is off): only TidegaugeRunHooks measure steps",
            )
