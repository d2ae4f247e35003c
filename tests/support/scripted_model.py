"""A chat model that follows a script: real LangChain, no network."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

Script = Callable[[Sequence[BaseMessage]], AIMessage]

_ids = itertools.count(1)


def chooses(*calls: tuple[str, dict[str, Any]], tokens: tuple[int, int] = (10, 2)) -> AIMessage:
    """A message that chooses tool calls, each with an id of its own."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": arguments, "id": f"call-{next(_ids)}", "type": "tool_call"}
            for name, arguments in calls
        ],
        usage_metadata=_usage(tokens),
        response_metadata={"finish_reason": "tool_calls"},
    )


def answers(text: str, tokens: tuple[int, int] = (10, 2)) -> AIMessage:
    """A message that ends the agent's turn."""
    return AIMessage(
        text, usage_metadata=_usage(tokens), response_metadata={"finish_reason": "stop"}
    )


def turns(messages: Sequence[BaseMessage]) -> int:
    """How often the model has spoken."""
    return sum(isinstance(message, AIMessage) for message in messages)


class ScriptedChatModel(BaseChatModel):
    """Says what ``script(messages)`` returns; streams it in pieces when it is streamed."""

    script: Script
    model_name: str = "scripted-1"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(
            ls_provider="google_genai", ls_model_name=self.model_name, ls_model_type="chat"
        )

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        names = [getattr(tool, "name", None) or str(tool) for tool in tools]
        return self.bind(tools=names, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.script(messages))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self.script(messages)):
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.message.content), chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(self.script(messages)):
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(chunk.message.content), chunk=chunk)
            yield chunk


def _usage(tokens: tuple[int, int]) -> Any:
    return {
        "input_tokens": tokens[0],
        "output_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }


def _chunks(message: AIMessage) -> Iterator[ChatGenerationChunk]:
    import json

    for word in str(message.content).split():
        yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
    for index, call in enumerate(message.tool_calls):
        text = json.dumps(call["args"])
        half = len(text) // 2
        for name, call_id, part in (
            (call["name"], call["id"], text[:half]),
            (None, None, text[half:]),
        ):
            piece = tool_call_chunk(name=name, args=part, id=call_id, index=index)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
    yield ChatGenerationChunk(
        message=AIMessageChunk(
            content="",
            usage_metadata=message.usage_metadata,
            response_metadata=message.response_metadata,
            chunk_position="last",
        )
    )
