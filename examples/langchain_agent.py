"""A LangGraph agent that falls into a loop and is stopped. Its model is scripted: no key needed."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import tidegauge
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler


class Stubborn(BaseChatModel):
    """Asks for the same page forever."""

    @property
    def _llm_type(self) -> str:
        return "stubborn"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The script needs no tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        call = {"name": "read_page", "args": {"page": 7}, "id": f"call-{len(messages)}"}
        message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def read_page(page: int) -> str:
    """Read a page."""
    return f"page {page} is missing"


def main() -> None:
    """Run the agent until it is stopped."""
    tidegauge.configure(stop_on_loop=3, serve_metrics=False)
    handler = TidegaugeCallbackHandler(agent="reader", task_group="library")
    agent: Any = create_agent(Stubborn(), [read_page])
    try:
        agent.invoke({"messages": [("user", "read on")]}, config={"callbacks": [handler]})
    except tidegauge.RunStopped as stop:
        print(f"stopped at step {stop.step}: {stop.message}")


if __name__ == "__main__":
    main()
