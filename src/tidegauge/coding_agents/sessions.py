"""Makes runs of the events of hooks, and answers them.

A run is what one prompt of the user asks for, until the agent has answered or the next prompt
comes. Calls that begin before any of them ends are one step. A step is reported when all of its
calls have ended, so it does not depend on time. Only where the policy may act, a call that was made
before in the run, or every call if there are budgets or breakers, waits for a moment, for the calls
beside it; then its step is reported before it runs, and can be refused.

- *Joined*: a result belongs to the call with its id. Without ids, it belongs to the oldest open
  call with the same tool and arguments, else with the same tool. A result without a call is
  ignored: the call was refused, or began before the watcher.
- *Order*: calls of a step are sorted, because the hooks of parallel calls come in any order.
- *Twice*: hooks that are installed in two places report each event twice. A prompt that is repeated
  before its first call, and a call with the id of one that has not ended, or was refused within the
  last second, are the same again, if tool and arguments are.
- *Read*: files, to-do lists and test runs are read from the calls by
  :class:`~tidegauge.instrumentation.extractors.CodingAgent`, unless the recorder has extractors.
- *Lost*: a call that another hook refused, or a person, has no result. It is over when another one
  begins a second after it, or with its id; its result stays unknown.
- *Tokens*: hooks do not report them. What the session's file says of the answer that chose a call
  is read when the call begins, or ends, and counts for its step.
- *Spans*: a run's span is open while the run is. Those of its calls are made when their step is
  known, with the times at which their hooks reported them. Refused calls have none.
- *Stopped*: the agent is asked to end. Where its hooks cannot do that, every further call is
  refused. Such calls are no steps.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from opentelemetry.context import Context

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.coding_agents.agents import AGENTS
from tidegauge.coding_agents.known_agent import ALLOW, HookAnswer, HookEvent, KnownAgent, Payload
from tidegauge.coding_agents.session_files import AnswerTokens
from tidegauge.events import Decision, ModelUsage, RunStarted
from tidegauge.instrumentation.extractors import CodingAgent
from tidegauge.runs.recorder import RecordedRun, Recorder, new_run_id
from tidegauge.runs.run_map import RunMap, RunScope
from tidegauge.runs.turn_calls import Turn, TurnCall
from tidegauge.runs.turns import TurnTracker
from tidegauge.safety.guard import guarded
from tidegauge.values.exact_json import bounded_json
from tidegauge.values.safe_reading import same_value, text_digest

_MAX_CALLS: Final = 1_000
"""Calls that a run remembers: open ones, and those made before."""

_MAX_SESSIONS: Final = 10_000
"""Sessions that are remembered: as counted, and as reported by hooks."""

_MAX_AGENTS: Final = 200
_OTHER: Final = "other"

_STOPPED: Final = "Finish now: say what is missing. Every further call will be refused."


class SessionLimits(NamedTuple):
    """The limits of sessions.

    Args:
        runs: open runs; one more ends the one that is idle for longest.
        idle_seconds: a run without an event for so long is ended.
        beside_seconds: how long a call that was made before waits for the calls beside it.
        round_seconds: a call that begins so long after the last one is not beside it.
    """

    runs: int = 1_000
    idle_seconds: float = 3_600.0
    beside_seconds: float = 0.1
    round_seconds: float = 1.0


class _Timed(NamedTuple):
    """A call that has no span yet: its id, and when it began and ended, in ns since the epoch."""

    call_id: str | None
    began: int
    ended: int | None = None


class _Refused(NamedTuple):
    """A call that was refused: its key, its digest, when, and the answer to it."""

    key: str
    digest: str
    time: float
    answer: HookAnswer


class _SessionRun:
    """A run of a session."""

    def __init__(
        self, root: tuple[str, ...], recorded: RecordedRun, tokens: AnswerTokens | None = None
    ) -> None:
        self.root = root  # the agent, the session and, of a sub-agent, its id
        self.recorded = recorded
        self.tokens = tokens
        self.turns = TurnTracker(recorded)
        # Protects what follows, and is notified when a step was issued.
        self.changed = threading.Condition()
        self.group: list[TurnCall] = []  # gathered, and not issued yet
        self.open: OrderedDict[str, TurnCall] = OrderedDict()  # have not ended, by their keys
        self.made: OrderedDict[str, None] = OrderedDict()  # digests of the calls so far
        self.asking: set[str] = set()  # keys of the calls that wait for an answer
        self.refused: _Refused | None = None  # the last call that was refused
        self.latest: Turn | None = None  # that of the last call that began
        self.nudge: Decision | None = None  # in the last answer to a result
        self.begun = 0.0  # when the last call began
        self.calls = 0  # that began
        self.timed: OrderedDict[TurnCall, _Timed] = OrderedDict()  # have no span yet
        self.prompt = ""  # digest of what it was asked for
        # For the map of runs:
        self.held = False
        self.last_seen = 0.0
        self.open_ids: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def end(self, **ending: Any) -> None:
        """Report the rest of its steps, and its end."""
        try:
            self.turns.next_turn(ends=True)
            self.make_spans(ends=True)
        finally:
            self.recorded.end(**ending)

    def make_spans(self, *, ends: bool = False) -> None:
        """Make the spans of calls whose step is known and that have ended, as the run may now."""
        for call, timed in list(self.timed.items()):
            turn = call.turn
            if turn.decision is None or (call.result is None and not (ends or turn.observed)):
                continue
            del self.timed[call]
            if not turn.blocked:
                self.recorded.ended_tool(
                    call.name,
                    call_id=timed.call_id,
                    signals=turn.signals,
                    seen=turn.seen,
                    arguments=call.arguments,
                    result=call.result,
                    began=timed.began,
                    ended=timed.ended,
                )

    def spend(self, event: HookEvent, call: TurnCall, tokens: AnswerTokens) -> None:
        """Add what the answer took that chose a call, if the step of the call is not issued."""
        if call in self.group:
            spent = tokens.take(event.chosen_id)
            self.turns.add_tokens(spent)
            if spent is not None and self.recorded.counts_usage:
                self.recorded.spend(ModelUsage(spent))

    def named(self, event: HookEvent) -> str | None:
        """The key of the open call that the result of a call without an id belongs to."""
        named = [(key, call) for key, call in self.open.items() if call.name == event.tool]
        named = [one for one in named if one[1].turn is self.latest] or named
        same = (key for key, call in named if same_value(call.arguments, event.arguments))
        return next(same, named[0][0] if named else None)


class SessionCounts:
    """Counts by agent; of more than 200 agents, the further ones are ``other``.

    >>> counts = SessionCounts()
    >>> counts.began("codex", "s1"), counts.began("codex", "s1"), counts.began("codex", "s2")
    (None, None, None)
    >>> [found["codex", ""] for found in counts.metrics(active=["codex"]).values()]
    [2, 1]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._sessions: Counter[str] = Counter()

    def began(self, agent: str, session: str) -> None:
        """A run of a session began; the first one counts."""
        known = (agent, session)
        with self._lock:
            if known in self._known:
                self._known.move_to_end(known)
                return
            self._known[known] = None
            if len(self._known) > _MAX_SESSIONS:
                self._known.popitem(last=False)
            self._sessions[self._name(agent)] += 1

    def metrics(
        self, active: Iterable[str]
    ) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """The metrics; ``active`` are the agents of the sessions that have a run now."""
        with self._lock:
            now = Counter(map(self._name, active))
            return {
                metric: {(agent, ""): counts[agent] for agent in self._sessions}
                for metric, counts in (
                    (catalog.SESSIONS, self._sessions),
                    (catalog.SESSIONS_ACTIVE, now),
                )
            }

    def _name(self, agent: str) -> str:
        known = agent in self._sessions or len(self._sessions) < _MAX_AGENTS
        return agent if known else _OTHER


