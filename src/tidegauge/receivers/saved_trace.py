"""What an assembly holds of a trace as plain data, so that another process can continue it.

Every attribute of the objects that a trace consists of is kept, unless it is named here.
"""

from __future__ import annotations

from typing import Any, Final

from opentelemetry._logs import NoOpLogger
from opentelemetry.trace import NoOpTracer

from tidegauge.events import ABSENT, CallResult, RunStarted
from tidegauge.foreign_spans.dedupe import Interval, SeenModel
from tidegauge.foreign_spans.external_run import Earliest, ExternalRun, Node
from tidegauge.foreign_spans.matching import SpanCall, SpanTurn, SpanTurns
from tidegauge.foreign_spans.span import (
    UNKNOWN_ARGUMENTS,
    AgentSpan,
    ModelSpan,
    ReadSpan,
    RunInfo,
    SpanData,
    ToolSpan,
)
from tidegauge.receivers.plain_objects import Kept, PlainObjects
from tidegauge.receivers.span_events import WaitingEvents
from tidegauge.receivers.trace_state import OpenTrace, ParentlessRuns
from tidegauge.runs.recorder import RecordedRun, Recorder
from tidegauge.runs.turn_calls import ChosenCall, OpenTurns
from tidegauge.tracer import SpanFactory

VERSION: Final = 1
"""Increase it whenever the meaning of an attribute changes; a new attribute needs nothing."""


_NOWHERE: Final = SpanFactory(NoOpTracer(), NoOpLogger("tidegauge"))
_NO_SINK: Final[Any] = None
_RECORDER: Final = Recorder(_NO_SINK, _NOWHERE)


def _new_run() -> ExternalRun:
    return ExternalRun(_new_recorded(), _new_node(), "")


def _new_node() -> Node:
    return Node(0, 0, None, name="", scope="", live=None)


def _new_recorded() -> RecordedRun:
    return RecordedRun(_RECORDER, RunStarted(run=""))


_PLAIN: Final = PlainObjects(
    [
        Kept(Node, _new_node, ("_ended", "_reading")),
        Kept(ExternalRun, _new_run, ("size",)),
        # What a decision was based on is for agents in this process.
        Kept(SpanTurns, lambda: SpanTurns(_new_recorded()), ("_reports", "_last", "_by_id")),
        Kept(SpanTurn, lambda: SpanTurn([], 0, ""), ("decision", "issued", "seen")),
        Kept(SpanCall, lambda: SpanCall("", None), ("span",)),
        Kept(OpenTurns, OpenTurns),
        Kept(
            RecordedRun,
            _new_recorded,
            ("_recorder", "spans", "_extractors", "_delivered", "decision", "nudge", "request"),
        ),
        Kept(RunStarted, lambda: RunStarted(run="")),
        Kept(OpenTrace, OpenTrace),
        Kept(ParentlessRuns, ParentlessRuns),
        Kept(WaitingEvents, WaitingEvents),
    ],
    [
        SpanData,
        ReadSpan,
        RunInfo,
        AgentSpan,
        ModelSpan,
        ToolSpan,
        ChosenCall,
        CallResult,
        SeenModel,
        Interval,
        Earliest,
    ],
    [ABSENT, UNKNOWN_ARGUMENTS],
    shared=(SeenModel,),
)


def write_trace(held: dict[str, Any]) -> Any:
    """The plain form of what an assembly holds of a trace.

    Raises:
        TypeError: something has no plain form.
    """
    return [VERSION, _PLAIN.write(held)]


def read_trace(plain: Any, recorder: Recorder) -> dict[str, Any]:
    """What :func:`write_trace` was called with; its runs report to a recorder.

    Raises:
        ValueError: it has another version or form.
    """
    version, data = plain if isinstance(plain, list) and len(plain) == 2 else (None, None)
    if version != VERSION:
        raise ValueError(
            f"the state of a trace has version {version!r}; only {VERSION} can be read"
        )
    held = _PLAIN.read(data, RecordedRun={"_recorder": recorder, "_extractors": ()})
    if not isinstance(held, dict):
        raise ValueError("the state of a trace has another form")
    return held
