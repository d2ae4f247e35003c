"""Fleets: runs of many agents measured centrally, and what an agent asks there.

:class:`DecisionClient` is for the agent's process: it learns from ``tidegauge decisions`` that a
run is to stop. The rest is for the processes behind the topic, and needs their extras.
"""

from tidegauge.fleet.client import DecisionClient
from tidegauge.fleet.watched_run import WatchedRun

__all__ = ["DecisionClient", "WatchedRun"]
