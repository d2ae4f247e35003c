"""What all snapshots have in common makes them smaller.

``PYTHONPATH=tests .venv/bin/python tests/unit/fleet/test_snapshot_dictionary.py FILE`` writes the
dictionary of a new version of snapshots. That of a version that was released never changes.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from support.fleet_log import Produced, WorkerHere, nothing_configured, spans_message, spans_of
from support.wire_runs import WireRun
from tidegauge.fleet import snapshots
from tidegauge.fleet.snapshots import RunSnapshot

_OWN = re.compile(rb"[0-9a-f]{32}|[0-9]{16,20}")
"""What no two runs have in common: digests, ids and times."""


@pytest.fixture(autouse=True)
def _nothing_stays_configured() -> Iterator[None]:
    with nothing_configured():
        yield


def snapshot(number: int, spans: int) -> bytes:
    """A snapshot of a run after so many spans."""
    worker = WorkerHere(Produced.nothing(), {}, 0)
    worker.take([spans_message(spans_of(WireRun(number))[:spans], 1e9)])
    worker.partition.tick(1e9 + 2)
    [key] = worker.partition.keys
    return worker.partition._snapshot(key)


def dictionary() -> bytes:
    """The data of one snapshot, without what is the run's own."""
    head, trace = RunSnapshot.read(snapshot(24, 40))
    return _OWN.sub(b"", orjson.dumps(head) + orjson.dumps(trace()))


def test_a_snapshot_is_a_third_smaller_with_it() -> None:
    data = snapshot(24, 20)
    head, trace = RunSnapshot.read(data)
    plain = sum(len(zlib.compress(orjson.dumps(part))) for part in (head, trace()))
    assert len(data) < plain * 2 / 3


def test_a_snapshot_that_unpacks_to_too_much_is_refused_and_is_not_written() -> None:
    much = [0] * (snapshots._MAX_BYTES // 2 + 1)
    with pytest.raises(TypeError, match="at most"):
        RunSnapshot({"runs": much}, list).written()
    packer = zlib.compressobj(zdict=snapshots._dictionary(snapshots.VERSION))
    bomb = packer.compress(orjson.dumps(much)) + packer.flush()
    assert len(bomb) < 50_000
    data = snapshots.VERSION.to_bytes() + len(bomb).to_bytes(4) + bomb
    with pytest.raises(ValueError, match="cut, or too large"):
        RunSnapshot.read(data)
    whole = snapshot(24, 20)
    for end in range(len(whole)):
        with pytest.raises(ValueError, match="snapshot"):
            RunSnapshot.read(whole[:end])[1]()


if __name__ == "__main__":
    with nothing_configured():
        Path(sys.argv[1]).write_bytes(dictionary())