class HookSessions:
    """The sessions of all agents.

    Args:
        recorder: opens runs. If its policy acts, agents are nudged, refused and stopped.
        tokens: whether tokens are read in the files of the agents' sessions.
        traced: whether runs and calls have spans.
    """

    def __init__(
        self,
        recorder: Recorder,
        limits: SessionLimits = SessionLimits(),  # noqa: B008 -- immutable
        clock: Callable[[], float] = time.monotonic,
        *,
        tokens: bool = False,
        traced: bool = False,
    ) -> None:
        self._recorder = recorder
        self._traced = traced
        self._tokens = tokens
        self._limits = limits
        self._clock = clock
        self._runs: RunMap[tuple[str, ...], _SessionRun] = RunMap(
            max_runs=limits.runs, idle_seconds=limits.idle_seconds, clock=clock
        )
        self._opening = threading.Lock()
        self.counts = SessionCounts()
        self._known: OrderedDict[tuple[str, ...], None] = OrderedDict()

    @guarded("hooks.receive", default=b"")
    def receive(self, agent_name: str, payload: bytes) -> bytes:
        """What the hook of an agent prints for a payload; nothing, the agent goes on.

        Args:
            agent_name: one of :data:`~tidegauge.coding_agents.agents.AGENTS`.
            payload: the JSON object that the agent gave its hook.
        """
        found = _read(agent_name, payload)
        if found is None:
            return b""
        agent, content, event = found
        answer = self.take(agent, event)
        if answer.action == "allow" or agent.hook is None:
            return b""
        printed = agent.hook.write(content, answer)
        if printed is None:
            self._give_back(event)
            return b""
        # ASCII alone: a tool's name may have what a terminal acts on.
        return json.dumps(printed, separators=(",", ":")).replace("\x7f", "\\u007f").encode()

    @guarded("hooks.receive", default=None)
    def lost(self, agent_name: str, payload: bytes) -> None:
        """The hook did not wait for the answer: a nudge in it is given again."""
        found = _read(agent_name, payload)
        if found is not None:
            self._give_back(found[2])

    def _give_back(self, event: HookEvent) -> None:
        """The model does not read the nudge in the answer to an event: it is given again."""
        scope = self._runs.find(_root(event))
        if scope is not None:
            run = scope.run
            with run.changed:
                nudge, run.nudge = run.nudge, None
            if nudge is not None:
                run.recorded.give_back_nudge(nudge)

    def take(self, agent: KnownAgent, event: HookEvent) -> HookAnswer:
        """Take an event; returns the answer to it."""
        if event.agent is None:
            event = event._replace(agent=agent.name)
        root = _root(event)
        self._known[root[:2]] = None  # the agent and the session
        if len(self._known) > _MAX_SESSIONS:
            self._known.pop(next(iter(self._known)), None)
        kind = event.kind
        if kind == "call":
            return self._call(agent, event, root)
        scope = self._runs.scopes.get(root)
        run = None if scope is None else scope.run
        if kind == "result":
            return ALLOW if run is None else self._result(agent, event, run)
        if run is not None:
            again = kind == "prompt" and not run.calls  # if it asks for the same
            if again and run.prompt == text_digest(event.prompt or ""):
                return ALLOW
            self._runs.close(run)
            run.end(reason=event.reason)
        if kind == "prompt":
            self._open(agent, event, root)
        return ALLOW

    def is_reported(self, agent: str, session: str) -> bool:
        """Whether hooks have reported something of a session of an agent."""
        return (agent, session) in self._known

    def metrics(
        self, also: Iterable[str] = ()
    ) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """How many sessions there were and are, ``also`` those of other agents with an open run."""
        active = (run.recorded.event.agent for run in self._runs.runs if len(run.root) == 2)
        return self.counts.metrics([*active, *also])

    def end_idle(self) -> None:
        """End the runs that are idle for too long; call it from time to time."""
        self._runs.end_idle()

    def close(self) -> None:
        """End all runs."""
        self._runs.close_all()

    def _open(self, agent: KnownAgent, event: HookEvent, root: tuple[str, ...]) -> _SessionRun:
        outer = self._runs.find(root[:2]) if event.inner is not None else None
        started = RunStarted(
            run=new_run_id(),
            agent=event.agent or "",
            task=event.prompt,
            model=event.model,
            parent=None if outer is None else outer.run.recorded.id,
            conversation=event.session,
            detect_polls=True,
        )
        reads = (CodingAgent(working_directory=event.folder or ""),)
        around = Context() if outer is None else outer.run.recorded.context
        recorded = self._recorder.start_run(started, around, traced=self._traced, extractors=reads)
        tokens = None
        written = agent.sessions
        if self._tokens and written is not None and written.tokens and event.transcript is not None:
            tokens = AnswerTokens(Path(event.transcript), written.transcript)
        run = _SessionRun(root, recorded, tokens)
        run.prompt = text_digest(event.prompt or "")
        self._runs.open(RunScope(run))
        if event.inner is None:
            self.counts.began(recorded.event.agent, event.session)
        return run

    def _call(self, agent: KnownAgent, event: HookEvent, root: tuple[str, ...]) -> HookAnswer:
        with self._opening:
            scope = self._runs.scopes.get(root)
            # A session whose prompt was not seen has no run yet.
            run = self._open(agent, event, root) if scope is None else scope.run
        self._runs.seen(run)
        try:
            arguments = orjson.dumps(event.arguments, option=orjson.OPT_SORT_KEYS).decode()
        except orjson.JSONEncodeError:  # too deep: all such calls of a tool
            arguments = ""
        # Whether the call was made before; it is for the engine to say whether it repeats another.
        digest = text_digest(f"{event.tool}\0{arguments}")
        with run.changed:
            if event.call_id is not None and (run.refused is not None or event.call_id in run.open):
                given = self._given(run, event, digest)
                if given is not None:
                    return given
            decision = run.recorded.decision
            if decision.action == "stop":
                return self._refused(run, event.call_id, digest, _stop(agent, decision))
            now = self._clock()
            # The id of an open call: many models count from zero again in each answer.
            lost = event.call_id is not None and run.open.pop(event.call_id, None) is not None
            if lost or (run.group and now - run.begun > self._limits.round_seconds):
                self._report_group(run)
            run.begun = now
            run.calls += 1
            key = event.call_id or f"#{run.calls}"
            order = (0, event.tool, digest)
            call = run.turns.gather(event.tool, key, arguments=event.arguments, order=order)
            if call not in run.group:
                run.group.append(call)
            if run.recorded.calls_wanted:
                run.timed[call] = _Timed(event.call_id, time.time_ns())
                if len(run.timed) > _MAX_CALLS:
                    run.timed.popitem(last=False)
            if run.tokens is not None:
                run.spend(event, call, run.tokens)
            run.open[key], run.latest = call, call.turn
            while len(run.open) > _MAX_CALLS:
                run.open.popitem(last=False)
            again = digest in run.made
            run.made[digest] = None
            run.made.move_to_end(digest)
            if len(run.made) > _MAX_CALLS:
                run.made.popitem(last=False)
            asks = again or self._recorder.on_model_call is not None  # budgets ask about all
            return self._asked(agent, run, call, digest) if asks and self._recorder.acts else ALLOW

    def _asked(
        self, agent: KnownAgent, run: _SessionRun, call: TurnCall, digest: str
    ) -> HookAnswer:
        """The answer to a call that may be refused: it waits for the calls beside it."""
        key = str(call.id)
        run.asking.add(key)
        run.changed.wait_for(lambda: call not in run.group, self._limits.beside_seconds)
        if call in run.group:
            asked = all(one.id in run.asking for one in run.group)
            run.group = []
            run.turns.issue_group(blockable=asked)
            run.changed.notify_all()
        run.asking.discard(key)
        decision = run.recorded.decision
        if decision.stop:
            run.open.pop(key, None)
            return self._refused(run, key, digest, _stop(agent, decision))
        if call.turn.blocked and call.turn.decision is not None:
            run.open.pop(key, None)
            return self._refused(run, key, digest, HookAnswer("refuse", _text(call.turn.decision)))
        return ALLOW

    def _refused(
        self, run: _SessionRun, key: str | None, digest: str, answer: HookAnswer
    ) -> HookAnswer:
        """A call is not run; the answer to it."""
        run.recorded.refused()
        if key is not None:
            run.refused = _Refused(key, digest, self._clock(), answer)
        return answer

    def _given(self, run: _SessionRun, event: HookEvent, digest: str) -> HookAnswer | None:
        """The answer to a call that is reported twice; ``None``, it is not."""
        known = run.open.get(event.call_id or "")
        same = known is not None and known.name == event.tool
        if known is not None and same and same_value(known.arguments, event.arguments):
            return ALLOW
        last = run.refused
        if last is None or (last.key, last.digest) != (event.call_id, digest):
            return None
        return last.answer if self._clock() - last.time <= self._limits.round_seconds else None

    def _report_group(self, run: _SessionRun) -> None:
        """The calls of a step are over, also those without a result."""
        run.group = []
        run.turns.next_turn()
        if run.timed:
            run.make_spans()
        run.changed.notify_all()

    def _result(self, agent: KnownAgent, event: HookEvent, run: _SessionRun) -> HookAnswer:
        self._runs.seen(run)
        with run.changed:
            key = run.named(event) if event.call_id is None else event.call_id
            call = None if key is None else run.open.pop(key, None)
            if call is None:
                return ALLOW
            if run.tokens is not None:
                run.spend(event, call, run.tokens)
            timed = run.timed.get(call)
            if timed is not None:
                run.timed[call] = timed._replace(ended=time.time_ns())
            run.turns.end(call, event.result)
            if run.group and all(one.result is not None for one in run.group):
                self._report_group(run)
            elif run.timed:
                run.make_spans()
            recorded = run.recorded
            decision = recorded.decision
            if decision.action == "stop":
                answer = _stop(agent, decision)
                return answer if _stops(agent) else answer._replace(action="nudge")
            nudge = run.nudge = None if recorded.nudge is None else recorded.take_nudge()
            return ALLOW if nudge is None else HookAnswer("nudge", f"tidegauge: {_text(nudge)}")


