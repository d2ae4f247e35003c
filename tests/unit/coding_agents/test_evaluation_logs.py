"""What evaluation harnesses write: trajectories in ATIF, and logs of Inspect."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from backports.zstd import zipfile
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.coding_agents import inspect_logs
from tidegauge.coding_agents.agents import SESSIONS, find_sessions, guess_agent
from tidegauge.coding_agents.session_transcript import SessionError
from tidegauge.recordings.step_events import parse_event

Lines = list[dict[str, Any]]


def written(path: Path, whole: object) -> Path:
    path.write_text(json.dumps(whole))
    return path


def lines_of(path: Path) -> Lines:
    found = guess_agent(path)
    assert found is not None
    return [line for part in SESSIONS[found].read(path) for line in part.lines]


def of_type(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if line["type"] == kind]


def calls_of(lines: Lines, run: str | None = None) -> list[list[dict[str, Any]]]:
    steps = of_type(lines, "step")
    return [step["calls"] for step in steps if run is None or step["run"] == run]


# -- ATIF ----------------------------------------------------------------------------------------


def agent_step(number: int, *calls: tuple[str, str], **fields: Any) -> dict[str, Any]:
    """A step whose calls (id, place) look into places."""
    return {
        "step_id": number,
        "source": "agent",
        "message": "",
        "tool_calls": [
            {"tool_call_id": one, "function_name": "look", "arguments": {"place": place}}
            for one, place in calls
        ],
        "observation": {
            "results": [
                {"source_call_id": one, "content": f"{place} is empty"} for one, place in calls
            ]
        },
        **fields,
    }


def trajectory(*steps: dict[str, Any], version: str = "ATIF-v1.8", **fields: Any) -> dict[str, Any]:
    user = {"step_id": 1, "source": "user", "message": "find the key"}
    return {
        "schema_version": version,
        "session_id": "s1",
        "agent": {"name": "looker", "version": "1", "model_name": "m1"},
        "steps": [{"step_id": 0, "source": "system", "message": "be kind"}, user, *steps],
        **fields,
    }


LOOK = {"action": "look", "args": {"place": "desk"}, "outcome": "desk is empty"}


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.4", "ATIF-v1.8"])
def test_a_trajectory_is_a_run_and_an_answer_with_calls_a_step(
    tmp_path: Path, version: str
) -> None:
    steps = [
        agent_step(2, ("a", "desk"), ("b", "box"), metrics={"prompt_tokens": 9}),
        agent_step(3, ("c", "desk"), timestamp="2026-01-01T00:00:05Z"),
        {"step_id": 4, "source": "user", "message": "go on"},
        {"step_id": 5, "source": "agent", "message": "none"},
    ]
    path = written(tmp_path / "trajectory.json", trajectory(*steps, version=version))
    start, first, second, end = lines_of(path)
    assert (start["run"], start["agent"]) == ("atif-s1-1", "looker")
    assert (start["task"], start["model"]) == ("find the key", "m1")
    assert [call["args"]["place"] for call in first["calls"]] == ["desk", "box"]
    assert first["tokens"] == 9
    assert second["calls"] == [LOOK]
    assert second["time"] == "2026-01-01T00:00:05+00:00"
    assert "tokens" not in second
    assert end["type"] == "end"
    assert "success" not in end


def test_the_screen_of_a_terminal_is_the_result_of_the_last_call(tmp_path: Path) -> None:
    step = agent_step(2, ("a", "desk"), ("b", "box"))
    step["observation"] = {"results": [{"content": [{"type": "text", "text": "$ "}]}]}
    lines = lines_of(written(tmp_path / "trajectory.json", trajectory(step)))
    [[first, last]] = calls_of(lines)
    assert "outcome" not in first
    assert last["outcome"] == "$ "


def test_what_was_copied_from_an_earlier_trajectory_counts_there(tmp_path: Path) -> None:
    copied = agent_step(2, ("a", "desk"), is_copied_context=True)
    path = written(tmp_path / "t.json", trajectory(copied, agent_step(3, ("b", "desk"))))
    assert calls_of(lines_of(path)) == [[LOOK]]


def test_sub_agents_are_runs(tmp_path: Path) -> None:
    inner = trajectory(agent_step(2, ("x", "box")), trajectory_id="t2")
    inner["agent"]["name"] = "helper"
    outer = trajectory(agent_step(2, ("a", "desk")), subagent_trajectories=[inner])
    lines = lines_of(written(tmp_path / "t.json", outer))
    agents = {line["run"]: line["agent"] for line in of_type(lines, "start")}
    assert agents == {"atif-s1-1": "looker", "atif-t2-1": "helper"}
    assert [len(calls_of(lines, run)) for run in agents] == [1, 1]


# -- Inspect -------------------------------------------------------------------------------------

EVAL = {"eval_id": "e1", "run_id": "r1", "task": "keys", "model": "m1"}
HEADER = {"version": 2, "status": "success", "eval": EVAL}


def model_event(*calls: tuple[str, str], span: str = "root", **fields: Any) -> dict[str, Any]:
    tool_calls = [
        {"id": one, "function": "look", "arguments": {"place": place}} for one, place in calls
    ]
    message = {"role": "assistant", "content": "", "tool_calls": tool_calls}
    output = {"choices": [{"message": message}], "usage": {"total_tokens": 12}}
    return {"event": "model", "model": "m2", "span_id": span, "output": output, **fields}


def tool_event(call: str, result: Any = "", **fields: Any) -> dict[str, Any]:
    return {"event": "tool", "id": call, "function": "look", "result": result, **fields}


def span(name: str, kind: str, parent: str | None = None) -> dict[str, Any]:
    return {"event": "span_begin", "id": name, "parent_id": parent, "name": name, "type": kind}


def sample(*events: dict[str, Any], **fields: Any) -> dict[str, Any]:
    scores = {"includes": {"value": "C"}}
    begun = {"id": "s1", "epoch": 1, "input": "find the key", "scores": scores}
    return {**begun, "events": list(events), **fields}


ONE = sample(
    model_event(("a", "desk"), timestamp="2026-01-01T00:00:00+00:00"),
    tool_event("a", "desk is empty", completed="2026-01-01T00:00:02+00:00"),
    model_event(),
)


def log(*samples: Any) -> dict[str, Any]:
    return {**HEADER, "samples": list(samples)}


def packed(path: Path, *samples: Any, kind: int = zipfile.ZIP_ZSTANDARD, **others: Any) -> Path:
    members = {"header.json": HEADER, **others}
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, content in members.items():
            file.writestr(name, json.dumps(content))
        for number, one in enumerate(samples):
            file.writestr(f"samples/s{number}_epoch_1.json", json.dumps(one))
    return path


@pytest.mark.parametrize(
    "kind", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_ZSTANDARD]
)
def test_a_sample_is_a_run(tmp_path: Path, kind: int | None) -> None:
    if kind is None:
        path = written(tmp_path / "log.json", log(ONE))
    else:
        path = packed(tmp_path / "log.eval", ONE, kind=kind)
    start, step, end = lines_of(path)
    assert (start["run"], start["agent"]) == ("inspect-e1-s1-1-1", "inspect")
    assert (start["task"], start["task_group"]) == ("find the key", "keys")
    assert start["model"] == "m1"
    assert step["calls"] == [LOOK | {"error": False}]
    assert (step["tokens"], step["seconds"]) == (12, 2.0)
    assert (end["type"], end["success"]) == ("end", True)


def test_calls_of_one_answer_are_a_step_and_errors_their_results(tmp_path: Path) -> None:
    failed = {"type": "permission", "message": "locked"}
    events = [
        model_event(("a", "desk"), ("b", "box")),
        tool_event("b", error=failed),
        tool_event("a", "desk is empty"),
    ]
    lines = lines_of(written(tmp_path / "log.json", log(sample(*events))))
    [[first, second]] = calls_of(lines)
    assert first == LOOK | {"error": False}
    assert (second["outcome"], second["error"]) == ("locked", True)


def test_agents_inside_are_runs_and_scoring_is_none(tmp_path: Path) -> None:
    events = [
        span("solvers", "solvers"),
        span("chief", "agent", "solvers"),
        model_event(("a", "ask"), span="chief"),
        span("helper", "agent", "chief"),
        span("turn", "step", "helper"),
        model_event(("b", "desk"), span="turn"),
        tool_event("b", "desk is empty", span_id="turn"),
        model_event(span="turn"),
        tool_event("a", "nothing", span_id="chief"),
        model_event(("c", "box"), span="chief"),
        tool_event("c", "box is empty"),
        span("scoring", "scorer"),
        model_event(("d", "box"), span="scoring"),
    ]
    lines = lines_of(written(tmp_path / "log.json", log(sample(*events))))
    agents = {line["run"]: line["agent"] for line in of_type(lines, "start")}
    assert agents == {"inspect-e1-s1-1-1": "chief", "inspect-e1-s1-1-1-1": "helper"}
    assert [len(calls_of(lines, run)) for run in agents] == [2, 1]
    assert calls_of(lines, "inspect-e1-s1-1-1-1") == [[LOOK | {"error": False}]]
    ends = {line["run"]: line.get("success") for line in of_type(lines, "end")}
    assert list(ends.values()) == [True, None]


def test_messages_are_read_where_there_are_no_events(tmp_path: Path) -> None:
    calls = [{"id": "a", "function": "look", "arguments": {"place": "desk"}}]
    messages = [
        {"role": "user", "content": "find the key"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "desk is empty"},
    ]
    path = written(tmp_path / "log.json", log(sample(messages=messages)))
    assert calls_of(lines_of(path)) == [[LOOK | {"error": False}]]


def test_attachments_are_what_they_stand_for(tmp_path: Path) -> None:
    one = copy.deepcopy(ONE) | {"attachments": {"f00": "desk is empty", "ba4": "desk"}}
    one["events"][1]["result"] = "attachment://f00"
    place = one["events"][0]["output"]["choices"][0]["message"]["tool_calls"][0]["arguments"]
    place["place"] = "attachment://ba4"
    assert calls_of(lines_of(written(tmp_path / "log.json", log(one)))) == [
        [LOOK | {"error": False}]
    ]


@pytest.mark.parametrize(
    ("values", "success"),
    [
        (["C"], True),
        (["I"], False),
        ([1], True),
        ([0.0], False),
        (["C", True], True),
        (["C", "I"], None),
        ([0.5], None),
        (["P"], None),
        ([{"a": 1}], None),
        ([], None),
    ],
)
def test_success_is_what_all_scores_say(
    tmp_path: Path, values: list[Any], success: bool | None
) -> None:
    scores = {str(number): {"value": value} for number, value in enumerate(values)}
    path = written(tmp_path / "log.json", log(sample(model_event(), scores=scores)))
    assert lines_of(path)[-1].get("success") is success


def test_why_a_sample_ended(tmp_path: Path) -> None:
    limited = sample(limit={"type": "message", "limit": 3})
    broken = sample(error={"message": "no model"}, epoch=2)
    ends = of_type(lines_of(written(tmp_path / "log.json", log(limited, broken))), "end")
    assert [end["reason"] for end in ends] == ["limit: message", "error"]


def test_an_evaluation_that_was_cut_short_has_a_header_in_its_journal(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as file:
        file.writestr("_journal/start.json", json.dumps({"version": 2, "eval": EVAL}))
        file.writestr("samples/s1_epoch_1.json", json.dumps(ONE))
    assert of_type(lines_of(tmp_path / "log.eval"), "start")[0]["task_group"] == "keys"


def test_a_sample_that_is_too_large_or_broken_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect_logs, "_MAX_SAMPLE_BYTES", 10_000)
    path = packed(tmp_path / "log.eval", sample(messages="x" * 20_000), ONE, 5)
    parts = list(SESSIONS["inspect"].read(path))
    assert [part.error is None for part in parts] == [False, True, False]
    assert "too large" in str(parts[0].error)


@pytest.mark.parametrize(
    "kind",
    [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_ZSTANDARD, 99],
)
@pytest.mark.parametrize("member", ["samples/s0_epoch_1.json", "header.json"])
@pytest.mark.parametrize("where", ["beginning", "middle"])
def test_a_member_that_cannot_be_unpacked_costs_itself(
    tmp_path: Path, kind: int, member: str, where: str
) -> None:
    """Each way of packing has its own exceptions."""
    path = packed(
        tmp_path / "log.eval", ONE, ONE, kind=zipfile.ZIP_DEFLATED if kind == 99 else kind
    )
    with zipfile.ZipFile(path) as file:
        info = file.getinfo(member)
    content = bytearray(path.read_bytes())
    begin = info.header_offset + 30 + len(member)
    if kind == 99:  # a way that no one knows, also in the directory at the end
        content[info.header_offset + 8] = 99
        content[content.index(member.encode(), begin + info.compress_size) - 46 + 10] = 99
    broken = begin + (0 if where == "beginning" else info.compress_size // 2)
    for index in range(broken, min(broken + 12, begin + info.compress_size)):
        content[index] ^= 0xFF
    path.write_bytes(content)
    if member == "header.json":
        with pytest.raises(SessionError, match=r"header\.json"):
            list(SESSIONS["inspect"].read(path))
    else:
        broken_part, whole = SESSIONS["inspect"].read(path)
        assert member in str(broken_part.error)
        assert broken_part.lines == []
        assert whole.error is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.eval", b"PK\3\4 and no more"),
        ("log.eval", b""),
        ("log.json", b"{}"),
        ("log.json", b"[1"),
    ],
)
@pytest.mark.parametrize("kind", ["inspect", "atif"])
def test_a_broken_file_is_one_line(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SessionError):
        list(SESSIONS[kind].read(path))


def test_a_zip_file_without_a_header_is_no_log(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as file:
        file.writestr("notes.txt", "none")
    with pytest.raises(SessionError, match=r"no header\.json"):
        list(SESSIONS["inspect"].read(tmp_path / "log.eval"))


def test_what_to_install_for_zstandard_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile as plain

    path = packed(tmp_path / "log.eval", ONE)
    monkeypatch.setattr(inspect_logs, "_zipfile", lambda: plain)
    with pytest.raises(SessionError, match=r"pip install '\.\[inspect\]' in a clone"):
        list(SESSIONS["inspect"].read(path))


def test_a_folder_has_the_logs_that_are_named_as_inspect_does(tmp_path: Path) -> None:
    names = ["2026-11-24T02-48-16-00-00_keys_1.json", "2026-11-24T02-48-16-00-00_keys_2.eval"]
    for name in [*names, "notes.json"]:
        (tmp_path / name).write_text("{}")
    assert [path.name for path in find_sessions(tmp_path, "inspect")] == names


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/:", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data(), kind=st.sampled_from(["atif", "inspect"]))
def test_any_value_at_any_place_gives_valid_lines_or_none(
    data: st.DataObject, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    given = trajectory(agent_step(2, ("a", "desk"))) if kind == "atif" else log(ONE)
    whole = copy.deepcopy(given)
    for _ in range(data.draw(st.integers(1, 3))):
        node: Any = whole
        while isinstance(node, dict | list) and node:
            key: Any = data.draw(
                st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))
            )
            if not isinstance(node[key], dict | list) or data.draw(st.booleans()):
                node[key] = data.draw(values)
                break
            node = node[key]
    path = written(tmp_path_factory.mktemp("any") / "log.json", whole)
    try:
        lines = [line for part in SESSIONS[kind].read(path) for line in part.lines]
    except SessionError:
        return
    for line in lines:
        parse_event(line)
