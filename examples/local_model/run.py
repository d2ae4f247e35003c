"""A small language model walks a grid, gets stuck, is nudged, and is stopped.

The model is real and decides by itself; a grammar restricts it to valid calls, and nothing else.
Run it with ``make demo-llm``, or install requirements.txt and run
``python examples/local_model/run.py``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from langchain.agents import create_agent
from langchain.agents.middleware import AgentState, before_model
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.runtime import Runtime
from local_chat_model import LocalChatModel, packaged_model
from rich.console import Console
from show import Show
from sight import read_sight

import tidegauge
from tidegauge.instrumentation.extractors import extractor
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, TidegaugeMiddleware
from tidegauge.policies import Rule
from tidegauge.worlds import GridWorld, Recording, TaskGraph, Walk
from tidegauge.worlds.grid import DIRECTIONS

RULES: Final = (
    Rule("loop_repeats", 2, "nudge"),
    Rule("stale_score", 10, "nudge"),
    Rule("loop_repeats", 4, "stop"),
    Rule("stale_score", 30, "stop"),
)
SYSTEM_PROMPT: Final = (
    "You walk on a grid, one cell at a time. Find the goal. "
    'Answer with one move, such as {"name": "go_left", "arguments": {}}. '
    "Go to cells where you have not been."
)
MODEL: Final = "SmolLM2-135M-Instruct"
PLAIN_WIDTH: Final = 100


def main() -> None:
    """Load the model, and let it walk."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0, help="random seed of the grid")
    options.add_argument(
        "--temperature", type=float, default=0.0, help="sampling temperature; 0 does not sample"
    )
    chosen = options.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    world = GridWorld(chosen.seed, graph=TaskGraph.sample(chosen.seed, naming="semantic"))
    play(
        LocalChatModel.load(packaged_model(), temperature=chosen.temperature, seed=chosen.seed),
        world,
        console,
    )


def play(model: BaseChatModel, world: GridWorld, console: Console) -> Walk:
    """Let a model walk until it reaches the goal, has no moves left, or is stopped.

    Args:
        model: chooses the moves.
        world: where the model walks.
        console: shows the run.
    """
    start = world.start()
    walk = world.walk(Recording(**start))  # the handler reports to tidegauge, not the world
    pipeline = tidegauge.configure(
        rules=RULES, extractors=[extractor(read_sight)], serve_metrics=False
    )
    handler = TidegaugeCallbackHandler(
        agent="walker",
        task_group=start["task_group"],
        t_max=world.budget,
        model=MODEL,
        success=lambda _: walk.solved,
    )
    agent: Any = create_agent(
        model,
        [step(walk, direction) for direction in DIRECTIONS],
        system_prompt=SYSTEM_PROMPT,
        middleware=[TidegaugeMiddleware(persist_nudges=True), rest_when_over(walk)],
    )
    task = f"{start['task']} {walk.sight}"
    show = Show(console, pipeline.engine)
    show.task(MODEL, task)
    began = time.monotonic()
    for update in agent.stream(
        {"messages": [("user", task)]},
        config={"callbacks": [handler], "recursion_limit": 10 * world.budget},
        stream_mode="updates",
    ):
        for node in update.values():
            for message in (node or {}).get("messages", ()):
                show.message(message)
    show.end(walk, seconds=time.monotonic() - began)
    return walk


def step(walk: Walk, direction: str) -> BaseTool:
    """A tool that moves one cell in one direction."""

    def go() -> str:
        return walk.move(direction)

    return StructuredTool.from_function(
        go, name=f"go_{direction}", description=f"Go one cell {direction}."
    )


def rest_when_over(walk: Walk) -> Any:
    """Ends the agent when it has reached the goal or used up its moves."""

    @before_model(can_jump_to=["end"])
    def rest(state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        return {"jump_to": "end"} if walk.over else None

    return rest


if __name__ == "__main__":
    main()
