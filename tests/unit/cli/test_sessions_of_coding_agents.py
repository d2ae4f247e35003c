"""Captured sessions of coding agents have the steps and loops that they must have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.requirements import missing

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[4] / "shared" / "data"))
CAPTURED = DATA / "coding_agents"
EXPECTED: dict[str, Any] = (
    json.loads((CAPTURED / "expected.json").read_text())
    if (CAPTURED / "expected.json").exists()
    else {}
)
NOT_READ = ("hooks.jsonl", "telemetry.jsonl", ".md", "analytics.jsonl")
CASES = [name for name in EXPECTED if not name.startswith("_") and not name.endswith(NOT_READ)] or [
    "none"
]
AGENTS = {"codex-cli": "codex", "gemini-cli": "gemini", "qwen-code": "qwen"}


@pytest.mark.parametrize("known", [True, False], ids=["given", "auto"])
@pytest.mark.parametrize("name", CASES)
def test_a_session_is_read_as_it_must_be(tidegauge: Any, name: str, known: bool) -> None:
    if name == "none":
        missing("captures of coding agents are not here")
    wanted = EXPECTED[name]
    product = wanted["agent"]
    agent = AGENTS.get(product, product.removesuffix("-sdk"))
    given = agent if known else "auto"
    done = tidegauge("replay", "--json", "--from", given, str(CAPTURED / name))
    assert done.code == 0
    found = done.document
    assert found["skipped_lines"] == 0
    [run] = found["runs"]
    assert (run["agent"], run["steps"]) == (agent, wanted["steps"])
    chosen = tidegauge(
        "select", "--from", given, str(CAPTURED / name), "--where", "steps > 0", "-o", "runs.jsonl"
    )
    assert chosen.code == 0
    lines = map(json.loads, Path("runs.jsonl").read_text().splitlines())
    assert sum(len(line.get("calls", ())) for line in lines) == wanted["calls"]
    loops = [(one["first_step"], one["period"] * one["repeats"]) for one in run["loops"]]
    flags = ["."] * wanted["steps"]
    for first, repeated in loops:
        flags[first : first + repeated] = "x" * repeated
    assert "".join(flags) == wanted["flags"]


def test_what_it_took_the_files_for_is_said(tidegauge: Any) -> None:
    if not EXPECTED:
        missing("captures of coding agents are not here")
    done = tidegauge("replay", "--from", "auto", str(CAPTURED / "openhands"))
    assert done.faults[-1] == "sessions: 4 of openhands"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--from", "codex", "{folder}"), 0, "no sessions of codex in it"),
        (("--from", "codex", "-"), 2, "use files or folders"),
        (("--from", "nobody", "{folder}"), 2, "use codex, claude"),
        (("--from", "gemini", "{folder}/none.jsonl"), 1, "No such file"),
        (("--from", "opencode", "{folder}/file.jsonl"), 0, "it is no database of opencode"),
        (("--from", "auto", "{folder}/file.jsonl"), 0, "no session or format that is known"),
    ],
)
def test_wrong_files_are_one_line(
    tidegauge: Any, arguments: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "file.jsonl").write_text('{"a": 1}\n')
    given = [each.format(folder=tmp_path) for each in arguments]
    done = tidegauge("replay", *given)
    assert (done.code, len(done.faults)) == (code, 1), done.err
    assert says in done.err


def test_arguments_with_too_many_levels_cost_their_step(tidegauge: Any, tmp_path: Path) -> None:
    deep = '{"a":' * 300 + "1" + "}" * 300
    calls = [("1", deep), ("2", "{}")]
    lines = [
        {"type": "function_call", "name": "ls", "arguments": given, "call_id": one}
        for one, given in calls
    ]
    answered = {"type": "function_call_output", "call_id": "1", "output": "none"}
    records = [lines[0], answered, lines[1]]
    (tmp_path / "rollout.jsonl").write_text(
        "\n".join(json.dumps({"type": "response_item", "payload": one}) for one in records)
    )
    done = tidegauge("replay", "--json", "--from", "codex", "rollout.jsonl")
    assert (done.code, len(done.faults)) == (0, 1), done.err
    assert [run["steps"] for run in done.document["runs"]] == [1]


def test_a_session_becomes_a_recording(tidegauge: Any, tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "1"}
    line = {"type": "response_item", "payload": call}
    (tmp_path / "rollout.jsonl").write_text(json.dumps(line))
    chosen = tidegauge(
        "select", "--from", "codex", "rollout.jsonl", "--where", "steps == 1", "-o", "runs.jsonl"
    )
    assert chosen.code == 0
    runs = tidegauge("replay", "--json", "runs.jsonl").document["runs"]
    assert [(run["run"], run["steps"]) for run in runs] == [("codex-rollout-1", 1)]


def test_a_sub_agent_of_gemini_is_one_run_in_the_folder_of_its_session(
    tidegauge: Any, tmp_path: Path
) -> None:
    file = tmp_path / "shop" / "chats" / "s1" / "s2.jsonl"
    file.parent.mkdir(parents=True)
    call = {"id": "c1", "name": "ls", "args": {}, "status": "success"}
    lines = [
        {"sessionId": "s2", "projectHash": "p", "kind": "subagent"},
        {"id": "1", "type": "user", "content": [{"text": "Find it."}]},
        {"id": "2", "type": "gemini", "content": "", "toolCalls": [call]},
        {"id": "3", "type": "user", "content": [{"text": "You have one final chance."}]},
        {"id": "4", "type": "gemini", "content": "", "toolCalls": [{**call, "id": "c2"}]},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    runs = tidegauge("replay", "--json", "--from", "gemini", str(tmp_path)).document["runs"]
    assert [(run["run"], run["steps"]) for run in runs] == [("gemini-s2-1", 2)]


UNSEEN = CAPTURED / "unseen"
SESSIONS: dict[str, Any] = (
    json.loads((UNSEEN / "expected.json").read_text())
    if (UNSEEN / "expected.json").exists()
    else {"none": {}}
)


@pytest.mark.parametrize("name", SESSIONS)
def test_what_a_person_counts_in_a_session(tidegauge: Any, name: str) -> None:
    """Sessions of other versions: loops at their end, and healthy ones."""
    if name == "none":
        missing(f"sessions of coding agents are not at {UNSEEN}; TIDEGAUGE_DATA names the folder")
    wanted = SESSIONS[name]["runs"]
    agent = name.partition("-")[0]
    files = map(str, sorted((UNSEEN / name).iterdir()))
    found = tidegauge("replay", "--json", "--from", agent, *files).document
    assert found["skipped_lines"] == 0
    runs = sorted(found["runs"], key=lambda run: run["steps"])
    if name == "qwen-sub":  # its file has the parent's steps only
        wanted = wanted[:1]
    assert [run["steps"] for run in runs] == [run["steps"] for run in wanted]
    loops = [run["loops"][-1] if run["loops"] else None for run in runs]
    ends = [loop and {name: loop[name] for name in ("period", "repeats")} for loop in loops]
    assert ends == [run["loop"] for run in wanted]
    for run, loop in zip(runs, loops, strict=True):
        assert loop is None or loop["first_step"] + loop["steps"] == run["steps"], "to the end"
