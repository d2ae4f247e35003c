"""A LangGraph agent with everything that a trace may show. Its model is scripted: no key needed.

A lead agent calls tools in parallel, one of them a sub-agent, in which a tool fails. A second run
of the lead falls into a loop and is stopped. Spans go where ``OTEL_EXPORTER_OTLP_ENDPOINT`` says;
with ``--openinference``, they have OpenInference's attributes, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException, tool
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import tidegauge
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.openinference import OpenInferenceExporter

Turn: TypeAlias = list[dict[str, Any]] | str
"""What the model answers: calls of tools, or a text."""


class Scripted(BaseChatModel):
    """Answers by a script: turn by turn, calls of tools or a text."""

    script: Callable[[int], Turn]
    model_name: str = "scripted-model"
    temperature: float = 0.2

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "temperature": self.temperature}

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The script needs no tools."""
        return self.bind(
            tools=[{"name": one.name, "description": one.description} for one in tools]
        )

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        said = self.script(turn)
        read = 20 * len(messages) + 40
        message = AIMessage(
            said if isinstance(said, str) else "",
            tool_calls=[]
            if isinstance(said, str)
            else [_call(turn, *one) for one in enumerate(said)],
            usage_metadata={
                "input_tokens": read,
                "output_tokens": 12,
                "total_tokens": read + 12,
                "input_token_details": {"cache_read": read // 2},
            },
            response_metadata={"model_name": "scripted-model-1", "finish_reason": "stop"},
            id=f"response-{turn}",
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def _call(turn: int, at: int, call: dict[str, Any]) -> dict[str, Any]:
    return {**call, "id": f"call-{turn}-{at}"}


def calls(**arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Calls of tools, by their names."""
    return [{"name": name, "args": args} for name, args in arguments.items()]


RESEARCH: list[Turn] = [
    calls(fetch={"url": "https://example.org/tides"}),
    calls(fetch={"url": "https://example.org/gone"}),
    "The moon pulls the water; the sun helps.",
]
WORK: list[Turn] = [
    calls(
        search={"query": "tides"},
        look_up={"word": "spring tide"},
        research={"question": "What makes the tides?"},
    ),
    "The moon and the sun make the tides; at a spring tide they pull together.",
]


@tool
def search(query: str) -> str:
    """Search the library."""
    return f"3 books about {query}"


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a tide just after a new or full moon"


@tool
def fetch(url: str) -> str:
    """Fetch a page."""
    if url.endswith("gone"):
        raise ToolException("404: the page is gone")
    return "Tides are the rise and fall of the sea."


fetch.handle_tool_error = True


@tool
def research(question: str, config: RunnableConfig) -> str:
    """Ask the researcher."""
    agent: Any = create_agent(
        Scripted(script=lambda turn: RESEARCH[turn]),
        [fetch],
        system_prompt="You research one question.",
        name="researcher",
    )
    return str(agent.invoke({"messages": [("user", question)]}, config)["messages"][-1].content)


def lead(script: Callable[[int], Turn]) -> Any:
    """The outer agent."""
    return create_agent(
        Scripted(script=script),
        [search, look_up, research],
        system_prompt="You answer questions about the sea.",
        name="lead",
    )


def run_twice() -> None:
    """Let the team answer, and then search again and again until it is stopped."""
    question = {"messages": [("user", "Why are there tides?")]}
    config: Any = {
        "callbacks": [TidegaugeCallbackHandler(task_group="library")],
        "metadata": {"user_id": "ada", "session_id": "session-1"},
        "tags": ["example"],
    }
    lead(lambda turn: WORK[turn]).invoke(question, config)
    try:
        lead(lambda turn: calls(search={"query": "tides"})).invoke(question, config)
    except tidegauge.RunStopped as stop:
        print(f"stopped at step {stop.step}: {stop.message}")


def main() -> None:
    """Run the agent, and send its spans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openinference", action="store_true")
    exporter: Any = OTLPSpanExporter()
    if parser.parse_args().openinference:
        exporter = OpenInferenceExporter(exporter)
    provider = TracerProvider(resource=Resource.create({"service.name": "sea-library"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tidegauge.configure(
        tracer_provider=provider, capture_content=True, stop_on_loop=3, serve_metrics=False
    )
    run_twice()
    provider.shutdown()


if __name__ == "__main__":
    main()
