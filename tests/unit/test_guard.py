"""The guard: faults of ours are counted and logged, never raised, but for the deliberate stop."""

from __future__ import annotations

import ctypes
import logging
import re
import sys
import threading
import time
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import orjson
import pydantic_core
import pytest

import tidegauge
from tidegauge.errors import RunStopped
from tidegauge.safety.critical import here, run_deferred
from tidegauge.safety.guard import InternalErrors, guarded, internal_errors
from tidegauge.testing import SteppedClock, raise_internal_errors
from tidegauge.values import canonical_text


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

    def test_a_listener_gets_the_arguments(self):
        received = []

        @guarded(
            "hook", default=None, on_fault=lambda *args, **kwargs: received.append((args, kwargs))
        )
        def failing(left, *, right):
            raise ValueError

        failing(1, right=2)
        assert received == [((1,), {"right": 2})]

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


class Sent(Exception):
    """What another thread sets, or a function for ``sys.settrace`` raises."""


def _traced_arrivals(error: BaseException) -> int:
    """How often an error is lost that a trace function raises, once at each of its events."""
    lost = 0
    for moment in range(1, 1_000):
        left = [moment]

        def watch(frame, event, arg, left=left):
            left[0] -= 1
            del frame
            if not left[0]:
                sys.settrace(None)
                raise error
            return watch

        try:
            sys.settrace(watch)
            hook()
        except type(error):
            pass
        else:
            if left[0] <= 0:
                lost += 1
        finally:
            sys.settrace(None)
        if left[0] > 0:
            return lost
    raise AssertionError


working = guarded("working", default="default")(
    partial(canonical_text, [{"at": [one, str(one)]} for one in range(50)])
)
"""Frames of tidegauge that call C functions all the time."""


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.no_cover  # coverage's lock stays held if an exception arrives while it is held
class TestWhatArrives:
    def test_what_another_thread_sets_reaches_the_agent(self):
        caught = threading.Event()
        lost, over, me = [], [], threading.get_ident()

        def send():
            time.sleep(0.05)  # start() is over
            for _ in range(150):
                caught.clear()
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(me), ctypes.py_object(Sent)
                )
                lost.extend([1] * (not caught.wait(0.5)))
            over.append(1)

        sender = threading.Thread(target=send)
        began = False
        while not over:
            try:
                if not began:
                    began = True
                    sender.start()
                while not over:
                    working()
            except Sent:
                caught.set()
        sender.join()
        assert not lost
        assert internal_errors.counts() == {}

    def test_what_a_trace_function_raises_reaches_the_agent(self):
        assert _traced_arrivals(Sent()) == 0

    def test_a_fault_of_code_of_the_user_is_swallowed(self):
        def users():
            raise Sent

        @guarded("key", default="default")
        def calling(function):
            return function()

        future: Future[None] = Future()
        future.set_exception(Sent())
        assert calling(users) == "default"
        assert calling(Mock(side_effect=Sent)) == "default"
        assert calling(future.result) == "default"
        assert calling(lambda: (x for x in [1]).throw(Sent())) == "default"
        assert internal_errors.counts() == {"key": 4}

    def test_a_fault_of_an_extension_module_is_swallowed(self):
        validate = pydantic_core.SchemaValidator({"type": "int"}).validate_python
        functions = [partial(validate, "no number"), partial(orjson.loads, "{")]
        for function in functions:
            assert _calling(function) == "default"
        assert internal_errors.counts() == {"calling": 2}


def _called_in_ours(function):
    """As a function of tidegauge calls it: the frame says it is ours."""
    names: dict[str, Any] = {"__name__": "tidegauge.somewhere"}
    exec("def call(function): return function()", names)
    return names["call"](function)


_calling = guarded("calling", default="default")(_called_in_ours)


@pytest.mark.usefixtures("faults_are_swallowed")
class TestAFullStack:
    def test_no_recursion_error_leaves_a_hook(self):
        def down(levels):
            return down(levels - 1) if levels else hook(ValueError())

        limit = sys.getrecursionlimit()
        results, overflows = set(), 0
        for levels in range(limit - 200, limit):
            try:
                results.add(down(levels))
            except RecursionError as error:
                at = error.__traceback__
                while at.tb_next is not None:
                    at = at.tb_next
                overflows += at.tb_frame.f_code.co_filename != __file__
        assert results == {"default"}
        assert overflows <= (2 if sys.gettrace() else 0)  # what counts coverage takes levels, too
        assert sum(internal_errors.counts().values()) > 1


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_log_handler_that_raises_hurts_nobody(monkeypatch):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("the pipe is broken")

    monkeypatch.setattr(logging.getLogger("tidegauge"), "handlers", [Broken()])
    assert hook(ValueError()) == "default"
    assert internal_errors.counts() == {"hook": 1}


def test_what_a_late_call_sets_is_not_set_in_the_context_it_runs_in():
    variable = ContextVar("variable", default="here")
    late = guarded("test", default=None)(lambda: variable.set("late"))
    with here.critical:
        late()
    run_deferred()
    assert variable.get() == "here"


def test_no_code_of_ours_runs_where_python_loses_exceptions():
    """In finalizers, and in callbacks of weak references that are written in Python."""
    lost_in = re.compile(r"def __del__|WeakSet|Weak\w+Dictionary|weakref\.finalize|WeakMethod")
    sources = sorted(Path(tidegauge.__file__).parent.rglob("*.py"))
    assert len(sources) > 100
    assert [path.name for path in sources if lost_in.search(path.read_text())] == []
