"""``tidegauge inspect``: files in, trees out; and traces that are received."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import click
import pytest

from tidegauge.cli import inspect as inspect_module
from tidegauge.cli.inspect import InspectSettings, _listen, _Traces
from tidegauge.foreign_spans.span import SpanData

SAID = json.dumps(
    [{"role": "assistant", "parts": [{"type": "tool_call", "name": "look", "arguments": {}}]}]
)


def request(*, trace: int = 7) -> bytes:
    def one(number: int, parent: int, name: str, **attributes: str) -> dict[str, Any]:
        pairs = [
            {"key": key.replace("__", "."), "value": {"stringValue": text}}
            for key, text in attributes.items()
        ]
        return {
            "traceId": f"{trace:032x}",
            "spanId": f"{number:016x}",
            "parentSpanId": f"{parent:016x}" if parent else "",
            "name": name,
            "startTimeUnixNano": str(number),
            "endTimeUnixNano": str(100 - number),
            "attributes": pairs,
        }

    spans = [
        one(1, 0, "invoke_agent", gen_ai__operation__name="invoke_agent"),
        one(2, 1, "chat\x1b", gen_ai__operation__name="chat", gen_ai__output__messages=SAID),
        one(3, 1, "odd", llm__model="m"),
    ]
    scope = {"scope": {"name": "theirs"}, "spans": spans}
    return json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]}).encode()


def test_a_file_is_shown_as_a_tree(tidegauge):
    Path("traces.json").write_bytes(request())
    done = tidegauge("inspect", "traces.json")
    assert done.code == 0
    first, run, *tree = done.out.rstrip("\n").split("\n")
    assert first == f"trace {7:032x}: 3 spans, 1 runs"
    assert run.startswith("  run 1: agent")
    assert run.endswith("1 steps")
    assert tree[0].startswith("  invoke_agent [theirs, OpenTelemetry GenAI]: agent")
    assert tree[1].startswith("    chat\N{REPLACEMENT CHARACTER} [theirs, OpenTelemetry GenAI]")
    assert "step 0 of run 1" in tree[1]
    assert "unknown_convention" in tree[2]


def test_what_was_taken_for_noise_is_said(tidegauge):
    called = SAID.replace('"arguments": {}', '"arguments": {"q": "cats", "attempt": 3}')
    Path("traces.json").write_bytes(
        request().replace(json.dumps(SAID).encode(), json.dumps(called).encode())
    )
    assert "look (not compared: counters)" in tidegauge("inspect", "traces.json").out


def test_standard_input_is_read(tidegauge):
    assert tidegauge("inspect", "-", stdin=request()).out.startswith("trace ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--listen", "a.json"), 2),
        (("missing.json",), 1),
        (("text.json",), 2),
        (("steps.jsonl",), 2),
    ],
)
def test_errors_are_one_line(tidegauge, arguments, code):
    Path("text.json").write_text("{not JSON")
    Path("steps.jsonl").write_text('{"type": "step", "run": "r", "action": "go"}\n')
    done = tidegauge("inspect", *arguments)
    assert done.code == code
    assert len(done.faults) == 1


def test_received_traces_are_shown(monkeypatch, capsys):
    stop = threading.Event()
    monkeypatch.setattr(inspect_module, "set_on_signal", lambda: stop)
    urls: list[str] = []
    echo = click.echo

    def heard(text: str = "", **options: Any) -> None:
        if text.startswith("OTLP"):
            urls.append(text.rpartition(" ")[2])
        echo(text, **options)

    monkeypatch.setattr(click, "echo", heard)
    listening = threading.Thread(
        target=_listen, args=[InspectSettings(listen=True, port=0, quiet=0.0)]
    )
    listening.start()
    try:
        while not urls:
            assert listening.is_alive()
            stop.wait(0.01)
        url = urls[0] if urls[0].endswith("/v1/traces") else f"{urls[0]}/v1/traces"
        for trace in (7, 8):
            sent = urllib.request.Request(
                url, request(trace=trace), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(sent, timeout=10).close()
    finally:
        stop.set()
        listening.join(30)
    out = capsys.readouterr().out
    assert f"trace {7:032x}" in out
    assert f"trace {8:032x}" in out
    assert "unknown_convention" in out


def test_the_traces_that_are_held_are_bounded():
    traces = _Traces(60.0, max_held=2)
    one = SpanData(1, 2, None, "any", "", {}, 0, 1)
    assert traces.offer([one, one])
    assert not traces.offer([one])
    assert traces.quiet() == []
    assert traces.quiet(every=True) == [[one, one]]
    assert traces.offer([one])
    traces.close()
    assert not traces.offer([one])
