"""The test kit: what our tests lean on, and users' tests."""

from __future__ import annotations

import tidegauge
from tidegauge.runs.current import get_recorder
from tidegauge.testing import capture


def test_a_capture_holds_what_happened_inside_it():
    with capture() as first, tidegauge.run(agent="a"):
        pass
    with capture() as second, tidegauge.run(agent="b"):
        pass
    assert first.tree() == ["invoke_agent a"]
    assert second.tree() == ["invoke_agent b"]


def test_after_a_capture_nothing_is_configured():
    with capture(stop_on_loop=1) as seen:
        pass
    recorder = get_recorder()
    assert recorder is not seen.pipeline.recorder
    with tidegauge.run() as run:
        for _ in range(5):
            run.act("same", state="same")
    assert seen.spans == []


def test_a_capture_inside_a_capture_leaves_the_inner_s_runs_to_it():
    with capture() as outer:
        with capture() as inner, tidegauge.run(agent="inner"):
            pass
        assert inner.tree() == ["invoke_agent inner"]
    assert outer.tree() == []


def test_the_tree_is_in_order_of_start_whatever_ended_first():
    with capture() as seen, tidegauge.run(agent="a") as run:
        first = run.act("slow").signals.step
        second = run.act("fast").signals.step
        run.observe("done", step=second)
        run.observe("done", step=first)
    assert seen.tree() == ["invoke_agent a", "  execute_tool slow", "  execute_tool fast"]
    assert [span.name for span in seen.spans] == [
        "execute_tool fast",
        "execute_tool slow",
        "invoke_agent a",
    ]
