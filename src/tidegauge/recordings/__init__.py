"""Recorded runs in the step-event format (JSONL): written during runs, read and replayed.

:class:`RunLines` turns events into lines, with contents encoded by :class:`ContentEncoder`;
:class:`LineWriter` writes them to a file that is rotated by size, in a separate thread.
:mod:`~tidegauge.recordings.step_events` reads the lines, and
:mod:`~tidegauge.recordings.line_replay` feeds them to a sink.
"""

from tidegauge.recordings.encoding import ContentEncoder
from tidegauge.recordings.run_lines import RunLines
from tidegauge.recordings.writer import LineWriter

__all__ = ["ContentEncoder", "LineWriter", "RunLines"]
