"""A signal comes at any moment: what its handler raises reaches the agent, what it does works."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tidegauge
from hostile.agents_at_work import AGENTS, UsersTimeout, look, look_later, nothing, steps_of
from hostile.harness import check
from tidegauge import testing
from tidegauge.safety.guard import internal_errors

pytestmark = [pytest.mark.minutes, pytest.mark.slow]

_OURS = "/tidegauge/"


class Alarm(TimeoutError):
    """What ``signal.alarm`` handlers commonly raise: an ordinary ``Exception``."""


def in_our_code(frame: FrameType | None) -> bool:
    """Whether the handler interrupted a frame of tidegauge, or one that it calls."""
    while frame is not None:
        if _OURS in frame.f_code.co_filename:
            return True
        if frame.f_code.co_filename.endswith("agents_at_work.py"):
            return False
        frame = frame.f_back
    return False


def in_anothers_hands(frame: FrameType | None) -> bool:
    """Whether it interrupted the event loop or OpenTelemetry, which handle errors their own way."""
    return frame is not None and (
        "asyncio" in (f := frame.f_code.co_filename) or "opentelemetry" in f
    )


def errors_arrive(kind: str, style: str) -> None:
    """A timer's handler raises in a tight loop of steps: the agent sees each of its errors."""
    error: type[BaseException] = {"Exception": Alarm, "BaseException": UsersTimeout}[style]
    raised: list[BaseException] = []
    inside = lost = 0
    generator = random.Random(7)

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal inside
        if in_anothers_hands(frame):  # it would be that library's to lose
            signal.setitimer(signal.ITIMER_REAL, 0.0001)
            return
        inside += in_our_code(frame)
        raised.append(error(len(raised)))
        raise raised[-1]

    with testing.capture() as seen:
        signal.signal(signal.SIGALRM, handler)
        for _ in range(150):
            before = len(raised)
            try:
                signal.setitimer(signal.ITIMER_REAL, generator.uniform(0.0002, 0.003))
                _tight_loop(kind, lambda before=before: len(raised) > before)  # type: ignore[misc]
            except (Alarm, UsersTimeout) as found:
                lost += found is not raised[-1]
            else:
                lost += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one in raised:  # it refers to what must end the run
            one.__traceback__ = None
        gc.collect()
        AGENTS["sync"]("after it all", 1, nothing)
        assert not seen.pipeline.engine.snapshot().active
    assert inside, "no signal came while our code ran"
    assert lost == 0, f"{lost} of {len(raised)} errors were lost, {inside} came inside our code"


def _tight_loop(kind: str, over: Callable[[], bool]) -> None:
    """Steps until the error should have come."""
    if kind == "async":

        @tidegauge.agent
        async def agent(task: str) -> None:
            while not over():
                await look_later("hall")

        asyncio.run(agent("find it"))
    elif kind == "manual":
        with tidegauge.run(agent="manual") as run:
            while not over():
                run.act("look", {"at": "left"})
                run.observe("dust")
    else:

        @tidegauge.agent
        def looping(task: str) -> None:
            while not over():
                look("hall")

        looping("find it")


@pytest.mark.parametrize("style", ["Exception", "BaseException"])
@pytest.mark.parametrize("kind", ["sync", "manual", "async"])
def test_what_a_handler_raises_reaches_the_agent(kind: str, style: str) -> None:
    check(errors_arrive, kind, style, deadline=40)


def handlers_work(kind: str, deed: str) -> None:
    """The handler does something with tidegauge; the agent goes on as if nothing had come."""
    came = 0
    with testing.capture() as seen:

        def handler(number: int, frame: FrameType | None) -> None:
            nonlocal came
            came += 1
            if deed == "tool":
                assert look("the handler") == "the handler is empty"
            elif deed == "snapshot":
                seen.pipeline.engine.snapshot()
            elif deed == "run":
                AGENTS["manual"]("inside the handler", 1, nothing)
            elif deed == "fork":
                _fork_and_work()
            elif deed == "errors":
                internal_errors.counts()
            again()

        generator = random.Random(11)

        def again() -> None:
            signal.setitimer(signal.ITIMER_REAL, generator.uniform(0.0002, 0.002))

        signal.signal(signal.SIGALRM, handler)
        again()
        until = time.monotonic() + 1.5
        made = 0
        while time.monotonic() < until:
            made += AGENTS[kind]("find it", 20, nothing)
        signal.setitimer(signal.ITIMER_REAL, 0)
        counted = steps_of(seen)
        most = {"tool": came, "run": 2 * came}.get(deed, 0)
        assert made <= counted <= made + most, f"{counted} counted, {made} made, {came} signals"
        assert not seen.pipeline.engine.snapshot().active
    assert came > 2


