"""What the example with a local model does around its model: it runs without one."""

from __future__ import annotations

import doctest
import importlib.util
import io
import itertools
import json
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from rich.console import Console

import tidegauge
from tidegauge import testing
from tidegauge.events import ABSENT, Call, CallResult, Task
from tidegauge.policies import Rule
from tidegauge.worlds import GRID_AGENTS, GridWorld, Recording, TaskGraph

EXAMPLE = Path(__file__).parents[2] / "examples" / "local_model"


def load(name: str) -> Any:
    """A module of the example, which is no package."""
    spec = importlib.util.spec_from_file_location(f"local_model_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


show, sight, tool_calls = load("show"), load("sight"), load("tool_calls")


class ScriptedLlama:
    """Stands in for llama.cpp, which is not there: writes calls of the tools in their order."""

    def __init__(self, actions: Iterable[str]) -> None:
        self.actions = iter(actions)
        self.asked: list[list[dict[str, str]]] = []
        self.held_to: Any = None

    def create_chat_completion(
        self, turns: list[dict[str, str]], *, response_format: Any, **kwargs: Any
    ) -> dict[str, Any]:
        self.asked.append(turns)
        self.held_to = response_format
        text = json.dumps({"name": next(self.actions), "arguments": {}})
        return {
            "choices": [{"message": {"content": text}}],
            "usage": {"prompt_tokens": 30, "completion_tokens": 10, "total_tokens": 40},
        }


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's main module, whose neighbours are imported by their plain names."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    with testing.capture():  # afterwards nothing is configured
        yield load("run")
    for name in ("local_chat_model", "show", "sight", "tool_calls"):
        del sys.modules[name]


def play(example: Any, llama: ScriptedLlama) -> tuple[Any, list[str]]:
    """The walk after a run of the example on its grid 6, and the lines that it printed."""
    model = sys.modules["local_chat_model"].LocalChatModel(llama=llama)
    out = io.StringIO()
    world = GridWorld(6, graph=TaskGraph.sample(6, naming="semantic"))
    walk = example.play(model, world, Console(file=out, width=100))
    lines = filter(str.strip, out.getvalue().splitlines())
    return walk, [" ".join(line.split()) for line in lines]


def test_a_model_that_loops_is_nudged_then_stopped(example: Any) -> None:
    llama = ScriptedLlama(itertools.cycle(["go_right", "go_left"]))
    walk, lines = play(example, llama)
    assert walk.moves == 10, "round one is steps 1 and 2, its fourth repetition ends with step 10"
    kinds = [line.split()[0] for line in lines]
    assert kinds.index("nudge") < kinds.index("stop")
    nudge, stop = lines[kinds.index("nudge")], lines[kinds.index("stop")]
    assert "2 steps, repeated twice" in nudge
    assert "2 steps, repeated 4 times" in stop
    reported = [
        n for n, turns in enumerate(llama.asked) if "Not visited yet" in turns[-1]["content"]
    ]
    assert reported[0] == 7, "before it chose again"
    ways = {call["properties"]["name"]["const"] for call in llama.held_to["schema"]["anyOf"]}
    assert ways == {"go_up", "go_right", "go_down", "go_left"}
    assert lines[-1].startswith("1 of 6 tasks achieved")


def test_a_model_that_gets_there_is_let_go(example: Any) -> None:
    world = GridWorld(6, graph=TaskGraph.sample(6, naming="semantic"))
    recording = Recording(**world.start())
    GRID_AGENTS["optimal"](world.walk(recording), random.Random(0))
    ways = [event["args"]["direction"] for event in recording.events if event["type"] == "step"]
    walk, lines = play(example, ScriptedLlama([f"go_{way}" for way in ways]))
    assert walk.solved
    assert not any(line.startswith("stop") for line in lines)
    assert lines[-1].startswith("6 of 6 tasks achieved")


@pytest.mark.parametrize("module", [sight, tool_calls])
def test_what_its_docstrings_show_is_so(module: Any) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed


def move(direction: str) -> str:
    """Go one cell."""
    return direction


def test_schema_holds_a_model_to_one_call_of_one_of_its_tools() -> None:
    def wait() -> str:
        """Do nothing."""
        return ""

    schema = tool_calls.call_schema([convert_to_openai_tool(tool) for tool in (move, wait)])
    assert schema == {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "name": {"const": "move"},
                    "arguments": {
                        "type": "object",
                        "properties": {"direction": {"type": "string"}},
                        "required": ["direction"],
                    },
                },
                "required": ["name", "arguments"],
            },
            {
                "type": "object",
                "properties": {
                    "name": {"const": "wait"},
                    "arguments": {"type": "object", "properties": {}},
                },
                "required": ["name", "arguments"],
            },
        ]
    }


