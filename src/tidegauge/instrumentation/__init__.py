"""What observes agents in their process: adapters report steps to a step sink.

An adapter parses what its framework reports and hands it to a run of :mod:`tidegauge.runs`.
"""

from tidegauge.instrumentation.decorators import agent, tool
from tidegauge.runs.context import Run, run
from tidegauge.runs.recorder import RecordedRun, Recorder

__all__ = ["RecordedRun", "Recorder", "Run", "agent", "run", "tool"]