def _fork_and_work() -> None:
    import os

    signal.setitimer(signal.ITIMER_REAL, 0)
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(3)  # a child that hangs is killed
        try:
            AGENTS["manual"]("in the child", 2, nothing)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the forked child hangs"


@pytest.mark.parametrize("deed", ["tool", "snapshot", "run", "fork", "errors"])
@pytest.mark.parametrize("kind", AGENTS)
def test_what_a_handler_does(kind: str, deed: str) -> None:
    check(handlers_work, kind, deed, deadline=30)


def storm(kind: str, style: str) -> None:
    """Several errors a run, also while the one before is handled: each run ends once, none is lost.

    An error that arrives while another one is handled replaces it, as in any program. So the
    agent must see one error for each run, and no run may stay open.
    """
    error: type[BaseException] = {"timeout": TimeoutError, "interrupt": KeyboardInterrupt}[style]
    recording = Path(tempfile.mkdtemp()) / "runs.jsonl"
    generator = random.Random(13)
    printed: list[object] = []
    sys.unraisablehook = lambda given: printed.append(given.exc_value)
    raised = seen_errors = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if in_anothers_hands(frame) or not armed:
            return
        raised += 1
        raise error

    signal.signal(signal.SIGALRM, handler)
    armed = False
    with testing.capture(record_to=recording) as seen:
        for _ in range(300):
            before = raised
            try:
                armed = True
                every = generator.uniform(0.00005, 0.001)
                signal.setitimer(signal.ITIMER_REAL, every, every)
                _tight_loop(kind, lambda before=before: raised > before)  # type: ignore[misc]
            except error:
                armed = False
                seen_errors += 1
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        gc.collect()  # an exception that arrives while another is handled may be in a cycle
        AGENTS["sync"]("after it all", 1, nothing)
        active = seen.pipeline.engine.snapshot().active
        assert not active, f"{len(active)} runs stay open after {raised} errors"
    assert seen_errors == 300, f"{300 - seen_errors} of {raised} errors were lost"
    assert not [one for one in printed if type(one) is error], printed
    assert_each_run_ended_once(recording)


@pytest.mark.parametrize("style", ["timeout", "interrupt"])
@pytest.mark.parametrize("kind", ["sync", "manual"])
def test_a_storm_of_errors(kind: str, style: str) -> None:
    check(storm, kind, style, deadline=120)


# -- every place at which CPython runs a handler, one after the other ----------------------------


_KINDS = [
    "tool",
    "manual",
    "async",
    "generator",
]


