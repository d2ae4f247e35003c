"""The deliberate stop, in the form that the Agents SDK lets through."""

from __future__ import annotations

from agents import AgentsException

from tidegauge.errors import RunStopped

__all__ = ["AgentRunStopped"]


class AgentRunStopped(RunStopped, AgentsException):
    """A policy ended the run.

    As an exception of the SDK's own it is not wrapped on its way out, and carries ``run_data``:
    the input, the items and the responses of all turns before the one that was stopped.
    """
