"""Live observability for language-model agents.

See, while a run is going on, whether the agent still makes progress; learn of a loop at its
onset; end the run before it burns more. Start with :func:`configure`, :func:`run`,
:func:`agent` and :func:`tool`.
"""

from tidegauge._version import __version__
from tidegauge.errors import (
    ConfigurationError,
    MissingExtraError,
    RunStopped,
    StepEventError,
    TidegaugeError,
)
from tidegauge.events import Decision
from tidegauge.instrumentation.context import Run, run
from tidegauge.instrumentation.decorators import agent, tool
from tidegauge.pipeline import configure

__all__ = [
    "ConfigurationError",
    "Decision",
    "MissingExtraError",
    "Run",
    "RunStopped",
    "StepEventError",
    "TidegaugeError",
    "__version__",
    "agent",
    "configure",
    "run",
    "tool",
]
