"""Recorded runs of real agents as the spans that an instrumentation would have sent of them.

Each run is a trace: its agent, and for every step the model call that chose it and the tool call
that was chosen. Spans cannot say all that a recording does: what the agent saw is to them what
its last call brought back, and neither progress nor success is known. A call of which nobody knows
whether it failed has no span: what it brought back is in what the model is shown next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

from support.wire_runs import ACTING, BEGAN, CHOOSING, SCOPE, TOKENS, attributes, interleaved
from tidegauge.cli.main import cli

COUNT = 2_822
"""How many runs there are."""

_REPEATED_IDS = 4
"""So many ids of calls a run has: real ones repeat, too."""


class RecordedRun:
    """One run of a recording.

    Args:
        lines: its lines: how it started, its steps, how it ended.
        began: nanoseconds since the epoch.
    """

    def __init__(self, lines: Sequence[dict[str, Any]], began: int = BEGAN) -> None:
        self.start, *self.steps, self.end = lines
        self.trace_id = hashlib.blake2b(self.start["run"].encode(), digest_size=16).digest()
        self._began = began

    @property
    def id(self) -> str:
        """Its name in everything that knows its spans."""
        return self.trace_id.hex()

    @property
    def resource(self) -> dict[str, str]:
        """What its process says of itself, which is all that the runs in it have in common."""
        fields = {
            "service.name": self.start["agent"],
            "tidegauge.task_group": self.start["task_group"],
        }
        if "t_max" in self.start:
            fields["tidegauge.t_max"] = str(self.start["t_max"])
        return fields

    @cached_property
    def spans(self) -> list[Span]:
        """Its spans, in the order in which they end."""
        return list(self._spans())

    def events(self) -> Iterator[dict[str, Any]]:
        """The run as it was recorded, but for what spans do not say."""
        yield {**self.start, "run": self.id}
        for step in self.steps:
            fields = {key: step[key] for key in ("type", "action", "args", "outcome", "error")}
            fields |= {"run": self.id, "tokens": TOKENS}
            if step["error"] is not None:
                fields["seconds"] = ACTING / 1e9
            yield fields
        yield {"type": "end", "run": self.id}

    def _spans(self) -> Iterator[Span]:
        now = self._began
        ids = (int.from_bytes(self.trace_id[:4]) << 32 | n for n in range(1, 1 << 32))
        root = next(ids).to_bytes(8)
        shown = [_message("user", {"type": "text", "content": self.start["task"]})]
        for n, step in enumerate(self.steps):
            call_id = f"call-{n % _REPEATED_IDS}"
            call = {"type": "tool_call", "id": call_id}
            call |= {"name": step["action"], "arguments": step["args"]}
            chosen = _message("assistant", call)
            yield self._span(
                next(ids), root, "chat some-model", now, CHOOSING, _chat(shown, chosen)
            )
            now += CHOOSING
            if step["error"] is not None:
                name = f"execute_tool {step['action']}"
                tool = self._span(next(ids), root, name, now, ACTING, _tool(step, call_id))
                if step["error"]:
                    tool.status.code = Status.STATUS_CODE_ERROR
                yield tool
            now += ACTING
            answer = {"type": "tool_call_response", "id": call_id, "response": step["outcome"]}
            shown = [shown[0], chosen, _message("tool", answer)]
        said = _message("assistant", {"type": "text", "content": "I am done"})
        yield self._span(next(ids), root, "chat some-model", now, CHOOSING, _chat(shown, said))
        now += CHOOSING
        fields = {"gen_ai.operation.name": "invoke_agent"}
        name = f"invoke_agent {self.start['agent']}"
        yield self._span(int.from_bytes(root), b"", name, self._began, now - self._began, fields)

    def _span(
        self, span_id: int, parent: bytes, name: str, start: int, lasts: int, given: dict[str, Any]
    ) -> Span:
        return Span(
            trace_id=self.trace_id,
            span_id=span_id.to_bytes(8),
            parent_span_id=parent,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start,
            end_time_unix_nano=start + lasts,
            attributes=attributes({"gen_ai.agent.name": self.start["agent"], **given}),
        )


def read_runs(folder: Path) -> list[RecordedRun]:
    """Every run of every recording in a folder; each begins a millisecond after the one before."""
    runs: list[RecordedRun] = []
    for path in sorted(folder.glob("*.events.jsonl")):
        lines: list[dict[str, Any]] = []
        for line in map(orjson.loads, path.read_bytes().splitlines()):
            lines.append(line)
            if line["type"] == "end":
                runs.append(RecordedRun(lines, BEGAN + len(runs) * 1_000_000))
                lines = []
    return runs


@pytest.fixture(scope="session")
def otlp_runs(recorded_runs: Path) -> list[RecordedRun]:
    """All recorded runs."""
    return read_runs(recorded_runs)


@pytest.fixture(scope="session")
def replayed_runs(
    otlp_runs: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What their replay says of them, as far as spans say."""
    found = replayed(tmp_path_factory.mktemp("replay") / "runs.jsonl", *otlp_runs)
    assert len(found) == COUNT
    return found


class _Sent(NamedTuple):
    run: RecordedRun
    span: Span


def requests(
    runs: Iterable[RecordedRun], ways: int = 1, size: int = 512
) -> list[list[ExportTraceServiceRequest]]:
    """What is sent on each of some ways, of the spans of all runs, one of each in turn.

    Args:
        runs: they.
        ways: the spans of a run take them in turn, so that none has a whole run. The requests of
            one number have spans of one time.
        size: spans in a request, about.
    """
    turns = interleaved(
        [[(_Sent(run, span), n % ways) for n, span in enumerate(run.spans)] for run in runs]
    )
    found: list[list[ExportTraceServiceRequest]] = [[] for _ in range(ways)]
    for first in range(0, len(turns), size * ways):
        together = turns[first : first + size * ways]
        for way, sent in enumerate(found):
            sent.append(_request([each for each, taken in together if taken == way]))
    return found


def replayed(path: Path, *runs: RecordedRun) -> dict[str, dict[str, Any]]:
    """What ``tidegauge replay`` says of each run, by its id.

    Args:
        path: where its recording is written first.
        runs: they.
    """
    with path.open("wb") as file:
        for run in runs:
            for event in run.events():
                file.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
    ran = CliRunner().invoke(cli, ["replay", "--json", "--strict", str(path)])
    assert (ran.exit_code, ran.stderr) == (0, "")
    return {entry["run"]: entry for entry in json.loads(ran.stdout)["runs"]}


def _request(sent: Sequence[_Sent]) -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    by_process: dict[tuple[tuple[str, str], ...], ResourceSpans] = {}
    for run, span in sent:
        resource = run.resource
        process = by_process.get(tuple(resource.items()))
        if process is None:
            process = by_process[tuple(resource.items())] = made.resource_spans.add()
            process.resource.attributes.extend(attributes(resource))
            process.scope_spans.add().scope.name = SCOPE
        process.scope_spans[0].spans.append(span)
    return made


def _message(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def _chat(shown: list[dict[str, Any]], said: dict[str, Any]) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "some-model",
        "gen_ai.input.messages": json.dumps(shown),
        "gen_ai.output.messages": json.dumps([{**said, "finish_reason": "stop"}]),
        "gen_ai.usage.input_tokens": TOKENS - 2,
        "gen_ai.usage.output_tokens": 2,
    }


def _tool(step: dict[str, Any], call_id: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step["action"],
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": step["args"],
        "gen_ai.tool.call.result": step["outcome"],
    }
