"""The exceptions of tidegauge.

::

    TidegaugeError
    ├── RunStopped            the deliberate stop: a policy ended the run
    ├── CallBlocked           a policy answered a repeated call, which was not run
    ├── ConfigurationError    an invalid setting, raised when it is set
    ├── MissingExtraError     an optional dependency is not installed
    └── StepEventError        a step event that cannot be read

Only :class:`RunStopped` and :class:`CallBlocked` ever reach the code of an agent, each under a
policy that asks for it; everything else is raised where a person configures or calls tidegauge
directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TidegaugeError(Exception):
    """Base of every exception that tidegauge raises on purpose.

    All of them can be copied and pickled with their attributes, for process pools.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), self.__dict__


class RunStopped(TidegaugeError):  # noqa: N818 -- not an error but the deliberate stop
    """A policy ended the run. Catch it to resume, hand over or abort.

    Attributes:
        run: id of the run that was stopped.
        step: index (from 0) of the step at which it was stopped. A step stopped when its action
            was issued has not been run.
        reason: name of the signal that exceeded its threshold, such as ``"loop_repeats"``.
        message: the reason in a sentence, for logs and for people.
        metrics: the measured values at this step, by name.
        state: the situation of the run: ``place``, ``unexplored`` places and ``pending`` tasks, at
            most 10 of each, and the names of the ``repeated`` tools.

    >>> stop = RunStopped("r1", step=6, reason="loop_repeats", message="3 steps, repeated twice")
    >>> str(stop)
    'run r1 stopped at step 6: 3 steps, repeated twice'
    """

    def __init__(
        self,
        run: str,
        *,
        step: int,
        reason: str,
        message: str,
        metrics: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"run {run} stopped at step {step}: {message}")
        self.run = run
        self.step = step
        self.reason = reason
        self.message = message
        self.metrics: Mapping[str, Any] = dict(metrics or {})
        self.state: Mapping[str, Any] = dict(state or {})


class CallBlocked(TidegaugeError):  # noqa: N818 -- not an error: the call was answered
    """A policy answered a repeated call of a decorated tool, which was not run.

    It is raised where the tool has no ``on_block`` to answer with. Its text is for the model.

    Attributes:
        tool: name of the tool.
        advice: what repeats, since when, and what was not tried.
    """

    def __init__(self, tool: str, *, advice: str) -> None:
        super().__init__(advice)
        self.tool = tool
        self.advice = advice


class ConfigurationError(TidegaugeError, ValueError):
    """An invalid setting; the message names it and says what to use."""


class MissingExtraError(TidegaugeError, ImportError):
    """An optional dependency is missing; the message says what to install.

    >>> str(MissingExtraError("langchain_core", extra="langchain"))
    "langchain_core is not installed: pip install '.[langchain]' in a clone"
    """

    def __init__(self, module: str, *, extra: str) -> None:
        super().__init__(f"{module} is not installed: pip install '.[{extra}]' in a clone")
        self.module = module
        self.extra = extra


class StepEventError(TidegaugeError, ValueError):
    """A step event that is not of the documented form; the message gives the reason."""


def _restored(kind: type[TidegaugeError], args: tuple[Any, ...]) -> TidegaugeError:
    """An exception with these arguments; its attributes follow."""
    error = kind.__new__(kind, *args)
    super(TidegaugeError, error).__init__(*args)  # not its own, which takes other arguments
    return error