class At:
    """Acts at the n-th moment, inside of tidegauge's frames, at which a handler could run.

    CPython runs handlers of signals when a Python function begins, when a call of a C function
    has returned and when a loop jumps back. To a tracer these are the ``call`` event and the
    first opcode after a ``CALL`` that has entered no Python function, or at a ``JUMP_BACKWARD``;
    no others are taken, since an exception there is a fault that no program can meet.
    """

    def __init__(self, moment: int, act: Callable[[], object]) -> None:
        self.left = moment
        self.acted = False
        self.place = ""
        """Where it acted, in words."""
        self._act = act
        self._last: dict[FrameType, str] = {}

    def __enter__(self) -> At:
        sys.settrace(self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _begin(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_back is not None:
            self._last.pop(frame.f_back, None)
        if self.acted or _OURS not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._moment(frame)
        return self._opcode

    def _opcode(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event != "opcode" or self.acted:
            return self._opcode
        name = _opcode_name(frame)
        if name == "CACHE":
            return self._opcode
        if self._last.get(frame, "").startswith("CALL") or name.startswith("JUMP_BACKWARD"):
            self._moment(frame)
        self._last[frame] = name
        return self._opcode

    def _moment(self, frame: FrameType) -> None:
        self.left -= 1
        if self.left == 0:
            self.acted = True
            code = frame.f_code
            file = code.co_filename.rpartition("/")[2]
            self.place = f"{file}:{frame.f_lineno} {code.co_qualname}"
            self._last.clear()
            self._act()


def _opcode_name(frame: FrameType) -> str:
    import dis

    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _two_steps() -> None:
    look("hall")
    look("attic")


def _scenario(kind: str) -> Callable[[], object]:
    if kind == "tool":

        @tidegauge.agent
        def agent(task: str) -> None:
            _two_steps()

        return lambda: agent("find it")
    if kind == "manual":
        return lambda: AGENTS["manual"]("find it", 1, nothing)
    if kind == "async":
        return lambda: asyncio.run(_async_steps("find it"))
    return lambda: list(_streamed("find it"))


@tidegauge.agent
async def _async_steps(task: str) -> None:
    await look_later("hall")


@tidegauge.agent
def _streamed(task: str) -> Any:
    look("hall")
    yield 1


def raises_at_every_moment(kind: str, part: str, parts: str) -> None:
    """The error reaches the user from wherever it comes, and what comes after is as ever."""
    call = _scenario(kind)
    faults: dict[str, list[str]] = {}
    recording = Path(tempfile.mkdtemp()) / "runs.jsonl"
    with testing.capture(record_to=recording) as seen:
        call()
        moment = int(part)
        while True:
            moment += int(parts)
            # a context of its own: what one moment leaves behind does not hide the next one's
            found = contextvars.copy_context().run(_fault_at, moment, call, seen)
            if found is None:
                break
            fault, place = found
            if fault:
                faults.setdefault(fault, []).append(f"{moment} ({place})")
    total = moment // int(parts)
    assert total > 5
    lines = [f"{len(places)} x {fault}: {places[:25]}" for fault, places in faults.items()]
    assert not faults, f"of {total} moments\n" + "\n".join(lines)
    assert_each_run_ended_once(recording)


def assert_each_run_ended_once(recording: Path) -> None:
    """By what was recorded of them."""
    recorded: dict[str, list[str]] = {}
    for line in recording.read_text().splitlines():
        event = json.loads(line)
        if event["type"] in ("start", "end"):
            recorded.setdefault(event["run"], []).append(event["type"])
    assert len(recorded) > 10  # under a storm, many are interrupted before they begin
    wrong = {run: found for run, found in recorded.items() if found != ["start", "end"]}
    assert not wrong, f"of {len(recorded)} runs: {wrong}"


def _fault_at(
    moment: int, call: Callable[[], object], seen: testing.Capture
) -> tuple[str, str] | None:
    """What is wrong when an error comes at this moment, and where; ``None`` past the last one."""
    error = Alarm(moment)

    def act() -> None:
        raise error

    engine = seen.pipeline.engine
    found: BaseException | None = None
    open_before = {run.run for run in engine.snapshot().active}
    at = At(moment, act)
    try:
        with at:
            call()
    except BaseException as other:
        found = other
    if not at.acted:
        return None
    if found is not error:
        return "the error was lost", at.place
    error.__traceback__ = None  # it refers to what must end the run: the agent is over
    tidegauge.get_current_run()  # an ordinary call
    if tidegauge.get_current_run().id:
        return "the run stays the current one", at.place
    before = steps_of(seen)
    AGENTS["manual"]("after it", 1, nothing)
    _two_steps_of_an_agent("after it")
    if steps_of(seen) - before != 4:
        return "later steps are not counted", at.place
    if {run.run for run in engine.snapshot().active} - open_before:
        return "the run stays open", at.place
    return "", at.place


@tidegauge.agent
def _two_steps_of_an_agent(task: str) -> None:
    _two_steps()


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("kind", _KINDS)
def test_an_error_at_every_moment_of_a_step(kind: str, part: int) -> None:
    check(raises_at_every_moment, kind, str(part), "2", deadline=180)


def acts_at_every_moment(kind: str, deed: str) -> None:
    """A handler calls a tool, or looks at the runs: no hang, and every step of the agent counts."""
    call = _scenario(kind)
    with testing.capture() as seen:
        before = steps_of(seen)
        call()
        made = steps_of(seen) - before
        moment = 0
        while True:
            moment += 1

            def act() -> None:
                if deed == "tool":
                    assert look("the handler") == "the handler is empty"
                else:
                    seen.pipeline.engine.snapshot()

            at = At(moment, act)
            before = steps_of(seen)
            with at:
                call()
            if not at.acted:
                break
            extra = steps_of(seen) - before - made
            assert extra in ((0, 1) if deed == "tool" else (0,)), f"{extra} at moment {moment}"
            assert not seen.pipeline.engine.snapshot().active
    assert moment > 20


@pytest.mark.parametrize("deed", ["tool", "snapshot"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_handler_at_every_moment_of_a_step(kind: str, deed: str) -> None:
    check(acts_at_every_moment, kind, deed, deadline=180)
