"""Live observability for language-model agents.

See whether an agent still makes progress while it runs, detect a loop at its onset, and stop the
run before it wastes more. Start with :func:`configure`, :func:`run`,
:func:`agent` and :func:`tool`.
"""

from tidegauge._version import __version__
from tidegauge.errors import (
    CallBlocked,
    ConfigurationError,
    MissingExtraError,
    RunStopped,
    StepEventError,
    TidegaugeError,
)
from tidegauge.events import Decision, ToolDeclaration
from tidegauge.instrumentation.decorators import agent, tool
from tidegauge.pipeline import configure, flush
from tidegauge.runs.context import Run, get_current_run, run
from tidegauge.runs.current import propagate

__all__ = [
    "CallBlocked",
    "ConfigurationError",
    "Decision",
    "MissingExtraError",
    "Run",
    "RunStopped",
    "StepEventError",
    "TidegaugeError",
    "ToolDeclaration",
    "__version__",
    "agent",
    "configure",
    "flush",
    "get_current_run",
    "propagate",
    "run",
    "tool",
]
