"""The report of recorded files, written: with contents or without, and how far it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b

from tidegauge._private_files import private
from tidegauge._version import __version__
from tidegauge.cli.document import document
from tidegauge.cli.faults import FaultLog
from tidegauge.cli.gathered import GatheredRuns, LineTaker
from tidegauge.cli.progress import StageProgress
from tidegauge.cli.recorded import replay_files
from tidegauge.cli.wordless import wordless_line
from tidegauge.diagnose.recorded_run import ReportedRun
from tidegauge.diagnose.report.action_map import Embedder, tf_idf
from tidegauge.diagnose.report.contents import STAGES, contents
from tidegauge.diagnose.report.page import page
from tidegauge.diagnose.scores import Score, read_scores
from tidegauge.exporters.jsonl.contents import Contents
from tidegauge.instrumentation.replay import Replay
from tidegauge.policies import Policy

__all__ = ["write_report"]


def write_report(
    files: Sequence[str],
    out: str | os.PathLike[str],
    *,
    scores: str | None = None,
    with_contents: bool = True,
    t_max: int | None = None,
    policy: Policy | None = None,
    ignore_actions: Sequence[str] = (),
    embed: Embedder = tf_idf,
    faults: FaultLog | None = None,
) -> int:
    """Write the page of some recordings; how many runs there are.

    Args:
        files: the recordings, read as one.
        out: where the page goes.
        scores: the file of what judges said.
        with_contents: whether the page tells what the recordings say, or digests.
        t_max: turns within which success counts, whatever the runs say.
        policy: marks where it would step in, and ends runs where it stops them.
        ignore_actions: actions that are left out.
        embed: gives a row of numbers for each action's text: what the map of actions is drawn of.
        faults: told what is wrong with the recordings.

    Raises:
        OSError: the page cannot be written, or the scores not be read.
        ConfigurationError: the scores are none.
    """
    judged: list[Score] = []
    if scores is not None:
        with open(scores, "rb") as lines:
            judged = read_scores(lines, scores)
    faults = faults or FaultLog(strict=False)
    gathered = GatheredRuns(policy or Policy())
    recording = Replay(
        gathered, ignore_actions=frozenset(ignore_actions), t_max=t_max, on_fault=faults.fault
    )
    replay_files(files, LineTaker(recording, gathered.keep_line), faults)
    runs = gathered.reported()
    told = document(gathered.runs, skipped_lines=recording.skipped_lines)
    groups = gathered.runs.groups().items()
    with ExitStack() as stack:
        progress = stack.enter_context(StageProgress(len(STAGES) + 1))
        data = contents(
            runs,
            {
                key: (group, entry)
                for (key, group), entry in zip(groups, told["groups"], strict=True)
            },
            memory_index=told["memory_index"],
            scores=judged,
            with_contents=with_contents,
            embed=embed,
            begin=progress.begin,
        )
        data["version"] = __version__
        data["sources"] = [os.path.basename(file) for file in files]
        data["skipped_lines"] = told["skipped_lines"]
        progress.begin("the page")
        text = page(data, _lines(runs) if with_contents else _wordless_lines(runs))
        with open(out, "w", encoding="utf-8", opener=private) as file:
            file.write(text)
    return len(runs)


def _lines(runs: Sequence[ReportedRun]) -> Iterator[bytes]:
    return (line for run in runs for line in run.lines)


def _wordless_lines(runs: Sequence[ReportedRun]) -> Iterator[bytes]:
    # A key that nobody keeps: what is equal within the page is equal, and nothing can be guessed.
    key = os.urandom(32)
    shown = Contents(
        lambda digest: blake2b(digest, digest_size=16, key=key).hexdigest(), plain=False
    )
    return (wordless_line(line, shown) for line in _lines(runs))
