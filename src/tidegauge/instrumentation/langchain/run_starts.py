"""What is known of a run when it begins: from the input and the metadata of its root chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.events import RunStarted
from tidegauge.instrumentation.langchain.agent_run import Scope, WaitingKey
from tidegauge.instrumentation.langchain.parsing import AGENT_NAME, task_text
from tidegauge.runs.open_run import find_current_run
from tidegauge.runs.recorder import new_run_id
from tidegauge.runs.request_metadata import RunLabels, run_labels
from tidegauge.values.safe_reading import label, text_digest

UNNAMED: Final = "LangGraph"
"""LangGraph's name of a graph that has no other."""

_ENTRY: Final = "__start__"


def root_run(
    inputs: object,
    metadata: Mapping[str, Any],
    *,
    labels: RunLabels,
    name: object,
    model: str | None,
    around: Scope | None,
) -> RunStarted:
    """The run of a chain that a handler was given to.

    Args:
        inputs: its input; looked at for the task only.
    """
    given = run_labels(metadata)
    if around is not None:
        parent: str | None = around.run.recorded.id
    else:
        outer = find_current_run()
        parent = outer.run.id if outer else None
    return RunStarted(
        run=new_run_id(),
        agent=given.agent or labels.agent or _name(metadata, name),
        task=given.task or task_text(inputs),
        task_group=given.task_group or labels.task_group or "",
        t_max=given.t_max or labels.t_max,
        model=model,
        memory=given.memory or labels.memory,
        parent=parent,
        conversation=_conversation(metadata),
    )


def entrypoint_name(metadata: Mapping[str, Any]) -> str | None:
    """The name of the function that a graph consists of, if it is one of the functional API."""
    triggers = metadata.get("langgraph_triggers")
    if type(triggers) is not tuple or len(triggers) != 1 or label(triggers[0]) != _ENTRY:
        return None
    return label(metadata.get("langgraph_node"))


def child_run(
    inputs: object, metadata: Mapping[str, Any], *, name: object, around: Scope
) -> RunStarted:
    """The run of an agent that is invoked inside another one's.

    Args:
        metadata: its metadata; labels that are the same as in the run around it are inherited, and
            not this run's.
    """
    outer = around.run.recorded.event
    known = around.run.metadata
    given = run_labels(metadata, known)
    inherited = metadata.get(AGENT_NAME) == known.get(AGENT_NAME)
    return RunStarted(
        run=new_run_id(),
        agent=given.agent or (inherited and label(name)) or _name(metadata, name),
        task=given.task or task_text(inputs),
        task_group=given.task_group or outer.task_group,
        t_max=given.t_max,
        memory=given.memory or outer.memory,
        parent=outer.run,
        conversation=outer.conversation or _conversation(metadata),
    )


def branch_run(
    inputs: object, metadata: Mapping[str, Any], *, name: object, around: Scope
) -> RunStarted:
    """The run of a branch of an agent's run, named after its node, else after its chain."""
    node = label(metadata.get("langgraph_node")) or label(name) or ""
    outer = around.run.recorded.event
    return RunStarted(
        run=new_run_id(),
        agent=node,
        task=task_text(inputs),
        task_group=outer.task_group,
        memory=outer.memory,
        parent=outer.run,
        conversation=outer.conversation or _conversation(metadata),
    )


def waiting_key(event: RunStarted, metadata: Mapping[str, Any]) -> WaitingKey | None:
    """Where a run waits when its graph is interrupted; ``None``, it has no thread to wait in.

    A graph inside another one is given by its place there, and by its task: one node or tool may
    invoke the same agent several times.
    """
    thread = _conversation(metadata)
    if thread is None:
        return None
    place = label(metadata.get("langgraph_checkpoint_ns"))
    task = text_digest(event.task) if place and event.task is not None else None
    return thread, event.agent, place or "", task


def _name(metadata: Mapping[str, Any], name: object) -> str:
    return label(metadata.get(AGENT_NAME)) or label(name) or ""


def _conversation(metadata: Mapping[str, Any]) -> str | None:
    return label(metadata.get("thread_id"))
