"""The run that the middleware steps in for, whoever reports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry import trace

from tidegauge.errors import RunStopped
from tidegauge.events import Decision
from tidegauge.instrumentation.langchain.agent_run import AgentRun
from tidegauge.instrumentation.langchain.control_flow import STOP
from tidegauge.instrumentation.langchain.handler import TidegaugeCallbackHandler
from tidegauge.instrumentation.langchain.run_lookup import find_agent_run
from tidegauge.instrumentation.recorder import RecordedRun
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor

__all__ = ["HandledRun", "SteeredRun", "find_steered_run", "has_handler"]


class SteeredRun:
    """A run that the span processor reports: the model can be told, and the run be stopped.

    Args:
        recorded: has its decisions.
    """

    __slots__ = ("recorded",)

    def __init__(self, recorded: RecordedRun) -> None:
        self.recorded = recorded

    def lead(self, *, graceful: bool) -> None:
        """From now on calls that are blocked are answered, and a stop is ended by the caller.

        Args:
            graceful: whether it is ended without an exception.
        """

    def leave(self) -> None:
        """The agent has come to its end: another one of the same run may have no middleware."""

    def settle(self, messages: Sequence[Any]) -> None:
        """Take in what is known before the model is asked again: the answers in its messages."""

    def stop_error(self) -> RunStopped | None:
        """The deliberate stop, when the run is to stop; else ``None``."""
        return self.recorded.stop_error(STOP)

    def take_nudge(self) -> Decision | None:
        """The nudge that is due; see ``RecordedRun.take_nudge``."""
        return self.recorded.take_nudge()

    def blocked(self, call_id: str) -> Decision | None:
        """Why a call is to be answered and not to be run; ``None``, it is to be run."""
        return None


class HandledRun(SteeredRun):
    """A run that the callback handler reports.

    Args:
        run: it.
    """

    __slots__ = ("_run",)

    def __init__(self, run: AgentRun) -> None:
        super().__init__(run.recorded)
        self._run = run

    def lead(self, *, graceful: bool) -> None:
        """Keep the handler from raising where we end the run."""
        self._run.blockable, self._run.graceful = True, graceful

    def leave(self) -> None:
        """Leave the run to the handler."""
        self._run.blockable = self._run.graceful = False

    def settle(self, messages: Sequence[Any]) -> None:
        """Settle its last round, of which calls may have been refused by others."""
        self._run.rounds.turn(messages)

    def stop_error(self) -> RunStopped | None:
        """As above; after a fault of ours, nothing is stopped any more."""
        return self._run.stop_error()

    def take_nudge(self) -> Decision | None:
        """As above; after a fault of ours, nothing is said any more."""
        return None if self._run.watched_only else super().take_nudge()

    def blocked(self, call_id: str) -> Decision | None:
        """As the handler's run was told when the calls were chosen."""
        return None if self._run.watched_only else self._run.rounds.blocked(call_id)


def find_steered_run(callbacks: Any, spans: TidegaugeSpanProcessor | None) -> SteeredRun | None:
    """The run that an agent chooses for.

    Args:
        callbacks: the callback manager of the agent's node.
        spans: reports the run where no handler of ours does.

    Returns:
        ``None`` where nobody reports one (yet), and inside a tool of an agent, where nothing is
        chosen for that agent's run.
    """
    run = find_agent_run(callbacks)
    if run is not None:
        return HandledRun(run)
    if spans is None or has_handler(callbacks):
        return None
    recorded = spans.find_run(_span_of(callbacks))
    return None if recorded is None else SteeredRun(recorded)


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
