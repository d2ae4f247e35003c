"""The callback handler for LangChain and LangGraph.

What a step is, and when a run is stopped:

- All tool calls of one model message are one step. It is issued at ``on_llm_end``: the whole round
  is known there, with its tokens, before any of its tools is run. Tools that run without having
  been chosen by a model are steps of one call, issued at their start.
- A stop is raised where the state is clean. What is decided when a round is issued is raised from
  ``on_llm_end``: the model's message never enters the graph's state, which ends with the answers
  to the round before. (Raised at a tool's start it would leave calls without answers in a
  checkpoint.) What is decided when a round is observed is raised when the graph comes back to the
  node that asks the model, else at the model call itself. A lone tool is stopped at its start.
- An agent invoked inside a tool is a run of its own, child of the run around it, when its metadata
  name another agent (``lc_agent_name``, which ``create_agent(name=...)`` sets, or
  ``tidegauge_agent``). Any other chain inside a tool is part of that tool: its model calls have
  spans and their tokens count, its tool calls are no steps. Agents that are nodes of one graph
  share its run.
- A graph that is interrupted and resumed is two runs, the first of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge._guard import guarded
from tidegauge.errors import ConfigurationError
from tidegauge.events import CallResult
from tidegauge.instrumentation.langchain import control_flow, parsing
from tidegauge.instrumentation.langchain.agent_run import (
    AgentRun,
    ModelCall,
    Scope,
    Success,
    open_child_run,
    open_root_run,
)
from tidegauge.instrumentation.langchain.run_map import RunMap

__all__ = ["TidegaugeCallbackHandler"]

P = ParamSpec("P")
R = TypeVar("R")


@guarded("langchain.watch_only", default=None)
def _watch_only(
    handler: TidegaugeCallbackHandler,
    *args: Any,
    run_id: UUID | None = None,
    parent_run_id: UUID | None = None,
    **kwargs: Any,
) -> None:
    for known in (run_id, parent_run_id):
        scope = handler._runs.find(known)
        if scope is not None:
            scope.run.watched_only = True


def _hook(method: Callable[P, R]) -> Callable[P, R | None]:
    """Let no fault of ours leave a callback; after one, its run is only watched."""
    on_fault = cast("Callable[P, None]", _watch_only)
    return guarded(f"langchain.{method.__name__}", default=None, on_fault=on_fault)(method)


class TidegaugeCallbackHandler(BaseCallbackHandler):
    """Makes every invocation that it is given to a run, and its rounds of tool calls steps.

    One handler may serve any number of invocations, in threads and in tasks at once. Give it to
    the outermost ``invoke`` (``stream``, ``batch``, ``ainvoke``, ...): chains inside inherit it.
    When the policy stops the run, the call that it was given to raises
    :class:`~tidegauge.RunStopped`; under LangGraph in a form that passes through tool nodes that
    handle errors.

    The metadata of a ``RunnableConfig`` override what is given here, for that invocation:
    ``tidegauge_agent``, ``tidegauge_task``, ``tidegauge_task_group``, ``tidegauge_t_max`` and
    ``tidegauge_memory``. The task is the first human message, unless it is told; the
    conversation is the graph's ``thread_id``.

    Args:
        agent: name of the agent; left out, the name given to ``create_agent``, else that of the
            root chain.
        task_group: family of tasks whose runs are compared.
        t_max: turns within which a solved task counts towards AUV.
        model: name of the model that decides.
        memory: arm of a memory experiment, such as ``"on"`` and ``"off"``.
        success: tells from the root chain's output whether the task was solved; left out, nobody
            knows, and the run counts in no success rate.

    Raises:
        ConfigurationError: ``t_max`` is below 1.

    >>> from langchain_core.runnables import RunnableLambda
    >>> handler = TidegaugeCallbackHandler(agent="echo", success=bool)
    >>> RunnableLambda(lambda text: text).invoke("hello", config={"callbacks": [handler]})
    'hello'
    """

    raise_error = True  # the deliberate stop has to get out; nothing else does (see _hook)
    run_inline = True  # in the order of the events, with no thread for each of them

    def __init__(
        self,
        *,
        agent: str | None = None,
        task_group: str | None = None,
        t_max: int | None = None,
        model: str | None = None,
        memory: str | None = None,
        success: Success | None = None,
    ) -> None:
        if t_max is not None and t_max < 1:
            raise ConfigurationError("t_max is to be at least 1")
        self._labels = parsing.RunLabels(agent, None, task_group, t_max, memory)
        self._model = model
        self._success = success
        self._runs = RunMap()

    @_hook
    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A root chain opens a run; a chain inside belongs to the run around it.

        The node that asks the model is where a stop is raised that was decided since the last turn.
        """
        runs = self._runs
        scope = runs.find(parent_run_id)
        if scope is None:
            # A handler that was given twice is told of the root twice, of what is inside once.
            if parent_run_id is None and runs.find(run_id) is None:
                runs.open(
                    open_root_run(
                        run_id,
                        inputs,
                        metadata or {},
                        labels=self._labels,
                        name=kwargs.get("name"),
                        model=self._model,
                        success=self._success,
                    )
                )
        elif scope.tool is None:
            scope.run.enter_node(metadata or {})
            runs.enter(run_id, scope)
        elif parsing.agent_identity(metadata or {}) == scope.run.identity:
            runs.enter(run_id, scope)
        else:
            name = kwargs.get("name")
            runs.open(open_child_run(run_id, inputs, metadata or {}, name=name, around=scope))

    @_hook
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A root chain ends its run."""
        scope = self._runs.leave(run_id)
        if scope is not None and scope.run.root == run_id.int:
            self._end(scope.run, success=scope.run.succeeded(outputs))

    @_hook
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A root chain ends its run, with the error unless that is control flow."""
        scope = self._runs.leave(run_id)
        if scope is None:
            return
        if control_flow.is_interrupt(error):
            scope.run.interrupted = True
        if scope.run.root == run_id.int:
            self._end(scope.run, **control_flow.ending(error))

    @_hook
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """The model is about to choose: the last round is settled, and a stop is raised."""
        self._start_model(messages[0] if messages else [], run_id, kwargs)

    @_hook
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """As :meth:`on_chat_model_start`, for models that complete text."""
        self._start_model([], run_id, kwargs)

    @_hook
    def on_llm_end(
        self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """The model has chosen: its tool calls are a step, issued before they run."""
        scope = self._runs.find(parent_run_id)
        call = None if scope is None else scope.run.models.pop(run_id.int, None)
        if scope is None or call is None:
            return
        run = scope.run
        answer = parsing.model_answer(response)
        if run.traced:
            run.recorded.end_chat(
                call.span,
                input_tokens=answer.input_tokens,
                output_tokens=answer.output_tokens,
                finish_reasons=answer.finish_reasons,
            )
        run.rounds.add_tokens(answer.tokens, scope.tool)
        if call.chooses and answer.calls:
            run.rounds.issue(answer.calls)
            run.enforce()

    @_hook
    def on_llm_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """The model call failed, or was stopped."""
        scope = self._runs.find(parent_run_id)
        call = None if scope is None else scope.run.models.pop(run_id.int, None)
        if scope is not None and call is not None:
            failure = error if control_flow.is_failure(error) else None
            scope.run.recorded.end_chat(call.span, error=failure)

    @_hook
    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool is about to run: a call of the round that was issued, or a step of its own."""
        scope = self._runs.find(parent_run_id)
        if scope is None:
            return
        if scope.tool is not None:
            self._runs.enter(run_id, scope)
            return
        run = scope.run
        run.enforce()
        name = (serialized or {}).get("name") or kwargs.get("name") or "tool"
        arguments = input_str if inputs is None else inputs
        call_id = kwargs.get("tool_call_id")
        call = run.rounds.begin(name, arguments, call_id)
        run.enforce()
        if run.traced:
            call.span = run.recorded.start_tool(
                name, call_id=call_id, signals=call.round.signals, arguments=call.arguments
            )
        run.tools[run_id.int] = call
        self._runs.enter(run_id, Scope(run, call))

    @_hook
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool has ended; the last one of its round makes the outcome known."""
        scope = self._runs.leave(run_id)
        call = None if scope is None else scope.run.tools.pop(run_id.int, None)
        if scope is None or call is None:
            return
        run, result = scope.run, parsing.tool_result(output)
        if run.traced:
            told = "tool_error" if result.error else None
            run.recorded.end_tool(call.span, result=result.outcome, error=told)
        run.rounds.end(call, result)

    @_hook
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool raised: a failed outcome, unless it was control flow."""
        scope = self._runs.leave(run_id)
        call = None if scope is None else scope.run.tools.pop(run_id.int, None)
        if scope is None or call is None:
            return
        run = scope.run
        if control_flow.is_interrupt(error):
            run.interrupted = True
        if control_flow.is_failure(error):
            run.recorded.end_tool(call.span, error=error)
            run.rounds.end(call, parsing.failed_result(error), raised=True)
        else:
            run.recorded.end_tool(call.span)
            run.rounds.end(call, CallResult())

    def _start_model(
        self, messages: list[BaseMessage], run_id: UUID, told: Mapping[str, Any]
    ) -> None:
        scope = self._runs.find(told.get("parent_run_id"))
        if scope is None:
            return
        run, metadata = scope.run, told.get("metadata") or {}
        self._runs.seen(run)
        if scope.tool is None:
            run.take_turn(messages, metadata)
        span: Span = INVALID_SPAN
        if run.traced:
            parameters = told.get("invocation_params") or {}
            model, provider = parsing.model_and_provider(metadata, parameters)
            span = run.recorded.start_chat(model=model, provider=provider, inside=scope.tool_span)
        chooses = scope.tool is None and not parsing.structured_output(told.get("options"))
        run.models[run_id.int] = ModelCall(span, chooses)

    def _end(self, run: AgentRun, **told: Any) -> None:
        self._runs.close(run)
        run.end(**told)
