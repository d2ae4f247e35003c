"""A chat model that repeats one call, to try LangChain and LangGraph agents without a key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tidegauge.errors import MissingExtraError

try:
    from langchain_core.callbacks import CallbackManagerForLLMRun
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from pydantic import Field
except ImportError as error:
    raise MissingExtraError("langchain_core", extra="langchain") from error


class RepeatingChatModel(BaseChatModel):
    """Chooses the same tool call in every turn, and answers after some of them.

    Args:
        arguments: of each call.
        calls: how many results of tools it waits for before it answers.
        answer: its last message.
        seconds: how long each turn takes.

    >>> model = RepeatingChatModel(tool="look", arguments={"place": "desk"}, calls=1)
    >>> model.invoke("find the key").tool_calls[0]["args"]
    {'place': 'desk'}
    """

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    calls: int = 99
    answer: str = "I give up"
    seconds: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> RepeatingChatModel:
        """This model: its script names the tool."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        time.sleep(self.seconds)
        call = {"name": self.tool, "args": self.arguments, "id": f"call-{len(messages)}"}
        ends = sum(message.type == "tool" for message in messages) >= self.calls
        message = AIMessage(self.answer) if ends else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])