def _read(agent_name: str, payload: bytes) -> tuple[KnownAgent, Payload, HookEvent] | None:
    """The agent, its payload and the event in it; ``None``, there is none."""
    agent = AGENTS.get(agent_name)
    if agent is None or agent.hook is None:
        return None
    try:
        content = bounded_json(payload)
    except ValueError:
        return None
    event = agent.hook.read(content) if isinstance(content, dict) else None
    if event is None:
        return None
    folder, file = content.get("cwd"), content.get("transcript_path")
    event = event._replace(
        agent=event.agent or agent.name,
        folder=folder if isinstance(folder, str) else None,
        transcript=file if isinstance(file, str) and file else event.transcript,
    )
    return agent, content, event


def _root(event: HookEvent) -> tuple[str, ...]:
    session = (event.agent or "", event.session)
    return session if event.inner is None else (*session, event.inner)


def _text(decision: Decision) -> str:
    return decision.advice or decision.message or ""


def _stop(agent: KnownAgent, decision: Decision) -> HookAnswer:
    text = decision.message or ""
    if _stops(agent):
        return HookAnswer("stop", f"tidegauge stopped this run: {text}.")
    return HookAnswer("refuse", f"tidegauge stopped this run: {text}.\n{_STOPPED}")


def _stops(agent: KnownAgent) -> bool:
    """Whether the agent's hooks can end a run."""
    return agent.hook is not None and agent.hook.stops
