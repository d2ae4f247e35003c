"""Middleware for ``langchain.agents.create_agent``: acts on what the policy decides.

The callback handler measures and decides; it cannot talk to the model, and can end a run by an
exception only. The middleware is part of the agent:

- a **nudge** is put before the model as one more message, after all answers; by default it is in
  that request only and not in the agent's state;
- a **blocked** call is answered and not run, and so is every other call of its turn;
- a **stop** ends the agent with a message that says why. What the model chose last is kept, its
  calls are answered as not run: the state is clean, and a thread with a checkpointer can go on. Of
  an answer that is cut while it streams, nothing is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors import ConfigurationError, MissingExtraError, RunStopped

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
    from langchain.agents.middleware.types import ModelRequest, ModelResponse
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain", extra="langchain") from error

from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command
from opentelemetry import trace

from tidegauge.events import Decision
from tidegauge.instrumentation.langchain.agent_run import AgentRun
from tidegauge.instrumentation.langchain.control_flow import STOP
from tidegauge.instrumentation.langchain.handler import TidegaugeCallbackHandler
from tidegauge.instrumentation.langchain.messages import (
    nudge_message,
    refused_message,
    stop_text,
    stopped_message,
    unanswered_calls,
)
from tidegauge.instrumentation.langchain.parsing import NodeAnswer, tool_answers
from tidegauge.instrumentation.langchain.run_lookup import find_agent_run
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor
from tidegauge.runs.recorder import RecordedRun
from tidegauge.safety.guard import guarded, log

_ToolAnswer: TypeAlias = ToolMessage | Command[Any]

_NO_RUN: Final = (
    "TidegaugeMiddleware found no run and does not intervene; invoke the agent with "
    "config={'callbacks': [TidegaugeCallbackHandler()]}, or give the middleware the span processor"
)


class TidegaugeMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Nudges, blocks and stops an agent, as the policy of :func:`tidegauge.configure` says.

    One middleware may serve any number of agents and invocations. It needs a source that reports
    the run: a :class:`TidegaugeCallbackHandler` among the callbacks of the invocation, or else the
    span processor, from which it takes nudges and stops (a span ends too late to block its
    call). Without both it says so once in the log. It lets everything pass where no run is known,
    and after a fault of ours.

    It goes with other middleware in any order. Listed after one that lets a person edit calls, it
    sees the edited call, and lets it pass where the model's own would have been blocked.

    Args:
        on_stop: ``"end"`` ends the agent with a last message, in which
            :func:`~tidegauge.instrumentation.langchain.stopped_by` finds the stop; ``"raise"``
            raises :class:`~tidegauge.RunStopped`, as the handler does without middleware.
        persist_nudges: keep nudges in the agent's state, as part of its history.
        nudge: makes the message for a decision to nudge; left out, a ``HumanMessage`` of its
            ``advice``.
        stop_message: the text of the last message; left out, what happened in a sentence.
        spans: the processor that reads the spans of another instrumentation of this agent.

    Raises:
        ConfigurationError: ``on_stop`` is something else.

    >>> from langchain.agents import create_agent
    >>> from langchain_core.language_models import FakeListChatModel
    >>> from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
    >>> model = FakeListChatModel(responses=["the door is open"])
    >>> agent = create_agent(model, middleware=[TidegaugeMiddleware()])
    >>> config = {"callbacks": [TidegaugeCallbackHandler(agent="porter")]}
    >>> agent.invoke({"messages": ["open the door"]}, config=config)["messages"][-1].content
    'the door is open'
    """

    def __init__(
        self,
        *,
        on_stop: Literal["end", "raise"] = "end",
        persist_nudges: bool = False,
        nudge: Callable[[Decision], AnyMessage] | None = None,
        stop_message: Callable[[RunStopped], str] | None = None,
        spans: TidegaugeSpanProcessor | None = None,
    ) -> None:
        super().__init__()
        if on_stop not in ("end", "raise"):
            raise ConfigurationError(f"on_stop={on_stop!r} is unknown; use 'end' or 'raise'")
        self._graceful = on_stop == "end"
        self._persist_nudges = persist_nudges
        self._nudge = nudge
        self._stop_message = stop_message
        self._spans = spans
        self._warned = False

    @hook_config(can_jump_to=["end"])
    @guarded("langchain.middleware.before_model", default=None, interrupting="skip")
    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Close the last turn; end the agent if the policy stops the run."""
        run = self._find_run()
        if run is None:
            return None
        run.settle(state["messages"])
        stop = run.stop_error()
        if stop is not None:
            return {"messages": [self._last_message(run, stop)], "jump_to": "end"}
        if not self._persist_nudges or unanswered_calls(state["messages"]):
            return None
        nudge = run.take_nudge()
        return {"messages": [self._nudge_message(nudge)]} if nudge is not None else None

    @hook_config(can_jump_to=["end"])
    async def abefore_model(
        self, state: AgentState[Any], runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """As :meth:`before_model`."""
        return self.before_model(state, runtime)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Show the model a nudge; end the agent if the policy stops the run with what it chose."""
        run = self._find_run()
        try:
            with self._nudged(run, request) as nudged:
                response = handler(nudged)
        except RunStopped as stop:
            return self._cut(run, stop)
        return self._ended(run, response) or response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """As :meth:`wrap_model_call`."""
        run = self._find_run()
        try:
            with self._nudged(run, request) as nudged:
                response = await handler(nudged)
        except RunStopped as stop:
            return self._cut(run, stop)
        return self._ended(run, response) or response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _ToolAnswer]
    ) -> _ToolAnswer:
        """Answer a blocked call without running it."""
        return self._refused(request) or handler(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[_ToolAnswer]],
    ) -> _ToolAnswer:
        """As :meth:`wrap_tool_call`."""
        return self._refused(request) or await handler(request)

    @guarded("langchain.middleware.find_run", default=None, interrupting="skip")
    def _find_run(self) -> GuidedRun | None:
        """The run that this agent's model chooses for; from now on the middleware acts on it."""
        callbacks = get_config().get("callbacks")
        run = find_guided_run(callbacks, self._spans)
        if run is not None:
            run.lead(graceful=self._graceful)
        elif self._spans is None and not self._warned and not has_handler(callbacks):
            self._warned = True
            log(logging.WARNING, _NO_RUN)
        return run

    @contextmanager
    def _nudged(
        self, run: GuidedRun | None, request: ModelRequest[Any]
    ) -> Iterator[ModelRequest[Any]]:
        """The request with the pending nudge; when the call fails, it is pending again."""
        nudge = None if run is None or self._persist_nudges else run.take_nudge()
        if run is None or nudge is None:
            yield request
            return
        try:
            yield self._with_nudge(request, nudge) or request
        except BaseException:
            run.recorded.give_back_nudge(nudge)
            raise

    @guarded("langchain.middleware.nudge", default=None, interrupting="skip")
    def _with_nudge(self, request: ModelRequest[Any], nudge: Decision) -> ModelRequest[Any]:
        return request.override(messages=[*request.messages, self._nudge_message(nudge)])

    @guarded("langchain.middleware.stop", default=None, interrupting="skip")
    def _ended(
        self, run: GuidedRun | None, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | None:
        """The model's answer with its calls refused and the last message, if the run stops."""
        run = run or self._find_run()  # with spans, a run is known when its model has chosen once
        if run is None:
            return None
        run.chosen(response)
        calls = unanswered_calls(response.result)
        if not calls:
            run.leave()
            return None
        stop = run.stop_error()
        if stop is None:
            return None
        run.recorded.refused(len(calls))
        refused = [refused_message(call) for call in calls]
        result = [*response.result, *refused, self._last_message(run, stop)]
        return ModelResponse(result, response.structured_response)

    def _cut(self, run: GuidedRun | None, stop: RunStopped) -> ModelResponse[Any]:
        """The last message, where a stop has cut the model's answer; another stop is raised."""
        if run is None or stop.run != run.recorded.id or not self._graceful:
            raise stop
        return ModelResponse([self._last_message(run, stop)])

    @guarded("langchain.middleware.block", default=None, interrupting="skip")
    def _refused(self, request: ToolCallRequest) -> ToolMessage | None:
        run, call = self._find_run(), request.tool_call
        decision = None if run is None else run.blocked(call["id"] or "")
        if run is None or decision is None or _edited(request):
            return None
        run.recorded.refused()
        return refused_message(call, decision.advice or decision.message)

    def _last_message(self, run: GuidedRun, stop: RunStopped) -> AnyMessage:
        if not self._graceful:
            raise stop
        run.leave()
        return stopped_message(stop, self._own_stop_text(stop) or stop_text(stop))

    def _nudge_message(self, nudge: Decision) -> AnyMessage:
        return self._own_nudge(nudge) or nudge_message(nudge)

    @guarded("langchain.middleware.stop_message", default=None, interrupting="skip")
    def _own_stop_text(self, stop: RunStopped) -> str | None:
        return self._stop_message(stop) if self._stop_message else None

    @guarded("langchain.middleware.nudge_message", default=None, interrupting="skip")
    def _own_nudge(self, nudge: Decision) -> AnyMessage | None:
        return self._nudge(nudge) if self._nudge else None


@guarded("langchain.middleware.edited", default=False, interrupting="skip")
def _edited(request: ToolCallRequest) -> bool:
    """Whether a person or another middleware made of the call what the model did not choose."""
    call = request.tool_call
    for message in reversed(request.state["messages"]):
        for chosen in getattr(message, "tool_calls", ()):
            if chosen["id"] == call["id"]:
                return (chosen["name"], chosen["args"]) != (call["name"], call["args"])
    return False


class GuidedRun:
    """A run that the span processor reports: it can be nudged and stopped.

    Args:
        recorded: has its decisions.
    """

    __slots__ = ("recorded",)

    def __init__(self, recorded: RecordedRun) -> None:
        self.recorded = recorded

    def lead(self, *, graceful: bool) -> None:
        """From now on the middleware answers blocked calls and carries out a stop.

        Args:
            graceful: whether it ends the run without an exception.
        """

    def leave(self) -> None:
        """The agent has ended: another one of the same run may have no middleware."""

    def settle(self, messages: Sequence[Any]) -> None:
        """Report what is known before the model is asked again: the answers in its messages."""

    def chosen(self, response: ModelResponse[Any]) -> None:
        """The node has the model's answer: it is known whether a call is structured output."""

    def stop_error(self) -> RunStopped | None:
        """The deliberate stop, if the policy stops the run; else ``None``."""
        return self.recorded.stop_error(STOP)

    def take_nudge(self) -> Decision | None:
        """The nudge that is pending; see ``RecordedRun.take_nudge``."""
        return self.recorded.take_nudge()

    def blocked(self, call_id: str) -> Decision | None:
        """The decision to block a call; ``None``, the call may run."""
        return None


class HandledRun(GuidedRun):
    """A run that the callback handler reports.

    Args:
        run: the handler's run.
        chain: callback id of the agent's node.
    """

    __slots__ = ("_chain", "_run")

    def __init__(self, run: AgentRun, chain: int) -> None:
        super().__init__(run.recorded)
        self._run = run
        self._chain = chain

    def lead(self, *, graceful: bool) -> None:
        """Keep the handler from raising where we end the run."""
        self._run.blockable, self._run.graceful = True, graceful

    def leave(self) -> None:
        """Leave the run to the handler."""
        self._run.blockable, self._run.graceful = False, self._run.ends_itself

    def settle(self, messages: Sequence[Any]) -> None:
        """Close its last turn; other middleware may have refused calls of it."""
        self._run.next_turn(messages)

    def chosen(self, response: ModelResponse[Any]) -> None:
        """Issue the step, unless the call is structured output."""
        answered = frozenset([call_id for call_id, _ in tool_answers(response.result)])
        accepted = response.structured_response is not None
        self._run.settle(self._chain, NodeAnswer(accepted, answered))

    def stop_error(self) -> RunStopped | None:
        """As above; after a fault of ours, nothing is stopped."""
        return self._run.stop_error()

    def take_nudge(self) -> Decision | None:
        """As above; after a fault of ours, nothing is nudged."""
        return None if self._run.watched_only else super().take_nudge()

    def blocked(self, call_id: str) -> Decision | None:
        """The decision when the calls were chosen."""
        return None if self._run.watched_only else self._run.turns.blocked(call_id)


def find_guided_run(callbacks: Any, spans: TidegaugeSpanProcessor | None) -> GuidedRun | None:
    """The run that an agent's model chooses for.

    Args:
        callbacks: the callback manager of the agent's node.
        spans: reports the run where no handler of ours does.

    Returns:
        ``None`` where none is reported (yet), and inside a tool of an agent, where nothing is
        chosen for that agent's run.
    """
    run = find_agent_run(callbacks)
    if run is not None:
        return HandledRun(run, callbacks.parent_run_id.int)
    if spans is None or has_handler(callbacks):
        return None
    recorded = spans.find_run(_span_of(callbacks))
    return None if recorded is None else GuidedRun(recorded)


def has_handler(callbacks: Any) -> bool:
    """Whether a handler of ours is among the callbacks."""
    return any(isinstance(handler, TidegaugeCallbackHandler) for handler in _handlers(callbacks))


def _span_of(callbacks: Any) -> trace.Span | None:
    """The span of a node, from an instrumentation that does not make its spans current.

    That is OpenInference, whose tracer gives them by the ids of LangChain's callbacks.
    """
    for handler in _handlers(callbacks):
        get_span = getattr(handler, "get_span", None)
        span = get_span(callbacks.parent_run_id) if callable(get_span) else None
        if isinstance(span, trace.Span):
            return span
    return None


def _handlers(callbacks: Any) -> Sequence[Any]:
    return getattr(callbacks, "handlers", None) or ()
