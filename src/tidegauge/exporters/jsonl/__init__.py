"""JSONL: runs recorded as step events while they go on, to be replayed, calibrated on and judged.

:class:`JsonlSink` turns what a step sink is told into lines; :class:`LineWriter` writes them to a
file that is rotated by size, on a thread of its own.
"""

from tidegauge.exporters.jsonl.sink import JsonlSink
from tidegauge.exporters.jsonl.writer import LineWriter

__all__ = ["JsonlSink", "LineWriter"]
