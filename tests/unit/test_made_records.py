"""Records that are made without a call of their class have all of its fields."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import tidegauge
from tidegauge import ToolDeclaration
from tidegauge.events import made
from tidegauge.policies import Rule
from tidegauge.testing import capture


def test_each_has_as_many_values_as_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[type] = set()

    def checked(kind: Any, values: tuple[Any, ...]) -> Any:
        assert len(values) == len(kind._fields), kind
        seen.add(kind)
        return made(kind, values)

    for module in [one for name, one in sys.modules.items() if name.startswith("tidegauge")]:
        for name, value in vars(module).items():
            if value is made:
                monkeypatch.setattr(module, name, checked)
    tools = {"wait": ToolDeclaration(poll=3)}
    rules = [Rule("loop_repeats", 2, "nudge")]
    with capture(rules=rules, tools=tools, repetition=True), tidegauge.run() as run:
        for _ in range(4):
            run.act("look", {"at": "it"}, tokens=3)
            run.observe("nothing", error=False)
            run.act_round([("wait", None), ("look", None)])
            run.observe_round([("one", False), ("two", True)])
    assert {kind.__name__ for kind in seen} >= {
        *("DigestedStep", "DigestedOutcome", "IssuedStep", "ObservedStep", "StepSignals"),
        "Decision",
    }
