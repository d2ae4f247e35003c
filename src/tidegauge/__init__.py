"""Live observability for language-model agents.

See whether an agent still makes progress while it runs, detect a loop at its onset, and stop the
run before it wastes more. Start with :func:`configure`, :func:`run`,
:func:`agent` and :func:`tool`.
"""

import typing as _typing

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
from tidegauge.runs.context import Run, get_current_run, run
from tidegauge.runs.current import propagate
from tidegauge.runs.current import set_recorder_factory as _set_recorder_factory

if _typing.TYPE_CHECKING:
    from tidegauge.pipeline import configure, flush

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


def __getattr__(name: str) -> _typing.Any:
    """``configure`` and ``flush``: they come with the metrics, which a library need not import."""
    if name not in ("configure", "flush"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidegauge import pipeline

    return globals().setdefault(name, getattr(pipeline, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _default_recorder() -> _typing.Any:
    from tidegauge.pipeline.setup import default_recorder

    return default_recorder()


_set_recorder_factory(_default_recorder)
