"""``flush`` sends what waits, says whether it has arrived, and waits no longer than it may."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from hostile.harness import Forked
from support.requirements import needs_fork
from tidegauge.tracer import Telemetry, provider
from tidegauge.tracer.provider import CountedExporter, OwnProvider

SUCCESS, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
PATIENCE = 30.0


class Exporter(SpanExporter):
    """Answers what it is given to answer; while it is closed, not at all."""

    def __init__(self) -> None:
        self.answers: list[SpanExportResult | Exception] = []
        self.names: list[str] = []
        self.began = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def export(self, spans: Any) -> SpanExportResult:
        self.began.set()
        self.open.wait(PATIENCE)
        self.names += [span.name for span in spans]
        answer = self.answers.pop(0) if self.answers else SUCCESS
        if isinstance(answer, Exception):
            raise answer
        return answer

    def shutdown(self) -> None:
        self.open.set()


@pytest.fixture
def exporter() -> Exporter:
    return Exporter()


@pytest.fixture
def telemetry(exporter: Exporter) -> Iterator[Telemetry]:
    counted: Any = CountedExporter(exporter)
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(counted, schedule_delay_millis=60_000))
    opened = Telemetry(made.get_tracer("t"), None, owned=(OwnProvider(made, counted),))
    yield opened
    opened.shutdown()


def soon() -> float:
    return time.monotonic() + PATIENCE


def end_span(telemetry: Telemetry, name: str) -> None:
    telemetry.tracer.start_span(name).end()


def test_all_that_waits_has_arrived(telemetry: Telemetry, exporter: Exporter) -> None:
    for number in range(3):
        end_span(telemetry, f"s{number}")
        assert telemetry.flush(soon())
        assert len(exporter.names) == number + 1
    assert telemetry.flush(soon())  # nothing waits


@pytest.mark.parametrize("answer", [FAILURE, OSError("no route")])
def test_what_has_not_arrived_is_said_once(
    answer: Any, telemetry: Telemetry, exporter: Exporter
) -> None:
    exporter.answers = [answer]
    end_span(telemetry, "lost")
    assert not telemetry.flush(soon())
    end_span(telemetry, "arrived")
    assert telemetry.flush(soon())


def test_a_collector_that_does_not_answer_is_not_waited_for(
    telemetry: Telemetry, exporter: Exporter
) -> None:
    exporter.open.clear()
    end_span(telemetry, "first")
    threads = threading.active_count()
    assert not telemetry.flush(time.monotonic())
    assert exporter.began.wait(PATIENCE)
    end_span(telemetry, "second")
    for _ in range(50):
        assert not telemetry.flush(time.monotonic())
    assert threading.active_count() <= threads + 1
    exporter.open.set()
    assert telemetry.flush(soon())
    assert sorted(exporter.names) == ["first", "second"]


def test_each_of_many_threads_learns_of_its_own(telemetry: Telemetry, exporter: Exporter) -> None:
    faults: list[str] = []

    def work(thread: int) -> None:
        for number in range(20):
            name = f"{thread}-{number}"
            end_span(telemetry, name)
            if not telemetry.flush(soon()) or name not in exporter.names:
                faults.append(name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not faults
    assert len(exporter.names) == 160


def after_a_fork(telemetry: Telemetry, act: Callable[[], None]) -> None:
    def child() -> None:
        end_span(telemetry, "of the child")
        act()

    Forked(child).join(PATIENCE)


@needs_fork
def test_a_forked_process_flushes_and_closes(telemetry: Telemetry, exporter: Exporter) -> None:
    def act() -> None:
        assert telemetry.flush(soon())
        assert exporter.names == ["of the child"]
        end_span(telemetry, "the last")
        telemetry.shutdown()
        assert exporter.names == ["of the child", "the last"]

    end_span(telemetry, "of the parent")
    after_a_fork(telemetry, act)
    assert telemetry.flush(soon())
    assert exporter.names == ["of the parent"]


@needs_fork
def test_a_forked_process_does_not_wait_for_a_collector_either(
    telemetry: Telemetry, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no thread can be started any more, as at the end of an interpreter."""
    monkeypatch.setattr(provider, "_CLOSING_SECONDS", 0.0)

    def act() -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

        exporter.open.clear()
        threading.Thread.start = refuse  # type: ignore[assignment, method-assign]
        exporter.shutdown = lambda: None  # type: ignore[method-assign]
        telemetry.shutdown()
        assert not exporter.open.is_set()

    after_a_fork(telemetry, act)
