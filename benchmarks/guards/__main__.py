"""``python -m benchmarks.guards``: tidegauge beside other guards, as a table of docs/compared.md.

Every guard plays every everyday agent, and every recorded run of the folder in TIDEGAUGE_DATA if
there is one. ``make bench-guards`` installs the others first, in a separate environment; those that
are missing are left out, and the page is not written.

``python -m benchmarks.guards --expect`` writes what tidegauge's preset does to each agent, which
tests compare.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import Progress

from benchmarks.guards import expected
from benchmarks.guards.agents import ENDLESS, LEGITIMATE, Called, Turn
from benchmarks.guards.peers import PEERS, Peer, learn
from benchmarks.guards.play import Declarations, Guarded, Verdict, played, ran_before_stop
from benchmarks.guards.recorded import RecordedAgent, recorded_agents

_PAGE: Final = Path(__file__).parents[2] / "docs" / "compared.md"
_TABLE: Final = re.compile(r"(<!-- begin guards -->\n).*?(<!-- end -->)", re.DOTALL)
_AGENTS: Final = "agents"
_HISTORIES: Final = (50, 1_000)
_TIMED: Final = 10
_ROUNDS: Final = 3


class Row(NamedTuple):
    """What a guard does.

    Attributes:
        peer: the guard.
        endless: what it does to endless agents, without and with declarations.
        legitimate: the same of legitimate ones.
        recorded: successful runs that it stops, and others.
        seconds: processor time of a step, after each of the histories; ``None``, not timed.
    """

    peer: Peer
    endless: list[list[Verdict]]
    legitimate: list[list[Verdict]]
    recorded: list[int]
    seconds: list[float] | list[None]


def _measured(peer: Peer, recorded: Sequence[RecordedAgent], advance: Callable[[], None]) -> Row:
    def guards(declared: Declarations) -> Guarded:
        return peer.begin(declared, capped=True, family=_AGENTS)

    kinds = (False, True) if peer.declares else (False,)
    endless = [played(guards, ENDLESS, declared=kind) for kind in kinds]
    legitimate = [played(guards, LEGITIMATE, declared=kind) for kind in kinds]
    advance()
    stopped = [0, 0]
    for run in recorded:
        guarded = peer.begin({}, capped=True, family=run.family)
        if ran_before_stop(guarded, run.turns) is not None:
            stopped[not run.success] += 1
    advance()
    seconds = _seconds(peer) if peer.timed else [None] * len(_HISTORIES)
    return Row(peer, endless, legitimate, stopped, seconds)


def _work() -> Iterator[Turn]:
    """Steps that are all new: the number is in the middle of what is compared."""
    for n in itertools.count():
        text = f"chapter {n}: " + "the quick brown fox jumps over the lazy dog. " * 8
        yield Turn((Called(f"read_{n % 8}", {"path": f"docs/{n}.md", "lines": 40}, text),))


def _seconds(peer: Peer) -> list[float]:
    """Processor time of a step, after each of the histories."""
    rounds = []
    for _ in range(_ROUNDS):
        guarded = peer.begin({}, capped=False, family=_AGENTS)
        spent = []
        for number, turn in enumerate(itertools.islice(_work(), _HISTORIES[-1] + _TIMED)):
            began = time.process_time()
            guarded.issue(number, turn)
            guarded.observe(number, turn)
            spent.append(time.process_time() - began)
        guarded.close()
        rounds.append([statistics.median(spent[at : at + _TIMED]) for at in _HISTORIES])
    return [min(times) for times in zip(*rounds, strict=True)]


def _table(rows: Sequence[Row], recorded: Sequence[RecordedAgent]) -> str:
    good = sum(run.success for run in recorded)
    heads = [
        "guard",
        "stops at",
        f"caught of {len(ENDLESS)}",
        "turns of the loop",
        f"false stops of {len(LEGITIMATE)}",
        "with tools declared",
        *(
            [f"of {good} successful runs", f"of {len(recorded) - good:,} others"]
            if recorded
            else []
        ),
        *(f"µs a step after {history:,}" for history in _HISTORIES),
    ]
    lines = [heads, ["---"] * len(heads)]
    for row in sorted(rows, key=_order):
        late = [one.late for one in row.endless[0] if one.late is not None]
        declared = f"{_caught(row.endless[-1])} / {_stopped(row.legitimate[-1])}"
        lines.append(
            [
                row.peer.name,
                row.peer.stops,
                str(_caught(row.endless[0])),
                f"{statistics.median(late):.0f}" if late else "-",
                str(_stopped(row.legitimate[0])),
                declared if row.peer.declares else "-",
                *([f"{stopped:,}" for stopped in row.recorded] if recorded else []),
                *(_microseconds(seconds) for seconds in row.seconds),
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _order(row: Row) -> tuple[bool, int]:
    """tidegauge first, then by caught agents less false stops."""
    return row.peer is not PEERS[0], _stopped(row.legitimate[0]) - _caught(row.endless[0])


def _caught(verdicts: Sequence[Verdict]) -> int:
    return sum(one.caught for one in verdicts)


def _stopped(verdicts: Sequence[Verdict]) -> int:
    return sum(one.ran is not None for one in verdicts)


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{float(f'{seconds * 1e6:.2g}'):,.0f}"


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, and write it into the page."""
    parser = argparse.ArgumentParser(prog="benchmarks.guards", description=__doc__)
    parser.add_argument("--expect", action="store_true", help="write expected.json")
    parser.add_argument("--guard", action="append", help="only guards with this in their names")
    options = parser.parse_args(arguments)
    if options.expect:
        expected.write()
        return 0
    logging.disable(logging.CRITICAL)
    folder = Path(os.environ.get("TIDEGAUGE_DATA", ""))
    recorded = list(recorded_agents(folder)) if os.environ.get("TIDEGAUGE_DATA") else []
    lengths = {_AGENTS: [_calls(agent.turns()) for agent in LEGITIMATE]}
    for run in recorded:
        if run.success:
            lengths.setdefault(run.family, []).append(_calls(run.turns))
    learn(lengths)
    wanted = options.guard or [""]
    peers = [peer for peer in PEERS if any(part in peer.name for part in wanted)]
    rows = []
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=3 * len(peers))
        advance = partial(progress.advance, task)
        for peer in peers:
            progress.update(task, description=peer.name)
            if not peer.missing:
                rows.append(_measured(peer, recorded, advance))
            advance()
    table = _table(rows, recorded)
    print(table)
    if len(rows) == len(PEERS) and recorded:
        page = _PAGE.read_text(encoding="utf-8")
        _PAGE.write_text(_TABLE.sub(rf"\1{table}\2", page), encoding="utf-8")
    return 0


def _calls(turns: Sequence[Turn]) -> int:
    return sum(len(turn.calls) for turn in turns)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
