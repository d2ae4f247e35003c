"""An OpenAI Agents SDK agent that falls into a loop and is stopped. Its model is scripted."""

from __future__ import annotations

import asyncio

from agents import Agent, Runner, function_tool, set_trace_processors
from agents.testing import ScriptedModel
from openai.types.responses import ResponseFunctionToolCall

import tidegauge
from tidegauge.instrumentation.openai_agents import TidegaugeRunHooks, TidegaugeTracingProcessor


def stubborn(turns: int) -> ScriptedModel:
    """Asks for the same page in every turn."""
    return ScriptedModel(
        [
            ResponseFunctionToolCall(
                type="function_call",
                name="read_page",
                arguments='{"page": 7}',
                call_id=f"call-{turn}",
            )
        ]
        for turn in range(turns)
    )


@function_tool
def read_page(page: int) -> str:
    """Read a page."""
    return f"page {page} is missing"


async def main() -> None:
    """Run the agent until it is stopped."""
    tidegauge.configure(stop_on_loop=3, serve_metrics=False)
    processor = TidegaugeTracingProcessor(task_group="library")
    set_trace_processors([processor])  # replaces the SDK's exporter, which sends traces away
    agent = Agent(name="reader", tools=[read_page], model=stubborn(turns=10))
    try:
        await Runner.run(agent, "read on", hooks=TidegaugeRunHooks(processor))
    except tidegauge.RunStopped as stop:
        print(f"stopped at step {stop.step}: {stop.message}")


if __name__ == "__main__":
    asyncio.run(main())
