"""The queue before the assembly: bounded, in order, and emptied at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers import receiver
from tidegauge.receivers.assembly import Assembly, AssemblyLimits
from tidegauge.receivers.receiver import SpanQueue
from tidegauge.safety.guard import internal_errors

PATIENCE = 10.0


def spans(*numbers: int) -> list[SpanData]:
    return [SpanData(1, number, None, "GET /", "web", {}, 0, number) for number in numbers]


class Held(Assembly):
    """Takes nothing before it may, and remembers what it took."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.going_on = threading.Event(), threading.Event()
        self.taken: list[int] = []
        self.fault: Exception | None = None

    def take(self, spans: Any, *, now: float) -> None:
        self.entered.set()
        assert self.going_on.wait(PATIENCE)
        self.taken += [span.span_id for span in spans]
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault


@pytest.fixture
def held() -> Iterator[Held]:
    assembly = Held()
    yield assembly
    assembly.going_on.set()


def test_batches_are_taken_in_order_and_all_of_them_before_the_end(held: Held) -> None:
    queue = SpanQueue(held)
    for number in range(1, 6):
        assert queue.offer(spans(number))
    held.going_on.set()
    assert queue.close(PATIENCE) == []
    assert held.taken == [1, 2, 3, 4, 5]
    assert not queue.alive
    assert not queue.offer(spans(6))


def test_what_does_not_fit_is_refused_as_a_whole(held: Held) -> None:
    queue = SpanQueue(held, max_spans=3, max_wait=0.0)
    assert queue.offer(spans(1))
    assert held.entered.wait(PATIENCE)  # it is being taken, and counts until it is
    assert queue.offer(spans(2))
    assert not queue.offer(spans(3, 4))
    assert queue.offer(spans(5))
    assert queue.offer([])
    assert queue.waiting == 3
    held.going_on.set()
    assert queue.close(PATIENCE) == []
    assert held.taken == [1, 2, 5]
    assert queue.waiting == 0


def test_more_than_may_ever_wait_is_taken_when_nothing_waits(held: Held) -> None:
    queue = SpanQueue(held, max_spans=3, max_bytes=10, max_wait=0.0)
    assert queue.offer(spans(1, 2, 3, 4), 99)
    assert not queue.offer(spans(5))
    held.going_on.set()
    assert queue.close(PATIENCE) == []


def test_large_requests_wait_up_to_a_size(held: Held) -> None:
    queue = SpanQueue(held, max_bytes=10, max_wait=0.0)
    assert queue.offer(spans(1), 4)
    assert queue.offer(spans(2), 6)
    assert not queue.offer(spans(3), 1)
    held.going_on.set()
    assert queue.close(PATIENCE) == []
    assert held.taken == [1, 2]


def test_what_the_assembly_has_taken_and_not_emitted_counts_too() -> None:
    assembly = Assembly(limits=AssemblyLimits(allowed_lateness=0.2))
    queue = SpanQueue(assembly, max_bytes=10, max_wait=0.0)
    large = [span._replace(size=9) for span in spans(1)]
    assert queue.offer(large, 9)
    while queue.waiting:
        time.sleep(0.001)
    assert assembly.arrived_bytes == 9
    assert not queue.offer(spans(2), 2)
    while assembly.arrived_bytes:
        time.sleep(0.01)
    assert queue.offer(spans(2), 2)
    assert queue.close(PATIENCE) == []
    assert assembly.arrived_bytes == 0


def test_a_listener_waits_for_room(held: Held) -> None:
    queue = SpanQueue(held, max_spans=1, max_wait=PATIENCE)
    assert queue.offer(spans(1))
    assert held.entered.wait(PATIENCE)
    taken: list[bool] = []
    listener = threading.Thread(target=lambda: taken.append(queue.offer(spans(2))))
    listener.start()
    listener.join(0.05)
    assert listener.is_alive()
    held.going_on.set()
    listener.join(PATIENCE)
    assert taken == [True]
    assert queue.close(PATIENCE) == []
    assert held.taken == [1, 2]