def test_a_call_is_read_whatever_its_white_space() -> None:
    call = tool_calls.read_call('{ "name": "move",\n "arguments": {"direction": "up"} }\n')
    assert call == ("move", {"direction": "up"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "up",
        '{"name": "move", "arguments": {"direction": "u',
        '{"name": "move"}',
        '{"name": 1, "arguments": {}}',
        '{"name": "move", "arguments": "up"}',
        '["move", {}]',
    ],
)
def test_what_is_no_call_is_reported(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- of json, or ours
        tool_calls.read_call(text)


def test_a_call_is_shown_as_the_model_is_to_write_it() -> None:
    call = {"name": "move", "args": {"direction": "left"}, "id": "call-1"}
    (turn,) = tool_calls.chat_turns([AIMessage("", tool_calls=[call])])
    assert turn["role"] == "assistant"
    assert tool_calls.read_call(turn["content"]) == ("move", {"direction": "left"})


def test_turns_take_turns() -> None:
    call = {"name": "move", "args": {}, "id": "call-1"}
    turns = tool_calls.chat_turns(
        [
            SystemMessage("You walk."),
            HumanMessage("Find it."),
            AIMessage("", tool_calls=[call]),
            ToolMessage("A wall.", tool_call_id="call-1"),
            HumanMessage("Try elsewhere."),
            AIMessage("I give up."),
        ]
    )
    assert [(turn["role"], turn["content"]) for turn in turns] == [
        ("system", "You walk."),
        ("user", "Find it."),
        ("assistant", '{"name": "move", "arguments": {}}'),
        ("user", "A wall.\nTry elsewhere."),
        ("assistant", "I give up."),
    ]


class Comparison:
    """Compares at each step what the grid reports with what is read from its words."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any, bool]] = []
        self.call = Call("")

    def act(self, action: str, arguments: object = None) -> None:
        self.call = Call(action, arguments)

    def observe(self, outcome: object = ABSENT, *, error: bool = False, **fields: Any) -> None:
        self.seen.append((fields, sight.read_sight(self.call, CallResult(outcome, error)), error))


@pytest.mark.parametrize("naming", ["symbolic", "semantic"])
@pytest.mark.parametrize("agent", ["explorer", "wanderer"])
def test_what_is_read_from_the_words_of_the_grid_is_what_is_so(agent: str, naming: Any) -> None:
    found = 0
    for seed in range(5):
        graph = TaskGraph.sample(seed, naming=naming, option_counts={1: 1, 2: 1})
        comparison = Comparison()
        walk = GridWorld(seed, graph=graph).walk(comparison)
        GRID_AGENTS[agent](walk, random.Random(seed))
        achieved = set()
        for is_so, read, _ in comparison.seen:
            assert (read.place, read.exits) == (is_so["place"], is_so["exits"])
            if read.tasks:
                (so,), (task,) = is_so["tasks"], read.tasks
                assert task.id == so.id
                assert task.requires == (so.requires if not read.achieved else ())
                found += 1
            achieved.update(read.achieved)
        assert achieved == walk.achieved
    assert found


def test_against_a_wall_it_stays_where_it_is() -> None:
    comparison = Comparison()
    walk = GridWorld(6).walk(comparison)
    for _ in range(2):
        walk.move("right")
    is_so, read, blocked = comparison.seen[-1]
    assert blocked
    assert (read.place, read.exits) == (is_so["place"], None) == ((4, 2), None)


def test_other_words_name_no_place() -> None:
    assert sight.read_sight(Call("go_up"), CallResult("Error: invoke it with other words.")) is None


def printed(*, width: int = 100) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width), out


def test_a_step_is_a_line_with_its_numbers_and_a_nudge_is_shown() -> None:
    console, out = printed()
    with testing.capture(rules=[Rule("loop_repeats", 9, "stop")]) as seen:
        shown = show.Show(console, seen.pipeline.engine)
        with tidegauge.run(agent="walker", place=(1, 1)) as run:
            for number in range(4):
                call = {"name": "go_up", "args": {}, "id": str(number)}
                shown.message(AIMessage("", tool_calls=[call]))
                run.act("go_up")
                run.observe("There is no way up.", place=(1, 1))
                shown.message(ToolMessage("There is no way up.", tool_call_id=str(number)))
            shown.message(HumanMessage("Try another."))
            shown.message(AIMessage("I give up."))
    *_, last, nudge, words = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert last == "3 go_up There is no way up. 3 1 \u00d7 2 4"
    assert nudge == "nudge Try another."
    assert words == "says I give up."


def test_the_map_shows_what_was_seen_and_no_more() -> None:
    graph = TaskGraph(((Task("keel"),), (Task("ship", (("keel",),)),)))
    world = GridWorld(6, graph=graph)
    assert world.render() == "###\nGT#\nS##"
    walk = world.walk(Recording(**world.start()))
    maps = [rows(walk)] + [rows(walk) for way in ("up", "right", "left") if walk.move(way)]
    assert maps == [
        ["?", "@"],
        ["@ ?", "."],
        ["T @", "."],
        ["@ t", "."],
    ]


def rows(walk: Any) -> list[str]:
    """The walked map without what is around it."""
    return [line.strip() for line in show.walked_map(walk).plain.split("\n")]
