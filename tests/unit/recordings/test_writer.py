"""The writer of lines: nobody waits for it, and what is lost is counted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.requirements import needs, needs_fork
from support.small_disk import small_disk
from tidegauge.errors import ConfigurationError
from tidegauge.recordings import LineWriter
from tidegauge.recordings.writer import _File
from tidegauge.safety.guard import internal_errors

NOTHING_LOST = {"queue_full": 0, "write_failed": 0, "closed": 0}


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def wait_until(holds: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_every_line_is_there_in_its_order(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "new" / "folder" / "runs.jsonl")
    given = [b"%d" % n for n in range(3_000)]
    for line in given:
        writer.add(line)
    writer.close()
    assert lines(tmp_path / "new" / "folder" / "runs.jsonl") == given
    assert (writer.written, writer.dropped) == (3_000, NOTHING_LOST)


def test_lines_are_there_soon_and_not_only_at_the_end(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl")
    for n in range(3):
        writer.add(b"%d" % n)
        wait_until(lambda n=n: len(lines(tmp_path / "runs.jsonl")) == n + 1)  # type: ignore[misc]
    writer.close()


def test_one_line_stays_one_line(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl")
    writer.add(b"a\nb")
    writer.close()
    assert lines(tmp_path / "runs.jsonl") == [b"a b"]


def test_files_are_renamed_by_size_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    writer = LineWriter(path, max_bytes=50, backups=2)
    given = [b"line %02d" % n for n in range(20)]  # 8 bytes with the end: six a file
    for line in given:
        writer.add(line)
    writer.close()
    assert lines(path) == given[18:]
    assert lines(tmp_path / "runs.jsonl.1") == given[12:18]
    assert lines(tmp_path / "runs.jsonl.2") == given[6:12]
    assert sorted(os.listdir(tmp_path)) == ["runs.jsonl", "runs.jsonl.1", "runs.jsonl.2"]
    assert writer.written == 20


def test_a_line_that_is_longer_than_a_file_has_one_for_itself(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl", max_bytes=10, backups=5)
    for line in (b"a", b"b" * 30, b"c"):
        writer.add(line)
    writer.close()
    found = [lines(tmp_path / f"runs.jsonl{end}") for end in (".2", ".1", "")]
    assert found == [[b"a"], [b"b" * 30], [b"c"]]


def test_without_backups_the_file_begins_again(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl", max_bytes=10, backups=0)
    for n in range(9):
        writer.add(b"%d" % n)
    writer.close()
    assert os.listdir(tmp_path) == ["runs.jsonl"]
    assert lines(tmp_path / "runs.jsonl") == [b"5", b"6", b"7", b"8"]


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    writer = LineWriter(path)
    writer.add(b"before")
    wait_until(lambda: lines(path) == [b"before"])
    path.rename(tmp_path / "moved")
    writer.add(b"after")
    writer.close()
    assert (lines(tmp_path / "moved"), lines(path)) == ([b"before"], [b"after"])


@contextlib.contextmanager
def stalled_disk(
    monkeypatch: pytest.MonkeyPatch, *, after: int
) -> Iterator[tuple[threading.Event, list[bytes]]]:
    """Files take so many chunks, then nothing more until the end of the block.

    Yields:
        An event that says when nothing moves, and the lines that were taken.
    """
    append, room = _File._append, iter(range(after))
    stalls, moves = threading.Event(), threading.Event()
    taken: list[bytes] = []

    def stalled(file: _File, chunk: list[bytes]) -> None:
        if next(room, None) is None:
            stalls.set()
            moves.wait(120)
        else:
            taken.extend(chunk)
        append(file, chunk)

    monkeypatch.setattr(_File, "_append", stalled)
    try:
        yield stalls, taken
    finally:
        moves.set()


def test_a_stalled_disk_keeps_nobody_waiting_and_every_line_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line, added = b"x" * 999, 0
    with stalled_disk(monkeypatch, after=2) as (stalls, taken):
        # A file for two lines: of a batch, some are written and others are not.
        writer = LineWriter(tmp_path / "runs.jsonl", max_bytes=2_000, max_waiting_bytes=50_000)

        def add() -> None:
            nonlocal added
            for _ in range(200):
                writer.add(line)
                added += 1

        wait_until(lambda: add() or stalls.is_set())  # type: ignore[func-returns-value]
        add()  # more than can wait
        assert writer.dropped["queue_full"] > 100
        writer.close(seconds=0.1)
        writer.close(seconds=0.1)
        assert writer.written == len(taken) >= 2
        assert writer.dropped["closed"] == added - len(taken) - writer.dropped["queue_full"] > 50
        writer.add(line)
        counts = (writer.written, dict(writer.dropped))
        assert counts[0] + sum(counts[1].values()) == added + 1
    writer._thread.join(10)
    assert (writer.written, writer.dropped) == counts  # what was given up stays so
    [logged] = [each for each in caplog.messages if "could not be written" in each]
    assert logged.endswith("within 0.1 s")


@needs(hasattr(os, "mkfifo"), "this platform has no named pipes")
def test_a_pipe_is_no_place_for_a_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "runs.jsonl"
    os.mkfifo(path)
    with pytest.raises(ConfigurationError, match=r"Cannot record to .*: not a regular file"):
        LineWriter(path)
    path.unlink()
    writer = LineWriter(path)
    path.unlink()
    os.mkfifo(path)
    writer.add(b"x")
    writer.close()
    assert (writer.written, writer.dropped) == (0, NOTHING_LOST | {"write_failed": 1})
    assert (
        f"lines of the recording {path} are lost: not a regular file; choose another path\n"
        in caplog.text
    )
    assert internal_errors.counts() == {}


def test_lines_that_wait_are_limited_by_their_number(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl", max_lines=10)
    for _ in range(1_000):
        writer.add(b"x")
    writer.close()
    assert writer.written + writer.dropped["queue_full"] == 1_000
    assert writer.dropped["queue_full"] > 0


@needs(os.path.exists("/dev/full"), "this platform has no /dev/full")
def test_a_device_that_is_full_costs_its_lines_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = LineWriter("/dev/full", max_bytes=1)
    for _ in range(3):
        writer.add(b"x")
    writer.close()
    assert writer.dropped == NOTHING_LOST | {"write_failed": 3}
    assert writer.written == 0
    assert os.path.exists("/dev/full")  # and was not renamed
    assert caplog.text.count("/dev/full are lost: No space left on device; make room") == 1
    assert internal_errors.counts() == {}


def test_a_full_disk_and_one_with_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 65_536) as disk:
        (disk / "other").write_bytes(b"x" * 40_000)
        writer = LineWriter(disk / "runs.jsonl")
        given = [b"%03d " % n + b"x" * 995 for n in range(100)]
        for line in given:
            writer.add(line)
        wait_until(lambda: writer.written + sum(writer.dropped.values()) == 100)
        before = writer.written
        assert 0 < before < 100
        assert writer.dropped["write_failed"] == 100 - before
        (disk / "other").unlink()
        writer.add(b"after")
        writer.close()
        found = lines(disk / "runs.jsonl")
        assert found[:before] == given[:before]
        assert found[-1] == b"after"
        assert len(found) <= before + 2  # one was cut short
        assert writer.written == before + 1


def test_a_line_cut_short_by_a_killed_process_costs_itself_alone(tmp_path: Path) -> None:
    program = f"""
