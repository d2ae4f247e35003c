"""What the server of processes imports last: warm-ups, so that no case pays for the first use."""

from __future__ import annotations

import gc
import os
import threading
import time

import tidegauge.testing

from . import entry_points, values  # noqa: F401

with tidegauge.testing.capture(), tidegauge.run(agent="warm") as _run:
    _run.act("look")
    _run.observe("nothing")

assert threading.active_count() == 1, threading.enumerate()
_until = time.monotonic() + 10.0
while len(os.listdir("/proc/self/task")) > 1:  # one that has ended is still listed for a moment
    assert time.monotonic() < _until, "a thread that is not Python's"
    time.sleep(0.01)
gc.collect()
gc.freeze()  # a child's collector does not look at what was imported