def test_listeners_that_wait_take_their_turns(held: Held) -> None:
    queue = SpanQueue(held, max_spans=3, max_wait=PATIENCE)
    assert queue.offer(spans(1, 2))
    assert held.entered.wait(PATIENCE)
    listeners = []
    for some in ((3, 4, 5), (6,), (7, 8)):  # there would be room for the second
        listener = threading.Thread(target=queue.offer, args=[spans(*some)])
        listener.start()
        listener.join(0.05)
        listeners.append(listener)
    held.going_on.set()
    for listener in listeners:
        listener.join(PATIENCE)
    assert queue.close(PATIENCE) == []
    assert held.taken == [1, 2, 3, 4, 5, 6, 7, 8]


def test_closing_leaves_no_listener_waiting(held: Held) -> None:
    queue = SpanQueue(held, max_spans=1, max_wait=PATIENCE)
    assert queue.offer(spans(1))
    assert held.entered.wait(PATIENCE)
    taken: list[bool] = []
    listener = threading.Thread(target=lambda: taken.append(queue.offer(spans(2))))
    listener.start()
    queue.close(0.0)
    listener.join(PATIENCE / 2)
    assert taken == [False]


def test_time_goes_on_for_nobody_while_spans_wait_that_arrived_before(held: Held) -> None:
    """However late it is, what has arrived in time is not taken for late."""
    expired: list[list[int]] = []
    held.expire = lambda now: expired.append(list(held.taken))  # type: ignore[method-assign]
    queue = SpanQueue(held)
    for number in (1, 2, 3):
        assert queue.offer(spans(number))
    held.going_on.set()
    assert queue.close(PATIENCE) == []
    assert all(taken in ([], [1, 2, 3]) for taken in expired)


def test_closing_does_not_wait_for_ever(held: Held) -> None:
    queue = SpanQueue(held)
    queue.offer(spans(1))
    assert held.entered.wait(PATIENCE)
    assert queue.close(0.01) == ["1 received spans were not measured", "1 runs were not ended"]
    held.going_on.set()
    assert queue.close(PATIENCE) == []


def wait(until: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_there_is_no_time_to_take_is_counted(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that waits, and the rest of the request in work."""
    monkeypatch.setattr(receiver, "_TAKING", 0.0)
    queue = SpanQueue(held)
    assert queue.offer(spans(*range(1, 2_502)))
    assert held.entered.wait(PATIENCE)
    assert queue.offer(spans(3_001, 3_002))
    assert queue.offer(spans(3_003))
    lost: list[str] = []
    closing = threading.Thread(target=lambda: lost.extend(queue.close(PATIENCE)))
    closing.start()
    wait(lambda: not queue.alive)
    held.going_on.set()
    closing.join(PATIENCE)
    assert lost == ["1,504 received spans were not measured"]
    assert held.taken == list(range(1, 1_001))
    assert queue.waiting == 0


def test_what_there_is_no_time_to_emit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end all the same."""
    monkeypatch.setattr(receiver, "_EMITTING", 0.0)
    assembly = Assembly(limits=AssemblyLimits(allowed_lateness=3_600.0))
    queue = SpanQueue(assembly)
    assert queue.offer(spans(1, 2, 3))
    wait(lambda: queue.waiting == 0)
    assert queue.close(PATIENCE) == ["3 received spans were not measured"]


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_fault_costs_its_batch_and_no_more(held: Held) -> None:
    queue = SpanQueue(held)
    held.fault = RuntimeError("ours")
    queue.offer(spans(1))
    queue.offer(spans(2))
    held.going_on.set()
    assert queue.close(PATIENCE) == []
    assert held.taken == [1, 2]
    assert internal_errors.counts() == {"otlp.take": 1}