import os, signal
from tidegauge.recordings import LineWriter
from tidegauge.recordings.writer import _File
writer = LineWriter({str(tmp_path / "runs.jsonl")!r})
write = os.write
def torn(file, data):
    if b"cut" not in bytes(data):
        return write(file, data)
    write(file, data[:data.tobytes().index(b"cut") + 2])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = torn
for n in range(1000):
    writer.add(b"%d" % n)
writer.add(b"is cut here")
writer.close()
"""
    killed = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    found = lines(tmp_path / "runs.jsonl")
    assert (found[:-1], found[-1]) == ([b"%d" % n for n in range(1000)], b"is cu")
    writer = LineWriter(tmp_path / "runs.jsonl")
    writer.add(b"next")
    writer.close()
    assert lines(tmp_path / "runs.jsonl") == [*found, b"next"]


@needs_fork
def test_a_forked_process_goes_on_in_a_file_of_its_own(tmp_path: Path) -> None:
    program = f"""
import os
from tidegauge.recordings import LineWriter
from tidegauge.recordings.writer import _File
writer = LineWriter({str(tmp_path / "runs-{pid}.jsonl")!r})
writer.add(b"parent")
child = os.fork()
if not child:
    writer.add(b"child")
    writer.close()
    os._exit(writer.written)
written = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
writer.add(b"parent again")
writer.close()
print(os.getpid(), child, written)
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    parent, child, written = ended.stdout.split()
    assert lines(tmp_path / f"runs-{parent}.jsonl") == [b"parent", b"parent again"]
    assert lines(tmp_path / f"runs-{child}.jsonl") == [b"child"]
    assert written == "1"


def test_many_threads_add_whole_lines(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl")

    def add(letter: bytes) -> None:
        for _ in range(500):
            writer.add(letter * 50)

    threads = [threading.Thread(target=add, args=(b"%c" % (97 + n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    found = lines(tmp_path / "runs.jsonl")
    assert sorted(found) == sorted(b"%c" % (97 + n) * 50 for n in range(8) for _ in range(500))


def test_closing_waits_for_nothing_whenever_it_comes(tmp_path: Path) -> None:
    """The thread has just gathered what waits, and looks for more."""
    writer = LineWriter(tmp_path / "runs.jsonl")

    class ClosedAfterTheWait:
        def get(self, timeout: float) -> None:
            writer._closing = True

    writer._hurry = ClosedAfterTheWait()  # type: ignore[assignment]
    writer.add(b"a")
    writer._thread.join(2)
    assert not writer._thread.is_alive()
    assert lines(tmp_path / "runs.jsonl") == [b"a"]


def test_flushed_lines_are_in_the_file(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl")
    assert writer.flush(time.monotonic() + 20)  # nothing waits
    for n in range(50):
        writer.add(b"%d" % n)
        assert writer.flush(time.monotonic() + 20)
        assert len(lines(tmp_path / "runs.jsonl")) == n + 1
    writer.close()
    assert writer.flush(time.monotonic())


def test_a_flush_says_that_lines_are_lost_or_still_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = LineWriter("/dev/full")
    full.add(b"x")
    assert not full.flush(time.monotonic() + 20)
    assert full.flush(time.monotonic() + 20)  # those are counted, and no others wait
    full.close()
    with stalled_disk(monkeypatch, after=0):
        writer = LineWriter(tmp_path / "runs.jsonl")
        writer.add(b"x")
        assert not writer.flush(time.monotonic() + 0.1)
    assert writer.flush(time.monotonic() + 20)
    assert lines(tmp_path / "runs.jsonl") == [b"x"]
    writer.close()


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "runs.jsonl")
    writer.close()
    writer.close()


def test_a_path_that_cannot_be_written_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "runs.jsonl"):
        with pytest.raises(ConfigurationError, match="Cannot record to"):
            LineWriter(path)


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_lines": 0}, {"backups": -1}])
def test_limits_that_cannot_work_are_refused(tmp_path: Path, limits: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        LineWriter(tmp_path / "runs.jsonl", **limits)
