"""A run that waits as plain data (JSON), and back: the adapter's part, beside the engine's state.

It has no contents: neither arguments nor results of its calls. A result that is missing is read
from the answers that the model is shown next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope
from tidegauge.runs.recorder import Recorder
from tidegauge.runs.task_attempts import Attempts
from tidegauge.runs.waiting_runs import SavedRun

_NO_ROOT: Final = UUID(int=0)


def save_agent_run(run: AgentRun) -> dict[str, Any]:
    """The state of a run that waits, and of those that wait inside it."""
    return {
        "run": run.recorded.id,
        "key": run.key,
        "trace_id": run.recorded.event.trace_id,
        "span_id": run.recorded.event.span_id,
        "steps": run.recorded.steps,
        "turns": run.turns.state(),
        "nodes": sorted(run.asking),
        "continues": run.continues,
        "idle_seconds": run.idle_seconds,
        "tasks": {task: done.state() for task, done in run.interrupted_tasks.items()},
        "inside": [save_agent_run(inside) for inside in run.waiting],
    }


def load_agent_run(recorder: Recorder, saved: SavedRun) -> AgentRun:
    """A run from its state. Those inside it wait again.

    Raises:
        KeyError, TypeError, ValueError: the state has another form.
    """
    return _load(recorder, saved, saved.state, None)


def _load(
    recorder: Recorder, saved: SavedRun, state: Mapping[str, Any], around: AgentRun | None
) -> AgentRun:
    event = saved.starts[state["run"]]
    ids = state["trace_id"], state["span_id"]
    recorded = recorder.restore_run(event, steps=state["steps"], trace_id=ids[0], span_id=ids[1])
    thread, agent, place, task = state["key"]
    key = (thread, agent, place, task)
    run = AgentRun(_NO_ROOT, recorded, {}, key=key, idle_seconds=state["idle_seconds"])
    run.turns.load(state["turns"])
    run.asking = set(state["nodes"])
    run.continues = state["continues"]
    for inside in state["inside"]:
        run.waiting.append(_load(recorder, saved, inside, run))
    trackers = {one.recorded.id: one.turns for one in (run, *run.waiting)}
    for task, done in state["tasks"].items():
        run.interrupted_tasks[task] = Attempts.load(done, trackers)
    if around is not None:
        run.around = Scope(around)
        recorder.waiting.add(run)
    return run
