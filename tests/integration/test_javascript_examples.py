"""The exporter for agents in JavaScript: what it replaces, and what it leaves, in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.requirements import missing

EXAMPLES = Path(__file__).parents[2] / "examples" / "javascript"
PROGRAM = """
const { RedactingExporter } = await import(process.argv[1]);
const exported = [];
const inner = { export: (spans, done) => { exported.push(...spans); done({ code: 0 }); } };
const exporter = new RedactingExporter(inner, "secret");
const status = { code: 2, message: "at home" };
const span = (attributes) => ({ name: "ai.toolCall", attributes, events: [{ name: "e" }], status });
const calls = [{ toolCallId: "1", toolName: "look", input: '{"b": 1, "a": 2}' }];
exporter.export([
  span({ "ai.toolCall.args": '{"a": 2, "b": 1}', "ai.operationId": "ai.toolCall" }),
  span({ "ai.response.toolCalls": JSON.stringify(calls) }),
  span({ "ai.values": ["at home"], "ai.telemetry.metadata.note": "at home", "acme.note": "at home",
    "ai.usage.inputTokens": 7, "gen_ai.response.finish_reasons": ["stop"] }),
], () => {});
console.log(JSON.stringify(exported.map(({ name, attributes, events, status }) =>
  ({ name, attributes, events, status }))));
"""


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        missing("Node.js is not installed: apt-get install nodejs")
    return found


def test_the_exporter_replaces_contents_by_equal_digests_for_equal_contents(node: str) -> None:
    module = (EXAMPLES / "redacting_exporter.mjs").as_uri()
    command = [node, "--input-type=module", "--eval", PROGRAM, module]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "at home" not in ran.stdout
    tool, model, other = json.loads(ran.stdout)
    assert other["attributes"]["ai.usage.inputTokens"] == 7
    assert other["attributes"]["gen_ai.response.finish_reasons"] == ["stop"]
    digest = tool["attributes"]["ai.toolCall.args"]
    assert digest.startswith("sha:")
    assert tool["attributes"]["ai.operationId"] == "ai.toolCall"
    [call] = json.loads(model["attributes"]["ai.response.toolCalls"])
    assert call == {"toolCallId": "1", "toolName": "look", "input": digest}
    assert (tool["name"], tool["events"], tool["status"]) == ("ai.toolCall", [], {"code": 2})


def test_the_announcer_is_a_module_that_node_reads(node: str) -> None:
    subprocess.run([node, "--check", str(EXAMPLES / "announcer.mjs")], check=True, timeout=60)
