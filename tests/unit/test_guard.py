"""The guard: faults of ours are counted and logged, never raised, but for the deliberate stop."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from tidegauge._guard import InternalErrors, guarded, internal_errors
from tidegauge.errors import RunStopped
from tidegauge.testing import SteppedClock, raise_internal_errors


@guarded("hook", default="default")
def hook(error=None):
    if error is not None:
        raise error
    return "result"


@pytest.mark.usefixtures("faults_are_swallowed")
class TestInProduction:
    @pytest.mark.parametrize("error", [ValueError("x"), RecursionError(), MemoryError()])
    def test_a_fault_is_counted_and_replaced_by_the_default(self, error):
        assert hook(error) == "default"
        assert internal_errors.counts() == {"hook": 1}

    def test_without_a_fault_nothing_is_counted(self):
        assert hook() == "result"
        assert internal_errors.counts() == {}

    @pytest.mark.parametrize(
        "error",
        [
            RunStopped("r1", step=1, reason="steps", message="enough"),
            KeyboardInterrupt(),
            SystemExit(1),
            GeneratorExit(),
        ],
    )
    def test_the_deliberate_stop_and_what_is_no_fault_pass_through(self, error):
        with pytest.raises(type(error)) as caught:
            hook(error)
        assert caught.value is error
        assert internal_errors.counts() == {}

    def test_whoever_wants_to_know_is_told_with_the_arguments(self):
        told = []

        @guarded("hook", default=None, on_fault=lambda *args, **kwargs: told.append((args, kwargs)))
        def failing(left, *, right):
            raise ValueError

        failing(1, right=2)
        assert told == [((1,), {"right": 2})]

    def test_a_place_is_logged_once_a_minute(self, caplog, monkeypatch):
        clock = SteppedClock(1_000.0)
        monkeypatch.setattr(time, "monotonic", clock)
        for seconds in (0, 30, 29, 2):
            clock.advance(seconds)
            hook(ValueError("what happened"))
        internal_errors.record("elsewhere", ValueError())
        lines = [record.getMessage() for record in caplog.records]
        assert [line.split(" in ")[1] for line in lines] == [
            "hook; the agent continues",
            "hook; the agent continues",
            "elsewhere; the agent continues",
        ]
        assert "what happened" in caplog.text
        assert caplog.records[0].levelno == logging.ERROR
        assert internal_errors.counts() == {"hook": 4, "elsewhere": 1}


class TestInTests:
    def test_a_fault_is_raised_and_counted(self):
        with pytest.raises(ValueError, match="seen"):
            hook(ValueError("seen"))
        assert internal_errors.counts() == {"hook": 1}

    def test_the_switch_is_put_back(self):
        with raise_internal_errors(False):
            assert hook(ValueError()) == "default"
            with raise_internal_errors(), pytest.raises(ValueError):  # noqa: PT011 -- any will do
                hook(ValueError())
            assert hook(ValueError()) == "default"
        assert internal_errors.reraise


def test_a_guarded_function_keeps_its_name_and_its_text():
    @guarded("hook", default=None)
    def documented():
        """What it does."""

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "What it does."


def test_no_count_is_lost_between_threads():
    errors = InternalErrors()

    def work():
        for _ in range(500):
            errors.record("somewhere", ValueError())

    logging.getLogger("tidegauge").disabled = True
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        logging.getLogger("tidegauge").disabled = False
    assert errors.counts() == {"somewhere": 4_000}
