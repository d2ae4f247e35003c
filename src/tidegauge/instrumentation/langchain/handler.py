"""The callback handler for LangChain and LangGraph.

What a step is, and when a run is stopped:

- All tool calls of one model message are one step. It is issued at ``on_llm_end``: the whole turn
  is known there, with its tokens, before any of its tools is run. Tools that run without having
  been chosen by a model are steps of one call, issued at their start.
- Structured output is no step. Whether a call is the output of ``create_agent`` is known when its
  model node ends: a turn with a tool that the run has not used is issued there.
- A stop is raised where the state is clean. What is decided when a turn is issued is raised from
  ``on_llm_end``: the model's message never enters the graph's state, which ends with the answers
  to the turn before. (Raised at a tool's start it would leave calls without answers in a
  checkpoint.) What is decided when a turn is observed is raised when the graph comes back to the
  node that asks the model, else at the model call itself. A lone tool is stopped at its start.
- An agent invoked inside a run is a separate run, child of the run around it, when its metadata
  name another agent (``lc_agent_name``, which ``create_agent(name=...)`` sets, or
  ``tidegauge_agent``), and when LangChain names no parent of it (a chain given separate
  callbacks). Inside a tool it belongs to that call; anywhere else (a node of a graph, a hand-off)
  it is a step of the run around it, named like the agent. Inside a tool, a graph that only its
  chain names is found by what it does: see ``nested_agents``.
- A chain that runs beside others is a run from its first step on, and all of them together are one
  step of the run around them: see ``branches``.
- Any other chain is part of the run, or of the tool, that it is invoked in: inside a tool its model
  calls have spans and their tokens count, its tool calls are not steps.
- Code inside the run (a node, a chain, a task) may report steps itself, with ``@tidegauge.tool`` or
  ``get_current_run()``. A call that the model chose is that call, not another step; a decorated
  function inside a tool is part of that tool.
- With ``steps="nodes"`` the nodes of the outermost graph are the steps, and what is called in them
  is part of them, as in a tool. The nodes of a superstep are one step. It is issued and observed
  when the next one begins, where a stop is raised, too.
- A graph that is interrupted on a thread, and resumed on it, is one run, whichever handler it is
  given (see ``WaitingRuns``). A graph that resumes a run which is not known here is a new run: the
  calls that it runs before its model is asked were chosen in the other one, and are steps there.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar, cast
from uuid import UUID

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import LLMResult
from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge.chanting import SHORTEST_CHANT
from tidegauge.errors import ConfigurationError, RunStopped
from tidegauge.events import ABSENT, CallResult, made
from tidegauge.instrumentation.langchain import (
    agent_run,
    chat_contents,
    control_flow,
    parsing,
    run_starts,
)
from tidegauge.instrumentation.langchain.agent_run import (
    AGENT,
    AgentRun,
    ModelCall,
    Scope,
    Success,
)
from tidegauge.instrumentation.langchain.body_context import (
    BodyContext,
    current_context,
    enter_chain,
    enter_model,
    enter_tool,
    leave,
    leave_model,
)
from tidegauge.instrumentation.langchain.branches import OpenChain
from tidegauge.instrumentation.langchain.callback_runs import CallbackRuns
from tidegauge.instrumentation.langchain.nested_agents import NestedChain
from tidegauge.instrumentation.langchain.parsing import AGENT_NAME
from tidegauge.instrumentation.langchain.run_lookup import (
    RunHolder,
    enclosing_scope,
    find_checkpointer,
)
from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.request_metadata import RunLabels, request_labels
from tidegauge.runs.run_map import MAX_OPEN_IDS, RunScope
from tidegauge.safety.guard import guarded
from tidegauge.tracer import CallFailure
from tidegauge.values.safe_reading import entry, first, is_a, label

P = ParamSpec("P")
R = TypeVar("R")

_new = object.__new__


@guarded("langchain.watch_only", default=None)
def _watch_only(
    handler: TidegaugeCallbackHandler,
    *args: Any,
    run_id: UUID | None = None,
    parent_run_id: UUID | None = None,
    **kwargs: Any,
) -> None:
    if run_id is None and args:  # an event of a graph; elsewhere it may be any value of the user's
        run_id = getattr(args[0], "run_id", None)
    for known in (run_id, parent_run_id):
        scope = handler._runs.scope_of(known)
        if scope is not None:
            scope.run.watched_only = True


def _hook(method: Callable[P, R]) -> Callable[P, R | None]:
    """Let no fault of ours leave a callback; after one, its run is only watched."""
    on_fault = cast("Callable[P, None]", _watch_only)
    return guarded(f"langchain.{method.__name__}", default=None, on_fault=on_fault)(method)


class TidegaugeCallbackHandler(RunHolder):
    """Makes every invocation that it is given to a run, and its turns of tool calls steps.

    One handler may serve any number of invocations, in threads and in tasks at once. Give it to
    the outermost ``invoke`` (``stream``, ``batch``, ``ainvoke``, ...): chains inside inherit it.
    When the policy stops the run, the call that it was given to raises
    :class:`~tidegauge.RunStopped`; under LangGraph in a form that passes through tool nodes that
    handle errors.

    The metadata of a ``RunnableConfig`` override what is given here, for that invocation:
    ``tidegauge_agent``, ``tidegauge_task``, ``tidegauge_task_group``, ``tidegauge_t_max`` and
    ``tidegauge_memory``. The task is the first human message, unless it is given; the
    conversation is the graph's ``thread_id``.

    Args:
        agent: name of the agent; left out, the name given to ``create_agent``, else that of the
            root chain.
        task_group: family of tasks whose runs are compared.
        t_max: turns within which a solved task counts towards AUV.
        model: name of the model that decides.
        memory: arm of a memory experiment, such as ``"on"`` and ``"off"``.
        success: takes the root chain's output and says whether the task was solved; left out, that
            is not known, and the run counts in no success rate. A mapping has one such function
            for each agent, by name, also for agents inside. What it gives is taken by its
            truth, as far as no ``__bool__`` or ``__len__`` written in Python has to be called.
        on_stop: ``"raise"`` raises :class:`~tidegauge.RunStopped`, unless the middleware ends the
            agent; ``"end"`` never raises: the graph ends by the middleware, by
            :func:`~tidegauge.instrumentation.langchain.stop_hook`, or by an edge that you add.
        steps: ``"calls"``: what the model chooses, and tools that run without having been chosen.
            ``"nodes"``: the nodes of the outermost graph, and the tasks of the functional API, by
            their names; the result is the update of the state, or what the task returns. For
            workflows without tool calls.
        node_spans: whether the nodes of graphs have spans, between that of the run and those of the
            model calls and tools in them. They are no steps, and cost about as much as those.
        idle_seconds: a run whose model is not called for so long, including waiting for a
            person, is ended as unknown. ``configure(idle_seconds=...)`` ends its record, too: the
            shorter of the two times applies.

    Raises:
        ConfigurationError: ``t_max`` is below 1, ``idle_seconds`` not above 0, or ``on_stop`` or
            ``steps`` is something else.

    >>> from langchain_core.runnables import RunnableLambda
    >>> handler = TidegaugeCallbackHandler(agent="echo", success=bool)
    >>> RunnableLambda(lambda text: text).invoke("hello", config={"callbacks": [handler]})
    'hello'
    """

    raise_error = True  # only the deliberate stop is raised (see _hook)
    run_inline = True  # in the order of the events, with no thread for each of them

    def __init__(
        self,
        *,
        agent: str | None = None,
        task_group: str | None = None,
        t_max: int | None = None,
        model: str | None = None,
        memory: str | None = None,
        success: Success | Mapping[str, Success] | None = None,
        on_stop: Literal["raise", "end"] = "raise",
        steps: Literal["calls", "nodes"] = "calls",
        node_spans: bool = False,
        idle_seconds: float = 3_600.0,
    ) -> None:
        if t_max is not None and t_max < 1:
            raise ConfigurationError(f"t_max={t_max} is out of range; use 1 or more")
        if not idle_seconds > 0:
            raise ConfigurationError(
                f"idle_seconds={idle_seconds} is out of range; use a number above 0"
            )
        if on_stop not in ("raise", "end"):
            raise ConfigurationError(f"on_stop={on_stop!r} is unknown; use 'raise' or 'end'")
        if steps not in ("calls", "nodes"):
            raise ConfigurationError(f"steps={steps!r} is unknown; use 'calls' or 'nodes'")
        by_agent = success if isinstance(success, Mapping) else {}
        ends_itself = on_stop == "end"
        super().__init__(
            CallbackRuns(idle_seconds=idle_seconds, success=by_agent, ends_itself=ends_itself)
        )
        self._labels = RunLabels(agent, None, task_group, t_max, memory)
        self._model = model
        self._of_root = None if isinstance(success, Mapping) else success
        self._node_steps = steps == "nodes"
        self._node_spans = node_spans

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
        """A root chain opens a run or resumes one; a chain inside belongs to the run around it.

        The node that asks the model is where a stop is raised that was decided since the last turn.
        """
        runs, given = self._runs, metadata if type(metadata) is dict else {}
        scope: Scope | None = None
        if parent_run_id is not None:
            if runs.postponed and runs.is_postponed(parent_run_id):
                runs.name_postponed(parent_run_id, given)
            scope = runs.scopes.get(parent_run_id.int)
        # One look-up, nearly always. Where a tool runs, a branch, or code that reports its calls,
        # what begins may be in that, though LangChain names the chain around it.
        if scope is None or (run := scope.run).tools or run.branch or run.shared is not None:
            scope = self._scope_of(parent_run_id)
        if type(scope) is not OpenChain:
            self._start_elsewhere(scope, run_id, parent_run_id, inputs, given=given, options=kwargs)
            return
        run, tags = scope.run, kwargs.get("tags")
        if scope.stop is not None:
            _refuse_again(scope, tags)
        if run.choices:
            run.settle_piped(scope.key, kwargs.get("name"))
            run = scope.run  # a branch, maybe, which has begun with the calls
        if run.node_steps and self._begin_node(scope, run_id, inputs, given, kwargs):
            return
        chain = _new(OpenChain)
        chain.key = key = run_id.int
        try:
            chain.begin(scope, kwargs.get("name"), inputs, given, tags=tags)
            inherited = (
                given.get(AGENT_NAME) is run.agent_name and given.get(AGENT) is run.agent_label
            )
            if not (inherited or run.is_same_agent(given)):
                self._start_agent(chain, scope)
                return
            if run.waiting or run.fan_outs or chain._attempts is not None:
                run = self._resume_chain(chain)
            node = given.get("langgraph_node")
            if node is not None and (node if type(node) is str else label(node)) in run.asking:
                turns = run.turns
                # Neither in a chain inside the node nor in an edge that leaves it: what its model
                # has just answered may end the run, and a stop must not cost that answer.
                if turns._said:
                    if parsing.node_key(given, tags, scope.key) is not None:
                        turns.next_turn()
                elif turns._open.turns or turns._loose is not None:
                    turns.next_turn()
                stops = run.recorded.decision.action == "stop"
                if stops and parsing.node_key(given, tags, scope.key) is not None:
                    # Raised here, and not at the model call, a stop leaves no callback of that
                    # call half done: the async manager has made coroutines for the other handlers
                    # then, and would never await them (callbacks/manager.py, langchain-core 1.8.3).
                    run.enforce()
            if run.span is not None:
                context = current_context.get()
                if type(context) is not BodyContext or context.span is not run.span:
                    enter_chain(run.span)  # else inherited, as nearly always
                if run.node_spans:
                    self._start_node(chain, scope, tags)
            run.open_ids[key] = None
            runs.scopes[key] = chain
            if not run.held or len(run.open_ids) > MAX_OPEN_IDS:
                runs.trim(key, run)
        except BaseException:
            chain.end()
            raise

    def _start_elsewhere(
        self,
        scope: Scope | None,
        run_id: UUID,
        parent_run_id: UUID | None,
        inputs: object,
        *,
        given: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        """A chain begins outside of all runs, or inside a tool."""
        runs, name, tags = self._runs, options.get("name"), options.get("tags")
        if getattr(scope, "stop", None) is not None:
            _refuse_again(cast("NestedChain", scope), tags)
        if scope is None:
            # A handler that was given twice is called for the root twice, for what is inside once.
            outermost = parent_run_id is None or parent_run_id.int in runs.inherited
            if outermost and not runs.is_postponed(run_id) and runs.scope_of(run_id) is None:
                around = enclosing_scope()
                event = run_starts.root_run(
                    inputs, given, labels=self._labels, name=name, model=self._model, around=around
                )
                request = (
                    request_labels(given, tags) if around is None else around.run.recorded.request
                )
                runs.open_run(
                    OpenChain.make(run_id, name, inputs, given),
                    event,
                    around,
                    success=runs.success.get(event.agent, self._of_root),
                    request=request,
                    node_steps=self._node_steps,
                    node_spans=self._node_spans,
                )
        elif scope.run.is_same_agent(given):
            runs.enter(run_id.int, NestedChain.make(run_id, name, inputs, given, scope, tags=tags))
        else:
            around = RunScope(scope.run, scope.tool)
            event = run_starts.child_run(inputs, given, name=name, around=around)
            runs.open_child(OpenChain.make(run_id, name, inputs, given), event, around)

    @_hook
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A root chain ends its run, unless its graph was interrupted."""
        runs, key = self._runs, run_id.int
        if runs.postponed:
            runs.open_postponed(run_id)
        chain = runs.scopes.pop(key, None)
        if chain is None:
            return
        run = chain.run
        run.open_ids.pop(key, None)
        if type(chain) is not OpenChain:
            call = run.tools.pop(key, None)
            if call is not None:
                run.end_node(call, parsing.node_result(outputs))
            return
        try:
            if run.choices or run.last_chooser == key:
                run.leave_node(key, outputs)
        finally:
            if chain.node is not None:
                _end_node_span(chain.node, None)
            kind = type(outputs)
            one = kind is dict or kind is str or (kind is list and len(outputs) < 2)
            if not one and control_flow.fans_out(outputs):
                chain.fans_out()
            if chain.fan_out is not None:
                chain.end_fan_out()
            if chain.own is None:
                chain.end(succeeded=True)
            else:
                chain.end_attempt()
                self._end_root(chain, outputs)

    def _end_root(self, chain: OpenChain, outputs: object) -> None:
        run = chain.own
        if run is not None:
            if run.span is not None:
                leave(run.span)
            if run.interrupted and run.key is not None:
                self._runs.suspend(run)
            else:
                if not run.recorded.decision.stop:  # else the answers are ours
                    run.next_turn(entry(outputs, "messages"), ends=True)
                self._runs.end_run(run, success=run.succeeded(outputs))
                run.answer(parsing.agent_result(outputs))
        chain.end()

    @_hook
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A root chain ends its run, with the error unless that is control flow."""
        self._note_stop(error, kwargs.get("parent_run_id"))
        chain = self._runs.leave_chain(run_id)
        if not isinstance(chain, OpenChain):
            if chain is not None:
                self._end_node(chain.run, run_id, error)
            return
        run, interrupt = chain.own, control_flow.is_interrupt(error)
        if chain.node is not None:
            _end_node_span(chain.node, error if control_flow.is_failure(error) else None)
        if interrupt:
            chain.interrupt()
        chain.run.settle(run_id.int)
        if chain.fan_out is not None:
            chain.end_fan_out()
        again = control_flow.may_pass(error)
        chain.end_attempt(failed=again, interrupted=interrupt)
        if run is not None:
            if run.span is not None:
                leave(run.span)
            if interrupt and run.key is not None:
                self._runs.suspend(run)
            else:
                end = partial(self._runs.end_run, run, **control_flow.ending(error))
                if not (again and chain.fail(end)):
                    end()
                self._answer_error(run, error)
        chain.end()

    def _answer_error(self, run: AgentRun, error: BaseException) -> None:
        if control_flow.is_failure(error):
            run.answer(parsing.failed_result(error), raised=True)
        elif not control_flow.is_interrupt(error):
            command = control_flow.hand_off(error)
            result = None if command is None else parsing.hand_off_result(command, run.given)
            run.answer(result or CallResult())

    @_hook
    def on_interrupt(self, event: Any) -> None:
        """A graph is paused for a person, by a node or by ``interrupt_before``."""
        scope = self._runs.scope_of(event.run_id)
        if scope is not None and scope.tool is None:
            scope.run.interrupted = True
            if scope.run.root == event.run_id.int:
                scope.run.checkpoint = label(event.checkpoint_id)

    @_hook
    def on_resume(self, event: Any) -> None:
        """A graph continues from a checkpoint: the run that was paused there continues."""
        self._runs.resume_postponed(event.run_id, label(event.checkpoint_id))
        if self._runs.is_postponed(event.run_id):
            return
        scope = self._runs.scope_of(event.run_id)
        if scope is None or scope.run.root != event.run_id.int:
            return
        if not scope.run.resumed:  # no run that was paused is known
            scope.run.continues = scope.run.recorded.steps == 0

    @_hook
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """The model is about to choose: the last turn is closed, and a stop is raised."""
        shown = messages[0] if type(messages) is list and messages else first(messages)
        self._start_model(shown, run_id, kwargs)

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
        self._start_model([], run_id, kwargs, text=first(prompts) or "")

    @_hook
    def on_llm_new_token(
        self, token: object, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """The model answers: what runs between two tokens may be the consumer's code.

        An answer that chants is read here, and cut by a stop.
        """
        self._read(run_id, parent_run_id, token, "tokens")

    @_hook
    def on_stream_event(
        self, event: object, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """As :meth:`on_llm_new_token`, for ``stream_events(version="v3")``."""
        self._read(run_id, parent_run_id, entry(event, "delta"), "events")

    @_hook
    def on_llm_end(
        self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """The model has chosen: its tool calls are a step, issued before they run."""
        scope = None if parent_run_id is None else self._runs.scopes.get(parent_run_id.int)
        if scope is None or (run := scope.run).tools or run.branch or run.shared is not None:
            scope = self._scope_of(parent_run_id)
            if scope is None:
                return
            run = scope.run
        call = run.models.pop(run_id.int, None) or run.leave_model(run_id.int)
        if call is None:
            return
        if call.context is not None:
            leave_model(call.context)
        counts = run.recorded.counts_usage
        answer = parsing.model_answer(response, described=run.traced or counts)
        if run.traced:
            said = None
            if run.shows_contents:
                said = chat_contents.answer_of(response, answer.response.finish_reasons)
            run.recorded.spans.end_chat(call.span, answer.response, answer=said)
        if answer.tokens is None:
            run.recorded.without_usage()
        content = answer.content
        if call.chanting is None and (
            type(content) is not str or len(content) >= SHORTEST_CHANT or run.recorded.chanting
        ):
            run.recorded.read_answer(chat_contents.text_of(content))
        chose = call.chooses and answer.calls
        if chose and isinstance(scope, NestedChain):
            scope = self._runs.open_agent(scope)
            run = scope.run
        if counts:
            run.recorded.spend(answer.response.usage())
        if chose and scope.tool is None:
            key = 0 if parent_run_id is None else parent_run_id.int
            if type(scope) is not OpenChain:
                run.choose(answer, call, key)
                return
            # Nothing runs beside it, as in nearly all agents: it is in no branch.
            around = scope.parent
            alone = not run.branch and (
                scope.own is not None
                or (
                    around is not None and around.own is run and not (around.parallel or scope.sent)
                )
            )
            chooser = partial(self._runs.chooser, scope)
            run.choose(answer, call, key, scope.memory, chooser, alone=alone)
            return
        if scope.tool is None and call.chooses and not answer.calls:
            shown, messages = parsing.last_shown(call.messages)
            text = chat_contents.text_of(content)
            run.turns.say(text, shown=shown, messages=messages, tokens=answer.tokens)
        else:
            run.turns.add_tokens(answer.tokens, scope.tool)
        if run.recorded.chanting:
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
        scope = self._runs.scope_of(parent_run_id)
        call = None if scope is None else scope.run.leave_model(run_id.int)
        if scope is not None and call is not None:
            if call.context is not None:
                leave_model(call.context)
            failure = error if control_flow.is_failure(error) else None
            scope.run.recorded.spans.end_chat(call.span, error=failure)

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
        """A tool is about to run: a call of the turn that was issued, or a step by itself."""
        runs = self._runs
        scope = None if parent_run_id is None else runs.scopes.get(parent_run_id.int)
        if scope is None or (run := scope.run).tools or run.branch or run.shared is not None:
            scope = self._scope_of(parent_run_id)
        if scope is None:
            return
        if type(scope) is not OpenChain:
            scope = self._start_call_elsewhere(scope, kwargs)
            if scope.tool is not None:
                runs.enter(run_id.int, RunScope(scope.run, scope.tool))
                return
        elif scope.stop is not None:
            _refuse_again(scope, kwargs.get("tags"))
        run = scope.run
        if run.recorded.decision.action == "stop":
            run.enforce(1)
        described: Mapping[str, Any] = serialized if type(serialized) is dict else {}
        name, call_id = described.get("name"), kwargs.get("tool_call_id")
        if type(name) is not str or not name:
            name = label(entry(serialized, "name")) or label(kwargs.get("name")) or "tool"
        if call_id is not None and type(call_id) is not str:
            call_id = label(call_id)
        arguments = input_str if inputs is None else inputs
        if name not in run.used:
            run.use(name)
        if run.choices:
            run.settle_begun(name, call_id)
        if run.branch:
            run = run.run_of(name, arguments, call_id)
        own = call_id is None and isinstance(scope, OpenChain) and scope.branches(calls=True)
        if own and not run.turns.awaits(name, arguments, call_id):
            runs.open_branches(cast("OpenChain", scope), calls=True)
            run = scope.run
        if run.recorded.decision.action == "stop":
            run.enforce(1)
        call = None if call_id is None else run.turns.begin_chosen(call_id)
        if call is None:
            call = run.begin(name, arguments, call_id, getattr(scope, "attempts", None))
        elif call.arguments is ABSENT:  # it was chosen in another process
            call.arguments = arguments
        if run.recorded.decision.action == "stop":
            run.enforce(1)
        if run.traced:
            decision = call.turn.decision
            call.span = run.recorded.spans.start_tool(
                name,
                call_id,
                None if decision is None else decision.signals,
                call.arguments,
                described.get("description"),
                inside=scope.tool_span if run.node_spans and run is scope.run else None,
            )
            if run.span is not None and call.span is not INVALID_SPAN:
                enter_tool(call.span)
        key = run_id.int
        run.tools[key] = call
        run.open_ids[key] = None
        runs.scopes[key] = RunScope(run, call)
        if not run.held or len(run.open_ids) > MAX_OPEN_IDS:
            runs.trim(key, run)

    def _start_call_elsewhere(self, scope: Scope, options: Mapping[str, Any]) -> Scope:
        """A tool begins inside a tool, maybe as the call of an agent there. Returns where."""
        if getattr(scope, "stop", None) is not None:
            _refuse_again(cast("NestedChain", scope), options.get("tags"))
        if isinstance(scope, NestedChain) and label(options.get("tool_call_id")) is not None:
            return self._runs.open_agent(scope)
        return scope

    @_hook
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool has ended; the last one of its turn completes the result."""
        key = run_id.int
        scope = self._runs.scopes.pop(key, None)
        if scope is None:
            return
        run = scope.run
        run.open_ids.pop(key, None)
        call = run.tools.pop(key, None)
        if call is None:
            return
        if run.span is not None:
            leave(call.span)
        result = parsing.tool_result(output, call.id)
        if not run.traced:
            run.turns.end(call, result)
            return
        ended = time.time_ns()
        run.recorded.spans.end_tool(
            call.span,
            chat_contents.shown_result(result.outcome) if run.shows_contents else ABSENT,
            CallFailure.of(result) if result.error else None,
            ended,
            signals=run.turns.end(call, result).signals,
            hand_off=None if type(output) is ToolMessage else parsing.hand_off_target(output),
        )

    @_hook
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool raised: a failed result, unless it was control flow."""
        self._note_stop(error, kwargs.get("parent_run_id"))
        scope = self._runs.leave(run_id.int)
        call = None if scope is None else scope.run.tools.pop(run_id.int, None)
        if scope is None or call is None:
            return
        run = scope.run
        if run.span is not None:
            leave(call.span)
        if control_flow.is_interrupt(error):
            run.interrupted = True  # the call is begun again when the graph is resumed
            run.recorded.spans.end_tool(call.span)
        elif control_flow.is_failure(error):
            ended = time.time_ns()
            decision = run.turns.end(call, parsing.failed_result(error), raised=True)
            run.recorded.spans.end_tool(
                call.span, error=error, ended=ended, signals=decision.signals
            )
        else:
            run.recorded.spans.end_tool(call.span)
            run.turns.end(call, CallResult())

    @_hook
    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Documents are looked for: a span in the run or tool, and no step."""
        scope = self._scope_of(parent_run_id)
        if scope is None or not scope.run.traced:
            return
        given = metadata if type(metadata) is dict else {}
        run, known = scope.run, parsing.retrieval(given, kwargs.get("name"))
        span = run.recorded.spans.start_retrieval(query=query, inside=scope.tool_span, **known)
        context = None if run.span is None or span is INVALID_SPAN else enter_model(span)
        run.models[run_id.int] = ModelCall(span, False, context=context)
        if context is not None:
            context.over = False

    @_hook
    def on_retriever_end(
        self, documents: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """The documents were found."""
        self._end_retrieval(run_id, parent_run_id, documents=parsing.retrieved(documents))

    @_hook
    def on_retriever_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """The documents could not be looked for."""
        self._end_retrieval(run_id, parent_run_id, error=error)

    def _end_retrieval(self, run_id: UUID, parent_run_id: UUID | None, **ending: Any) -> None:
        scope = self._runs.scope_of(parent_run_id)
        call = None if scope is None else scope.run.leave_model(run_id.int)
        if scope is not None and call is not None:
            if call.context is not None:
                leave_model(call.context)
            scope.run.recorded.spans.end_retrieval(call.span, **ending)

    def _note_stop(self, error: BaseException, parent_run_id: UUID | None) -> None:
        """What ``with_retry`` invoked was stopped, maybe: it is not tried again."""
        if is_a(error, RunStopped):
            scope = None if parent_run_id is None else self._runs.find(parent_run_id.int)
            if isinstance(scope, OpenChain | NestedChain):
                scope.stop = cast("RunStopped", error)

    def _scope_of(self, run_id: UUID | None) -> Scope | None:
        """Where something begins: in a chain or tool, or in a decorated tool inside it.

        A tool may pass on the config that it was given, which is the one around it: then LangChain
        reports the chain around the tool, and its context says that the caller is in the tool.
        """
        scope = self._runs.scope_of(run_id)
        if scope is None or scope.tool is not None:
            return scope
        run = scope.run
        if (run.tools or run.branch) and run.is_calling():
            caller = enclosing_scope()
            if caller is not None and caller.tool is not None and run.is_part_of(caller.run):
                return caller
        call = run.own_call() if run.shared else None
        return scope if call is None else RunScope(run, call)

    def _end_node(self, run: AgentRun, run_id: UUID, error: BaseException) -> None:
        call = run.tools.pop(run_id.int, None)
        if call is None:
            return
        if control_flow.is_interrupt(error):
            run.interrupted = True
            run.recorded.spans.end_tool(call.span)
            run.turns.withdraw(call)
        elif control_flow.is_failure(error):
            run.end_node(call, parsing.failed_result(error))
        else:
            command = control_flow.hand_off(error)
            run.end_node(call, CallResult() if command is None else parsing.node_result(command))

    def _start_model(
        self,
        messages: object,
        run_id: UUID,
        options: Mapping[str, Any],
        *,
        text: str | None = None,
    ) -> None:
        runs, parent = self._runs, options.get("parent_run_id")
        scope = None if parent is None else runs.scopes.get(parent.int)
        if scope is None or (run := scope.run).tools or run.branch or run.shared is not None:
            scope = self._scope_of(parent)
            if scope is None:
                return
        parameters, form = options.get("invocation_params"), options.get("options")
        if isinstance(scope, NestedChain) and parsing.offers_tools(parameters, form):
            scope = runs.open_agent(scope)
        run, tool, chain = scope.run, scope.tool, scope if type(scope) is OpenChain else None
        if run.branch and chain is not None:
            run = chain.chooser()
        metadata = options.get("metadata")
        if type(metadata) is not dict:
            metadata = {}
        runs.seen(run)
        if tool is None:
            if run.checkpointer is None and run.key is not None and not run.unique:
                _find_out_checkpointer(run)
            if scope.run.choices:
                scope.run.settle_answered(messages)
            run.take_turn(messages, metadata)
        span: Span = INVALID_SPAN
        if run.traced:
            request = parsing.model_request(metadata, parameters, chats=text is None)
            prompt = None
            if run.shows_contents:
                prompt = (
                    chat_contents.prompt_of(messages, parameters)
                    if text is None
                    else chat_contents.text_prompt_of(text)
                )
            inside = scope.tool_span if tool is not None or run.node_spans else None
            span = run.recorded.spans.start_chat(request, prompt, inside=inside)
        chooses = tool is None or isinstance(scope, NestedChain)
        if type(form) is not dict or "ls_structured_output_format" in form:
            chooses = chooses and not parsing.structured_output(form)
        node = metadata.get("langgraph_checkpoint_ns")
        if node is not None and type(node) is not str:
            node = label(node)
        answering = metadata.get("langgraph_node") == agent_run.ANSWERING
        name = None if chain is None else chain.name
        piped = (name if type(name) is str else label(name)) == agent_run.SEQUENCE
        # Several prompts of one call begin one after the other, before the model runs.
        alone = (
            run.span is not None and span is not INVALID_SPAN and options.get("batch_size", 1) == 1
        )
        context = enter_model(span) if alone else None
        shown = messages if text is None else text
        fields = (span, chooses, node, answering, piped, context, shown, None, "")
        run.models[run_id.int] = made(ModelCall, fields)
        if context is not None:
            context.over = False

    def _read(
        self, run_id: UUID, parent_run_id: UUID | None, content: object, streams: str
    ) -> None:
        scope = self._runs.scope_of(parent_run_id)
        call = None if scope is None else scope.run.models.get(run_id.int)
        if scope is None or call is None:
            return
        context = call.context
        if context is not None and not context.over:
            leave_model(context)
            scope.run.recorded.spans.first_chunk(call.span)
        text = content if type(content) is str else chat_contents.text_of(content)
        if text:
            scope.run.read(call, run_id.int, text, streams)

    def _begin_node(
        self,
        parent: OpenChain,
        run_id: UUID,
        inputs: object,
        metadata: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> bool:
        """A chain begins in a run whose steps are nodes. Returns whether it is one."""
        run = parent.run
        if not run.is_same_agent(metadata):
            return False
        node = parsing.node_key(metadata, options.get("tags"), parent.key)
        if node is None:
            return False
        call = run.begin_node(label(options.get("name")) or "node", node, inputs)
        run.tools[run_id.int] = call
        if run.span is not None:
            enter_chain(run.span)
        self._runs.enter(run_id.int, RunScope(run, call))
        return True

    def _start_node(self, chain: OpenChain, parent: OpenChain, tags: object) -> None:
        """A chain begins in a run whose nodes have spans."""
        if parsing.node_key(chain.metadata, tags, parent.key) is not None:
            recorded = chain.run.recorded
            span = recorded.spans.start_node(label(chain.name) or "node", parent.tool_span)
            if span is not INVALID_SPAN:
                chain.node = recorded, span
                enter_tool(span)

    def _resume_chain(self, chain: OpenChain) -> AgentRun:
        """A chain begins that goes on with what another one began. Returns its run."""
        run: AgentRun = chain.run
        if run.waiting:
            self._runs.resume_branch(chain)
        if chain.is_continued():
            self._runs.open_branch(chain, chain)
        if run.fan_outs:
            chain.resume_fan_out()
        return cast("AgentRun", chain.run)

    def _start_agent(self, chain: OpenChain, parent: OpenChain) -> None:
        """A chain begins that is another agent inside a run."""
        branches = chain.branches(agent=True)
        direct = branches.pop() if branches and branches[-1].task == chain.task else None
        for branch in branches:
            self._runs.open_branch(branch, chain)
        around = RunScope(parent.run)
        event = run_starts.child_run(chain.inputs, chain.metadata, name=chain.name, around=around)
        self._runs.open_child(chain, event, around, branch=direct)


def _end_node_span(node: tuple[RecordedRun, Span], error: BaseException | None) -> None:
    recorded, span = node
    leave(span)
    recorded.spans.end_node(span, error)


def _refuse_again(chain: OpenChain | NestedChain, tags: object) -> None:
    """Raise the stop of the attempt before: ``with_retry`` takes it for a failure."""
    if chain.stop is not None and control_flow.is_again(tags) and not chain.run.watched_only:
        control_flow.enforce_again(chain.stop)


def _find_out_checkpointer(run: AgentRun) -> None:
    """Inside a node of a run's graph: what was paused on its thread is not resumed any more."""
    checkpointer = find_checkpointer()
    if checkpointer is not None:
        with contextlib.suppress(TypeError):  # its class has no weak references
            run.checkpointer = weakref.ref(checkpointer)
        run.recorded.waiting.give_up(run.key, checkpointer)
