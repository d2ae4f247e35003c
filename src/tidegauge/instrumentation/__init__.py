"""Every way in: each turns what it sees into events for a step sink."""

from tidegauge.instrumentation.context import Run, run
from tidegauge.instrumentation.decorators import agent, tool
from tidegauge.instrumentation.recorder import RecordedRun, Recorder

__all__ = ["RecordedRun", "Recorder", "Run", "agent", "run", "tool"]
