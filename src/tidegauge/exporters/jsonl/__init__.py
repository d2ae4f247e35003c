"""JSONL: runs recorded as step events while they go on, to be replayed, calibrated on and judged.

:class:`JsonlSink` turns what a step sink is told into lines, in which :class:`Contents` says what
is shown; :class:`LineWriter` writes them to a file that is rotated by size, on a thread of its own.
:func:`run_entry` tells the numbers of one run.
"""

from tidegauge.exporters.jsonl.contents import Contents
from tidegauge.exporters.jsonl.run_entry import run_entry
from tidegauge.exporters.jsonl.sink import JsonlSink
from tidegauge.exporters.jsonl.writer import LineWriter

__all__ = ["Contents", "JsonlSink", "LineWriter", "run_entry"]
