"""What is counted, by kind, and how much it is to cost at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from opentelemetry._logs import NoOpLogger
from opentelemetry.trace import NoOpTracer, NoOpTracerProvider

import tidegauge
from benchmarks.fleet_parts import Messages
from benchmarks.hostile import Advance, engine_run, langchain_run
from benchmarks.otlp_load import Load, make_load
from benchmarks.peers.decorators import DECORATORS
from benchmarks.peers.handlers import HANDLERS
from benchmarks.peers.subject import Prepare, Setup, Subject, provider_for
from benchmarks.peers.tokens import CODE, PROSE, READ, STREAMED, STREAMED_IDLE, STREAMED_TO_US
from benchmarks.scripted_agent import Discard, hook_run
from tidegauge.coding_agents.sessions import HookSessions
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.fleet import partition
from tidegauge.fleet.sink import FleetSink
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.receivers.assembly import Assembly
from tidegauge.receivers.decoding import decode_protobuf
from tidegauge.runs.current import set_recorder
from tidegauge.runs.recorder import Recorder
from tidegauge.streaming_metrics import Engine
from tidegauge.tracer import SpanFactory

__all__ = ["AIMS", "FLOOR", "IMPORTS", "KINDS", "Aim", "Import", "Kind"]

FLOOR = HANDLERS[1].name
_BARE_SPAN = DECORATORS[1].name


@dataclass(frozen=True, slots=True)
class Kind:
    """Subjects that are counted alike.

    Args:
        title: of their table.
        subjects: the first is what the others are added to.
        lengths: two run lengths; what the longer run has more belongs to its steps.
        yardstick: name of the subject that they are divided by. Nothing of tidegauge is in it.
        warm_up: length of a run before.
        repeats: how often each of ours is counted. The least counts: threads that wait only add.
    """

    title: str
    subjects: tuple[Subject, ...]
    lengths: tuple[int, int]
    yardstick: str = FLOOR
    warm_up: int = 20
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Import:
    """An import in a new process.

    Args:
        name: what it is called in the table.
        code: the program.
        without: the program that it is compared with.
    """

    name: str
    code: str
    without: str


@dataclass(frozen=True, slots=True)
class Aim:
    """At most so many times the cost of another subject."""

    times: float
    of: str = FLOOR


@contextmanager
def _nothing(exporter: Discard) -> Iterator[Prepare]:
    yield lambda steps: lambda: None


_NOTHING = Subject("nothing", _nothing)


# A whole run

_RUN_STEPS = 3


def _whole_runs(setup: Setup) -> Setup:
    """Whole runs, each of three steps, instead of steps of one run."""

    @contextmanager
    def runs(exporter: Discard) -> Iterator[Prepare]:
        with setup(exporter) as prepare:

            def prepare_runs(count: int) -> Callable[[], object]:
                one = prepare(_RUN_STEPS)

                def run() -> None:
                    for _ in range(count):
                        one()

                return run

            yield prepare_runs

    return runs


_RUNS = {one.name: f"a run of three steps, {one.name}" for one in HANDLERS if one.package is None}
_WHOLE_RUNS = tuple(
    Subject(_RUNS[one.name], _whole_runs(one.setup))
    for one in HANDLERS
    if one.name in _RUNS and "troubled" not in one.name and "contents" not in one.name
)


# Steps at a place in a run


def _from_step(first: int, make: Callable[[], Advance], **settings: Any) -> Setup:
    """Steps of a run that has taken so many before."""

    @contextmanager
    def setup(exporter: Discard) -> Iterator[Prepare]:
        provider = provider_for(exporter)
        tidegauge.configure(**{"tracer_provider": provider, **settings}, serve_metrics=False)

        def prepare(steps: int) -> Callable[[], object]:
            advance = make()
            advance(first)
            provider.force_flush()
            return lambda: advance(steps)

        yield prepare
        provider.shutdown()

    return setup


_EARLY, _LATE = 50, 1_000
_CALLBACKS: dict[str, dict[str, Any]] = {
    "the handler's callbacks": {},
    "the handler's callbacks, with contents": {"capture_content": True},
}
_PLACES = tuple(
    Subject(f"{name}, from step {first:,} on", _from_step(first, langchain_run, **settings))
    for name, settings in _CALLBACKS.items()
    for first in (_EARLY, _LATE)
)

_CAP = 200
_SMALL_CAPS = partial(engine_run, _CAP)
_PAST = f"every value new and everything reported, past caps of {_CAP}"
_BEFORE = "every value new and everything reported, at the start"
_CAPS = (
    Subject(_BEFORE, _from_step(0, _SMALL_CAPS)),
    Subject(_PAST, _from_step(6 * _CAP, _SMALL_CAPS)),
)


# The engine


def _steps(
    name: str,
    arguments: Callable[[int], object],
    different: int | None = None,
    *,
    repetition: bool = True,
    first: int = 0,
) -> Subject:
    """Steps through the engine and a policy: a result of 200 characters."""

    def prepare(steps: int) -> Callable[[], object]:
        events = []
        for t in range(first + steps):
            call = Call("read_document", arguments(t))
            page = t if different is None else t % different
            result = CallResult(f"{page:06d} " + "text " * 40, False)
            events.append((Step(run="r", calls=(call,)), Outcome(run="r", results=(result,))))
        sink = EngineSink(Engine(repetition=repetition), Policy())
        sink.run_started(RunStarted(run="r", agent="a", task_group="g", t_max=50))

        def take(some: list[tuple[Step, Outcome]]) -> None:
            for step, outcome in some:
                sink.step_issued(step)
                sink.step_observed(outcome)

        take(events[:first])
        return lambda: take(events[first:])

    return Subject(name, _made_by(prepare))


def _made_by(prepare: Prepare) -> Setup:
    @contextmanager
    def setup(exporter: Discard) -> Iterator[Prepare]:
        yield prepare

    return setup


def _engine(name: str, different: int | None = None, *, first: int = 0) -> Subject:
    def arguments(t: int) -> object:
        return {"id": t if different is None else t % different, "page": 1}

    return _steps(name, arguments, different, first=first)


def _of_words(*, new: bool, repetition: bool) -> Subject:
    """Arguments of twenty words: all of them new at each step, or one."""

    def arguments(t: int) -> object:
        words = [f"word{20 * t + n}" if new else f"word{n}" for n in range(18)]
        return {"query": " ".join([*words, f"number{t}"])}

    name = f"20 words in arguments, {'all' if new else 'one'} new"
    return _steps(
        f"{name}, with repetition" if repetition else name, arguments, repetition=repetition
    )


def _ends(count: int) -> Callable[[], object]:
    """Runs that start and end."""
    sink = EngineSink(Engine(), Policy())

    def run() -> None:
        for number in range(count):
            name = f"r{number}"
            sink.run_started(RunStarted(run=name, agent="a", task_group="g", t_max=50))
            sink.run_ended(RunEnded(run=name, success=True))

    return run


_NEW = "metrics of a step, every result new"
_LOOP = "metrics of a step, in a loop of 3"
_NEW_LATE = f"metrics of a step, every result new, from step {_LATE:,} on"
_ENDS = "metrics of a run's start and end"


# The receiver, and a worker


def _received(name: str, load: Load) -> Subject:
    """Spans that arrive in requests, as a receiver takes them; one step is a wave of the load."""

    @contextmanager
    def setup(exporter: Discard) -> Iterator[Prepare]:
        tidegauge.configure(tracer_provider=NoOpTracerProvider(), serve_metrics=False)

        def prepare(waves: int) -> Callable[[], object]:
            assembly = Assembly()
            bodies = [list(load.wave(number)) for number in range(waves)]

            def run() -> None:
                now = 1.0
                for wave in bodies:
                    for body in wave:
                        assembly.take(decode_protobuf(body).spans, now=now)
                        now += 0.01
                    now += 1.0  # all of them are due
                    assembly.expire(now)

            return run

        yield prepare

    return Subject(name, setup, units=load.spans)


_LIVE_STEPS = 20


@contextmanager
def _restored(exporter: Discard) -> Iterator[Prepare]:
    """Live runs that a worker restores from the snapshots of the one before."""
    # Neither its time for them nor that of a quiet run is what is counted.
    vars(partition).update(_SNAPSHOT_SECONDS=math.inf, _MIN_LOG_BYTES=-1, _MIN_LOG_SHARE=0.0)

    def worker() -> partition.Partition:
        sink = FleetSink(Engine(clock=None, max_runs=10**9), Policy(), lambda *produced: None)
        set_recorder(Recorder(sink, SpanFactory(NoOpTracer(), NoOpLogger("tidegauge"))))
        return partition.Partition(sink, lambda *rejected: None)

    def prepare(runs: int) -> Callable[[], object]:
        before, changelog = worker(), dict[bytes, bytes]()
        messages = Messages.of_live_runs(make_load(runs=runs, steps=_LIVE_STEPS), 8)
        for offset, (key, value) in enumerate(messages.wave(1)):
            before.take(offset, key, value, 1.0)
        before.tick(1.0 + 2 * partition._QUIET_SECONDS)
        for key, kept in before.changes().items():
            if kept is not None:
                changelog[key] = kept
        after, ordered = worker(), sorted(changelog.items())

        def run() -> None:
            after.restore(ordered)
            after.changes()  # reads the snapshots

        return run

    yield prepare


@contextmanager
def _hooks(exporter: Discard) -> Iterator[Prepare]:
    provider = provider_for(exporter)
    settings = tidegauge.configure(tracer_provider=provider, serve_metrics=False)
    yield lambda steps: hook_run(steps, HookSessions(settings.recorder))
    provider.shutdown()


_RECEIVED = "an agent's span, received"
_RECEIVED_MIXED = "a span, received, where two of ten are an agent's"
_RESTORED = f"a live run of {_LIVE_STEPS} steps, restored by a worker"

KINDS = {
    "handlers": Kind("Added to a step of a LangChain agent", HANDLERS, (20, 120), repeats=2),
    "runs": Kind("Added to a run of a LangChain agent", _WHOLE_RUNS, (5, 25), warm_up=5, repeats=2),
    "places": Kind("A step early and late in a run", (_NOTHING, *_PLACES), (20, 120), warm_up=0),
    "decorators": Kind(
        "A decorated call of a trivial function", DECORATORS, (200, 1_200), _BARE_SPAN
    ),
    "engine": Kind(
        "Metrics of a step, without spans",
        (
            _NOTHING,
            _engine(_NEW),
            _engine(_LOOP, 3),
            _engine(_NEW_LATE, first=_LATE),
            Subject(_ENDS, _made_by(_ends)),
        ),
        (200, 1_200),
    ),
    "caps": Kind("A step before and past every cap", (_NOTHING, *_CAPS), (50, 200), warm_up=0),
    "hooks": Kind(
        "Hooks", (_NOTHING, Subject("a coding agent's step, by its hooks", _hooks)), (20, 120)
    ),
    "received": Kind(
        "Received",
        (
            _NOTHING,
            _received(_RECEIVED, make_load(runs=40)),
            _received(_RECEIVED_MIXED, make_load(others=8, runs=10)),
        ),
        (1, 3),
        warm_up=1,
    ),
    "restored": Kind("Restored", (_NOTHING, Subject(_RESTORED, _restored)), (5, 25), warm_up=2),
    "tokens": Kind("A token of an answer, read for chanting", READ, (1_000, 5_000)),
    "streams": Kind("Added to a token that streams through LangChain", STREAMED, (200, 1_000)),
    "repetition": Kind(
        "Metrics of a step, and the similarity of its action to those before",
        (
            _NOTHING,
            _of_words(new=False, repetition=False),
            _of_words(new=False, repetition=True),
            _of_words(new=True, repetition=False),
            _of_words(new=True, repetition=True),
        ),
        (200, 1_200),
    ),
}

_SDK = "import opentelemetry.sdk.trace"
IMPORTS = (
    Import(_SDK, _SDK, "pass"),
    Import("import tidegauge, in addition", f"{_SDK}, tidegauge", _SDK),
)

AIMS = {
    "tidegauge": Aim(0.6),
    "tidegauge, metrics only": Aim(0.4),
    "tidegauge, with contents": Aim(0.9),
    "tidegauge, only troubled runs exported": Aim(0.8),
    _RUNS["tidegauge"]: Aim(1.0, _RUNS[FLOOR]),
    **{
        late.name: Aim(1.1, early.name)
        for early, late in zip(_PLACES[::2], _PLACES[1::2], strict=True)
    },
    DECORATORS[2].name: Aim(0.7, _BARE_SPAN),
    # 50, 60, 100 and 45 thousand instructions where the floor has 663 thousand
    _NEW: Aim(0.075),
    _LOOP: Aim(0.09),
    _RECEIVED: Aim(0.15),
    _RECEIVED_MIXED: Aim(0.068),
    _RESTORED: Aim(6.0),  # a third of what it took when it was first counted
    _NEW_LATE: Aim(1.1, _NEW),
    _ENDS: Aim(3.0, _NEW),
    _PAST: Aim(1.1, _BEFORE),
    CODE: Aim(2.0, PROSE),
    STREAMED_TO_US: Aim(2.3, STREAMED_IDLE),
    IMPORTS[1].name: Aim(1.0, _SDK),
}
