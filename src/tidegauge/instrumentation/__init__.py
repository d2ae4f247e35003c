"""What observes agents in their process: adapters report steps to a step sink.

An adapter parses what its framework reports; :mod:`tidegauge.instrumentation.turns` tracks the
model turns and their calls; the recorder joins spans and the sink.
"""

from tidegauge.instrumentation.context import Run, run
from tidegauge.instrumentation.decorators import agent, tool
from tidegauge.instrumentation.recorder import RecordedRun, Recorder

__all__ = ["RecordedRun", "Recorder", "Run", "agent", "run", "tool"]
