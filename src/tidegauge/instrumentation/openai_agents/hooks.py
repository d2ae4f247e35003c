"""The run hooks for the OpenAI Agents SDK: they act on what the policy decides.

- *stop*: :class:`~tidegauge.instrumentation.openai_agents.AgentRunStopped`, a
  :class:`~tidegauge.RunStopped`, leaves ``Runner.run`` where the state is clean: after the model's
  answer, before any of its tools runs and before the answer is saved; or before the model is asked
  again.
- *nudge*: :meth:`TidegaugeRunHooks.nudge` adds the advice to what the model is asked, once.
- *block*: :attr:`TidegaugeRunHooks.block`, a guardrail of tools, answers instead.

The hooks also report what the model answered and what tools returned, for models that open no spans
and for traces without contents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast

from agents import (
    Agent,
    AgentHookContext,
    FunctionTool,
    ModelResponse,
    RunContextWrapper,
    RunHooks,
    Tool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    TResponseInputItem,
)
from agents.run_config import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from tidegauge.events import ABSENT
from tidegauge.instrumentation.openai_agents import item_contents, parsing
from tidegauge.instrumentation.openai_agents.agent_run import Scope
from tidegauge.instrumentation.openai_agents.tracing_processor import TidegaugeTracingProcessor
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.safety.guard import guarded, log

P = ParamSpec("P")
R = TypeVar("R")
Success: TypeAlias = Callable[[Any], bool | None]

_NO_GUARD: Final = (
    "a rule with the action block cannot block calls of tools without the guardrail; "
    "add hooks.block to the tool_input_guardrails of every tool"
)
_NUDGE_ROLE: Final = "user"  # every provider takes it anywhere in a conversation


@guarded("openai_agents.watch_only", default=None)
def _watch_only(hooks: TidegaugeRunHooks, *args: Any) -> None:
    scope = hooks._processor.current()
    if scope is not None:
        scope.run.watched_only = True


def _hook(method: Callable[P, R]) -> Callable[P, R | None]:
    """Let no fault of ours leave a hook; after one, its run is only watched."""
    on_fault = cast("Callable[P, None]", _watch_only)
    where = f"openai_agents.{method.__name__.removeprefix('_')}"
    return guarded(where, default=None, on_fault=on_fault)(method)


class TidegaugeRunHooks(RunHooks[Any]):
    """Stops, nudges and blocks; one object may serve any number of runs at once.

    Give it to ``Runner.run(..., hooks=hooks)``, and to ``agent.as_tool(..., hooks=hooks)`` for
    agents that are tools. :meth:`nudge` and :attr:`block` are given apart, each where the SDK has
    its place for it. A subclass that overrides a hook calls the one here.

    Args:
        processor: sees the runs; it is among the trace processors.
        success: takes the final output of an outermost run and says whether the task was solved;
            left out, that is not known, and the run counts in no success rate.

    Attributes:
        block: a guardrail for ``function_tool(tool_input_guardrails=[hooks.block])``. A step is
            blocked when all of its tools have it.
    """

    def __init__(
        self, processor: TidegaugeTracingProcessor, *, success: Success | None = None
    ) -> None:
        self._processor = processor
        self._success = success
        self._warned_of_no_run = False
        self.block: ToolInputGuardrail[Any] = ToolInputGuardrail(
            self._on_tool_input, name="tidegauge"
        )

    def nudge(self, data: CallModelData[Any]) -> ModelInputData:
        """Add the nudge that the policy asked for, if any, to this one call of the model.

        For ``RunConfig(call_model_input_filter=hooks.nudge)``; a filter of your own can end with
        it. The conversation itself does not change.
        """
        advice = self._advice_beforehand()
        if advice is None:
            return data.model_data
        item: TResponseInputItem = {"role": _NUDGE_ROLE, "content": advice}
        return replace(data.model_data, input=[*data.model_data.input, item])

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """The model is about to choose: the last turn is closed, and a stop is raised."""
        self._on_llm_start(agent, system_prompt, input_items)

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        """The model has chosen: its tool calls are a step, issued before they run."""
        self._on_llm_end(agent, response)

    async def on_tool_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool
    ) -> None:
        """A tool is about to run; its arguments are known here whatever the trace holds."""
        self._on_tool_start(context)

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool, result: object
    ) -> None:
        """A tool has ended; its result is known here whatever the trace holds."""
        self._on_tool_end(result)

    async def on_agent_end(
        self, context: AgentHookContext[Any], agent: Agent[Any], output: Any
    ) -> None:
        """The run has its final output."""
        self._on_agent_end(output)

    @_hook
    def _advice_beforehand(self) -> str | None:
        scope = self._here()
        if scope is None:
            return None
        scope.run.turns.next_turn()
        decision = None if scope.run.watched_only else scope.run.recorded.take_nudge()
        if decision is None:
            return None
        return decision.advice or decision.message

    @_hook
    def _on_llm_start(
        self, agent: Agent[Any], system: str | None, items: list[TResponseInputItem]
    ) -> None:
        scope = self._here()
        if scope is None:
            return
        run = scope.run
        run.hooked = True
        self._processor.seen(run)
        run.turns.next_turn()
        if run.recorded.counts_usage:
            run.recorded.spend()
        run.enforce()
        if run.traced:
            prompt = None
            if run.recorded.spans.shows_contents:
                prompt = item_contents.prompt_of(items, system, agent.tools)
            run.asked = run.recorded.spans.start_chat(parsing.agent_request(agent), prompt)

    @_hook
    def _on_llm_end(self, agent: Agent[Any], response: ModelResponse) -> None:
        scope = self._here()
        if scope is None:
            return
        run, answer = scope.run, parsing.hook_answer(response)
        chat, run.asked = run.asked, None
        if chat is not None:  # no span of the SDK's took it
            spans = run.recorded.spans
            said = item_contents.answer_of(response.output) if spans.shows_contents else None
            spans.end_chat(chat, answer.response, answer=said)
        if run.recorded.counts_usage:
            run.recorded.spend(answer.response.usage(parsing.agent_request(agent).model))
        run.recorded.read_answer(item_contents.text_of(response.output))
        if not answer.calls:
            run.turns.add_tokens(answer.tokens)
            if run.recorded.chanting:
                run.enforce()
            return
        run.enforce(len(answer.calls))  # what is refused after a stop is no step
        blockable = not run.watched_only and self._guards(agent, answer.calls)
        if not blockable:
            run.recorded.without_blocking(_NO_GUARD)
        run.turns.choose(answer.calls, tokens=answer.tokens, blockable=blockable)
        run.enforce(len(answer.calls))

    @_hook
    def _on_tool_start(self, context: RunContextWrapper[Any]) -> None:
        scope = self._here()
        if scope is None:
            return
        scope.run.hooked = True
        call = scope.tool
        if call is not None and call.arguments is ABSENT and isinstance(context, ToolContext):
            call.arguments = parsing.arguments_value(context.tool_arguments)

    @_hook
    def _on_tool_end(self, result: object) -> None:
        scope = self._here()
        if scope is not None and scope.tool is not None:
            scope.tool.output = result

    @guarded("openai_agents.success", default=None)
    def _on_agent_end(self, output: Any) -> None:
        scope = self._here()
        if scope is not None and self._success is not None and not scope.run.inner:
            scope.run.success = self._success(output)

    def _on_tool_input(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """The guardrail: a call of a blocked step is answered, any other is allowed."""
        advice = self._advice_instead()
        if advice is None:
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(advice)

    @_hook
    def _advice_instead(self) -> str | None:
        scope = self._here()
        decision = None if scope is None or scope.tool is None else scope.tool.turn.decision
        if scope is None or decision is None or not decision.block:
            return None
        scope.run.recorded.refused()
        return decision.advice or decision.message

    def _guards(self, agent: Agent[Any], calls: tuple[ChosenCall, ...]) -> bool:
        """Whether every one of the calls can be answered without running its tool."""
        guarded_tools = {
            tool.name
            for tool in agent.tools
            if isinstance(tool, FunctionTool) and self.block in (tool.tool_input_guardrails or ())
        }
        return all(call.name in guarded_tools for call in calls)

    def _here(self) -> Scope | None:
        scope = self._processor.current()
        if scope is None and not self._warned_of_no_run:
            self._warned_of_no_run = True
            log(
                logging.WARNING,
                "tidegauge: the hooks found no run: tracing is disabled, or the processor was not "
                "given to agents.add_trace_processor",
            )
        return scope
