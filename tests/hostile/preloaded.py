"""What the server of processes imports last: warm-ups, so that no case pays for the first use."""

from __future__ import annotations

import gc
import os
import threading

import tidegauge.testing

from . import entry_points, values  # noqa: F401

with tidegauge.testing.capture(), tidegauge.run(agent="warm") as _run:
    _run.act("look")
    _run.observe("nothing")

assert threading.active_count() == 1, threading.enumerate()
assert len(os.listdir("/proc/self/task")) == 1, "a thread that is not Python's"
gc.collect()
gc.freeze()  # a child's collector does not look at what was imported
