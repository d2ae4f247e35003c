"""Guards of other projects, each as its documentation shows, with its default settings.

They run in a separate environment (``requirements.txt``, ``make bench-guards``). Each is given
all that it reads: names, arguments, results, failures, thoughts. What its documentation stops a run
at is the stop: an exception, a kill, a refused call, not a warning or advice to the model.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from benchmarks.guards.agents import Called, Turn
from benchmarks.guards.own import PRESET, Tidegauge
from benchmarks.guards.play import Declarations, Guarded
from tidegauge.policies.foreign_guards import FOREIGN_GUARDS, GuardedCall

__all__ = ["PEERS", "Peer", "learn"]

_UNLIMITED: Final = 10**9


def _text(content: object) -> str:
    return content if isinstance(content, str) else orjson.dumps(content, default=repr).decode()


def _said(turn: Turn) -> str:
    """What the model says; of most agents, that is what it does next."""
    return turn.thought or "; ".join(
        f"I call {call.tool} with {_text(call.arguments)}" for call in turn.calls
    )


class _ByTurns:
    """A run under a guard: what is not overridden never stops."""

    def issue(self, number: int, turn: Turn) -> bool:
        return False

    def observe(self, number: int, turn: Turn) -> bool:
        return False

    def close(self) -> None:
        pass


class _ByCalls(_ByTurns):
    """A run under a guard that looks at calls."""

    def issue(self, number: int, turn: Turn) -> bool:
        return any(self.before(call) for call in turn.calls)

    def observe(self, number: int, turn: Turn) -> bool:
        return any(self.after(call, turn) for call in turn.calls)

    def before(self, call: Called) -> bool:
        return False

    def after(self, call: Called, turn: Turn) -> bool:
        return False


class _LoopBrake(_ByCalls):
    """``loopbrake.start(project)``, ``brake.step()``, with a limit learned by :func:`learn`."""

    home: str | None = None

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        start = importlib.import_module("loopbrake").start
        project = family if capped else _UNLIMITED_PROJECT
        self._brake = start(project, home=_LoopBrake.home)

    def after(self, call: Called, turn: Turn) -> bool:
        action = f"{call.tool} {_text(call.arguments)}"
        return bool(self._brake.step(action, _text(call.result), error=call.failed).stop)


_UNLIMITED_PROJECT: Final = "unlimited"


def learn(lengths: Mapping[str, Sequence[int]]) -> None:
    """Let LoopBrake learn its limits from successful runs: their numbers of calls, by family.

    Nothing, if it is not installed.
    """
    if importlib.util.find_spec("loopbrake") is None:
        return
    folder = tempfile.mkdtemp(prefix="loopbrake")
    _LoopBrake.home = folder
    calibrate = importlib.import_module("loopbrake").calibrate
    step = {"action": "act", "observation": "", "error": None, "tokens": 0}
    for family, numbers in {**lengths, _UNLIMITED_PROJECT: [5_000] * 30}.items():
        path = Path(folder) / f"{family}.jsonl"
        with path.open("wb") as stream:
            for place, number in enumerate(numbers):
                run = {
                    **{"group": "", "dataset": "", "task": str(place), "run": str(place)},
                    **{"success": True, "exit": None, "tokens_measured": False},
                    "steps": [step] * number,
                }
                stream.write(orjson.dumps(run) + b"\n")
        calibrate(path, project=family, home=folder)


class _LongGuard(_ByCalls):
    """``CircuitBreaker(GuardConfig()).check(AgentStep(...))``: at ``kill``, not at ``reflect``."""

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        self._longguard = importlib.import_module("longguard")
        caps: dict[str, Any] = {"max_steps": _UNLIMITED, "semantic_variance_threshold": 1e-9}
        caps = {} if capped else caps
        self._breaker = self._longguard.CircuitBreaker(self._longguard.GuardConfig(**caps))
        self._number = 0

    def after(self, call: Called, turn: Turn) -> bool:
        self._number += 1
        step = self._longguard.AgentStep(
            step_number=self._number,
            thought=_said(turn),
            action=call.tool,
            action_input=dict(call.arguments),
            observation=_text(call.result),
        )
        return bool(self._breaker.check(step).action == "kill")


class _TrajectoryFuse(_ByCalls):
    """``fuse.check()`` before a call, ``fuse.observe()`` after it, as its decorator does."""

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        self._fuse_of = importlib.import_module("trajectory_fuse")
        repeats = {tool: 100 for tool, one in declared.items() if one in ("poll", "mutates")}
        config = self._fuse_of.FuseConfig(allow_repeats=repeats)
        self._fuse = self._fuse_of.AgentFuse(config)
        self._allowed = repeats

    def before(self, call: Called) -> bool:
        found = self._fuse.check(call.tool, dict(call.arguments))
        return found is not None and not (
            call.tool in self._allowed and found.kind.value == "direct_repeat"
        )

    def after(self, call: Called, turn: Turn) -> bool:
        action = self._fuse_of.Action(tool=call.tool, args=dict(call.arguments))
        action.result, action.success = (
            call.result,
            None if call.failed is None else not call.failed,
        )
        try:
            self._fuse.observe(action)
        except self._fuse_of.DeadlockDetected:
            return True
        return False


class _AgentVitals(_ByTurns):
    """``AgentVitals().step(...)``: at ``any_failure``.

    A finding is a call with a new result, the coverage the share of them, and each step takes 500
    tokens: of several readings of its four numbers, the one with the fewest false stops.
    """

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        vitals = importlib.import_module("agent_vitals")
        self._monitor = vitals.AgentVitals(mission_id="benchmark")
        self._seen: set[str] = set()
        self._steps = self._errors = 0

    def observe(self, number: int, turn: Turn) -> bool:
        self._steps += 1
        self._errors += sum(call.failed is True for call in turn.calls)
        self._seen.add(_text([[call.tool, call.arguments, call.result] for call in turn.calls]))
        snapshot = self._monitor.step(
            findings_count=len(self._seen),
            coverage_score=len(self._seen) / self._steps,
            total_tokens=500 * self._steps,
            error_count=self._errors,
        )
        return bool(snapshot.any_failure)


class _AgentBreaker(_ByTurns):
    """``CircuitBreaker(run_id).record_llm_call(...)`` with its default rules."""

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        module = importlib.import_module("agentbreaker.circuit_breaker")
        config = {} if capped else {"max_iterations": _UNLIMITED, "max_cost_usd": _UNLIMITED}
        self._breaker = module.CircuitBreaker("benchmark", config)

    def issue(self, number: int, turn: Turn) -> bool:
        first, *others = turn.calls
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                for call in others:
                    self._breaker.record_tool_call(call.tool, dict(call.arguments))
                self._breaker.record_llm_call(
                    400, 100, tool_name=first.tool, tool_args=dict(first.arguments)
                )
        except RuntimeError:
            return True
        return False


class _GuardLoop(_ByCalls):
    """``ctx.call_tool()`` in ``GuardLoop.run()``, with the budget and breaker of its first example.

    Its other limits (cost, tokens, time) are those of the model's calls, of which there are none.
    """

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        guardloop = importlib.import_module("guardloop")
        self._error = importlib.import_module("guardloop.exceptions").GuardLoopError
        budget = guardloop.BudgetConfig(
            cost_limit_usd="0.10", token_limit=10_000, tool_call_limit=20 if capped else _UNLIMITED
        )
        policy = guardloop.CircuitBreakerPolicy(failure_threshold=3, recovery_timeout_seconds=30)
        runtime = guardloop.GuardLoop(
            budget=budget, circuit_breakers=guardloop.CircuitBreakerConfig(default=policy)
        )
        self._loop = asyncio.new_event_loop()
        self._contexts: list[Any] = []
        self._loop.run_until_complete(runtime.run(self._agent))

    async def _agent(self, context: Any) -> str:
        self._contexts.append(context)
        return "done"

    def before(self, call: Called) -> bool:
        def tool() -> object:
            if call.failed:
                raise ValueError(_text(call.result))
            return call.result

        try:
            self._loop.run_until_complete(self._contexts[0].call_tool(call.tool, tool))
        except self._error:
            return True
        except ValueError:
            pass
        return False

    def close(self) -> None:
        self._loop.close()


class _TokenCircuit(_ByTurns):
    """``InterventionEngine().process()`` before each call of the model: at ``should_terminate``."""

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        self._engine = importlib.import_module("tokencircuit").InterventionEngine()
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": "Do the task."}]
        self._state: dict[str, Any] = {}

    def observe(self, number: int, turn: Turn) -> bool:
        ids = [f"call_{number}_{place}" for place in range(len(turn.calls))]
        calls = [
            {"id": one, "name": call.tool, "args": dict(call.arguments)}
            for one, call in zip(ids, turn.calls, strict=True)
        ]
        self._messages.append({"role": "assistant", "content": _said(turn), "tool_calls": calls})
        self._messages += [
            {"role": "tool", "tool_call_id": one, "name": call.tool, "content": _text(call.result)}
            for one, call in zip(ids, turn.calls, strict=True)
        ]
        decision = self._engine.process(
            self._messages, self._state, thread_id="1", node_name="agent"
        )
        patch = decision.state_patch
        self._state.update(patch if "_tc_intervention" in patch else {"_tc_intervention": patch})
        return bool(decision.should_terminate)


class _StallGuard(_ByCalls):
    """``stallguard run``: it reads what the agent prints, here a line for each call."""

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        self._detector = importlib.import_module("stallguard.detectors").LoopDetector()

    def after(self, call: Called, turn: Turn) -> bool:
        line = f"{call.tool}({_text(call.arguments)}) -> {_text(call.result)}"
        return self._detector.feed(" ".join(line.split())) is not None


class _Looptrip(_ByCalls):
    """``detect_all()`` over the events so far: at its first report, though it only reports."""

    def __init__(self, declared: Declarations, *, capped: bool, family: str) -> None:
        self._detect = importlib.import_module("looptrip.detector").detect_all
        self._normalize = importlib.import_module("looptrip.normalize")
        exempt = frozenset(tool for tool, one in declared.items() if one in ("poll", "mutates"))
        types = importlib.import_module("looptrip.detectors.types")
        self._exempt = exempt
        self._config = types.DetectionConfig(idempotent_tools=exempt)
        self._events: list[Any] = []

    def after(self, call: Called, turn: Turn) -> bool:
        if call.tool in self._exempt:
            return False
        digest = self._normalize.args_hash_from(call.tool, _text(call.arguments))
        at = f"2026-11-27T{len(self._events):09}"
        self._events.append(
            self._normalize.Event(agent="agent", tool=call.tool, args_hash=digest, ts=at)
        )
        return bool(self._detect(self._events, config=self._config))


class _Documented(_ByTurns):
    """A rule of an agent, written from its documentation: see ``tidegauge backtest --guard``."""

    def __init__(self, guard: str) -> None:
        self._guard = FOREIGN_GUARDS[guard]
        self._calls: list[GuardedCall] = []
        self._done = 0

    def issue(self, number: int, turn: Turn) -> bool:
        begin = len(self._calls)
        self._calls += [GuardedCall(call.tool, _text(call.arguments)) for call in turn.calls]
        return self._guard.at_issue and any(self._guard.read(self._calls)[begin:])

    def observe(self, number: int, turn: Turn) -> bool:
        for call in turn.calls:
            self._calls[self._done] = self._calls[self._done]._replace(
                result=_text(call.result), error=call.failed
            )
            self._done += 1
        if self._guard.at_issue:
            return False
        return any(self._guard.read(self._calls[: self._done])[-len(turn.calls) :])


class Peer(NamedTuple):
    """A guard to compare with.

    Attributes:
        name: its name in the table.
        begin: begins a run under it.
        package: what must be installed; ``None``, nothing.
        stops: at what it stops, with its default settings.
        declares: whether it can be given what is declared of tools.
        timed: whether its time says something.
    """

    name: str
    begin: Callable[..., Guarded]
    package: str | None
    stops: str
    declares: bool = False
    timed: bool = True

    @property
    def missing(self) -> bool:
        """Whether it is not installed."""
        return self.package is not None and importlib.util.find_spec(self.package) is None


def _documented(name: str, guard: str, stops: str) -> Peer:
    def begin(declared: Declarations, *, capped: bool, family: str) -> Guarded:
        return _Documented(guard)

    return Peer(name, begin, None, stops, timed=False)


def _own(declared: Declarations, *, capped: bool, family: str) -> Guarded:
    return Tidegauge(declared, **PRESET)


PEERS: Final = (
    Peer('**tidegauge**, `guard="stuck"`', _own, None, "the preset", declares=True),
    Peer("LoopBrake 0.6.0", _LoopBrake, "loopbrake", "a number of steps, from successful runs"),
    Peer(
        "longguard 0.1.4",
        _LongGuard,
        "longguard",
        "3 equal calls of 6, or 5 steps without progress, after advice; 30 steps",
    ),
    Peer(
        "trajectory-fuse 0.3.0",
        _TrajectoryFuse,
        "trajectory_fuse",
        "3 equal calls, cycles of 2 to 6 calls, like failures",
        declares=True,
    ),
    Peer("agent-vitals 1.19.0", _AgentVitals, "agent_vitals", "no new findings, similar outputs"),
    Peer("agentbreaker-sdk 2.1.0", _AgentBreaker, "agentbreaker", "4 equal calls; 10 turns"),
    Peer("guardloop 0.4.2", _GuardLoop, "guardloop", "3 failures of a tool; 20 calls"),
    Peer("tokencircuit 8.1.0", _TokenCircuit, "tokencircuit", "8 similar turns, after advice"),
    Peer("stallguard 0.1.0", _StallGuard, "stallguard", "15 equal lines"),
    Peer(
        "looptrip 0.1.2",
        _Looptrip,
        "looptrip",
        "an equal call, 20 events with few states (it reports only)",
        declares=True,
    ),
    _documented("OpenHands", "openhands", "4 equal calls with equal results, 3 rounds of 2"),
    _documented("Gemini CLI", "gemini_cli", "5 rounds of 1 to 5 equal calls"),
    _documented("opencode", "identical_3", "3 equal calls (it asks)"),
)
