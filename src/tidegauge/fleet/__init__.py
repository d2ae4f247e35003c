"""Fleets: runs of many agents measured in one place, and decisions that agents ask for.

:class:`DecisionClient` is for the agent's process: it learns from ``tidegauge decisions`` that a
run must stop. The rest is for the processes around the topic, and needs their extras: ``gateway``
writes what it receives to the topic (``fleet_messages``), workers measure it.
"""

from tidegauge.fleet.client import DecisionClient, WorkerRun

__all__ = ["DecisionClient", "WorkerRun"]
