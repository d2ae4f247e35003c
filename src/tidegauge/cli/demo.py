"""``tidegauge demo``: agents at work in a small world, measured live, one of them stopped."""

from __future__ import annotations

import random
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegauge.cli.demo_watch import Watch, WatchedRun
from tidegauge.cli.live_table import agents_table, runs_table
from tidegauge.errors import MissingExtraError
from tidegauge.pipeline import Pipeline, configure
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.streaming_metrics.snapshot import GroupSnapshot
from tidegauge.worlds import SCRIPTS, Desk, DocumentWorld

if TYPE_CHECKING:
    from tidegauge.cli import demo_agents

__all__ = ["demo"]


class Worker(NamedTuple):
    """One agent of the demo: its name, the script that it follows, and the tasks it is given."""

    agent: str
    script: str
    tasks: tuple[int, ...]


STOPPED: Final = "looper"
OBSERVED: Final = "looper-observed"
WORKERS: Final = (
    Worker("solver", "solver", (0, 1, 2)),
    Worker(STOPPED, "looper", (1,)),
    Worker(OBSERVED, "looper", (1,)),  # the twin: the same script and draw under another name
    Worker("retrier", "retrier", (1,)),
    Worker("wanderer", "wanderer", (1,)),
)
RULES: Final = (*DEFAULT_RULES, Rule("loop_repeats", 1, "stop", agent=STOPPED))

_TURN_SECONDS: Final = 0.6
_REFRESH_SECONDS: Final = 0.125
_NEWS_LINES: Final = 6
