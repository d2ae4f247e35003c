"""The agents of the demo: LangGraph agents whose chat model follows a script.

They are measured like any LangChain application: through the callback handler, with tool calls,
tool errors and token usage as a provider would report them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool

from tidegauge.errors import RunStopped
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.worlds.document_world import Desk, ScriptMaker, ToolFailed

TASK_GROUP: Final = "documents"
T_MAX: Final = 20
"""Turns within which a solved task counts towards AUV."""

_SYSTEM_PROMPT: Final = (
    "You work in the archive of a harbour office. Answer the question from its documents: "
    "look documents up, follow their links, and hand in the answer with submit."
)
_CHARACTERS_PER_TOKEN: Final = 4
_TOKENS_PER_MESSAGE: Final = 4


# LangChain warns of every exception that leaves a callback handler, also of the deliberate stop.
logging.getLogger("langchain_core.callbacks.manager").addFilter(
    lambda record: "RunStopped(" not in record.getMessage()
)


class Pace(NamedTuple):
    """How long agents take to think and to act.

    Args:
        seconds: a turn of the model; a tool takes half of it; 0, no pauses.
        ended: set when the demo must end: agents then finish with their next turn.
    """

    seconds: float
    ended: threading.Event

    def pause(self, turns: float) -> None:
        """Wait so many turns, or until the demo ends."""
        if self.seconds:
            self.ended.wait(turns * self.seconds)


class ScriptedChatModel(BaseChatModel):
    """A chat model that follows a script, with the token usage that its choices would cost."""

    script: Any
    pace: Any
    draw: Any
    model_name: str = "scripted"
    tool_tokens: int = 0  # of the tools' descriptions, part of every prompt

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedChatModel:
        """This model with the descriptions of its tools in every prompt."""
        described = json.dumps([convert_to_openai_tool(tool) for tool in tools])
        return self.model_copy(update={"tool_tokens": _tokens(described)})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.pace.pause(self.draw.uniform(0.7, 1.3))
        message = self._next(messages)
        prompt = self.tool_tokens + sum(
            _tokens(_text(earlier)) + _TOKENS_PER_MESSAGE for earlier in messages
        )
        spent = _tokens(_text(message))
        message.usage_metadata = UsageMetadata(
            input_tokens=prompt, output_tokens=spent, total_tokens=prompt + spent
        )
        message.response_metadata = {"model_name": self.model_name}
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        if self.pace.ended.is_set():
            return AIMessage("The demo ends.")
        last = messages[-1]
        try:
            if isinstance(last, ToolMessage):
                call = self.script.send(last.text)
            else:
                call = next(self.script)
        except StopIteration as end:
            return AIMessage(end.value)
        number = sum(isinstance(message, AIMessage) for message in messages)
        return AIMessage(
            f"I need to know more, so I use {call.action}.",
            tool_calls=[{"name": call.action, "args": call.arguments, "id": f"call_{number}"}],
        )


def work(agent: str, maker: ScriptMaker, desk: Desk, *, draw: random.Random, pace: Pace) -> None:
    """Let an agent work on one task until it ends or is stopped."""
    model = ScriptedChatModel(
        script=maker(desk.task, draw),
        pace=pace,
        draw=random.Random(draw.random()),  # noqa: S311 -- varies pauses
    )
    graph = create_agent(model, _tools(desk, pace), system_prompt=_SYSTEM_PROMPT, name=agent)

    def solved(_: object) -> bool | None:
        return None if pace.ended.is_set() and not desk.submitted else desk.solved

    handler = TidegaugeCallbackHandler(
        agent=agent, task_group=TASK_GROUP, t_max=T_MAX, success=solved
    )
    with contextlib.suppress(RunStopped):
        graph.invoke(
            {"messages": [{"role": "user", "content": desk.task.question}]},
            config={"callbacks": [handler], "metadata": {"tidegauge_task": desk.task.id}},
        )


def _tools(desk: Desk, pace: Pace) -> list[BaseTool]:
    methods = (
        desk.list_documents,
        desk.search,
        desk.read_document,
        desk.fetch_record,
        desk.submit,
    )
    return [_tool(method, pace) for method in methods]


def _tool(method: Callable[..., str], pace: Pace) -> BaseTool:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> str:
        pace.pause(0.5)
        try:
            return method(*args, **kwargs)
        except ToolFailed as failed:
            raise ToolException(str(failed)) from failed

    # The model gets the error of a tool and the agent continues, as is usual in LangChain.
    return StructuredTool.from_function(call, handle_tool_error=True)


def _text(message: BaseMessage) -> str:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return message.text + "".join(json.dumps([call["name"], call["args"]]) for call in calls)


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
