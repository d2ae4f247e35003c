"""The open runs of a callback handler: how they are found, opened, resumed and ended.

LangChain identifies chains, tools and model calls by ``UUID`` objects. The map holds the integers
that they represent, because a ``UUID`` is hashed in Python at every look-up.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from opentelemetry.context import Context, get_current

from tidegauge.events import RunStarted
from tidegauge.instrumentation.langchain import control_flow, parsing, run_starts
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope, Success
from tidegauge.instrumentation.langchain.body_context import enter_chain
from tidegauge.instrumentation.langchain.branches import OpenChain
from tidegauge.instrumentation.langchain.nested_agents import NestedChain
from tidegauge.runs.current import get_recorder
from tidegauge.runs.recorder import Recorder
from tidegauge.runs.run_map import RunMap, RunScope
from tidegauge.runs.task_attempts import Attempts
from tidegauge.runs.waiting_runs import SavedRun
from tidegauge.safety.critical import here
from tidegauge.tracer import RequestLabels
from tidegauge.values.safe_reading import label

_MAX_POSTPONED: Final = 10_000
_NO_ROOT: Final = UUID(int=0)


class Postponed(NamedTuple):
    """A run that is opened when more is known of it.

    Attributes:
        opening: opens it. Takes the id of the checkpoint (``None``, not reported) and the name of
            its agent (``None``, that of its root chain).
        unnamed: whether its first chain may name it.
        checkpoint: the checkpoint that its graph reported meanwhile.
    """

    opening: Callable[[str | None, str | None], None]
    unnamed: bool = False
    checkpoint: str | None = None


class CallbackRuns(RunMap[int, AgentRun]):
    """The open runs of one handler, and the scope of every open chain and tool in them.

    Args:
        max_runs: as of :class:`RunMap`.
        idle_seconds: a run whose model is not called for so long is ended as unknown.
        clock: as of :class:`RunMap`.
        success: decides from an agent's output whether its task was solved, by the agent's name.
        ends_itself: whether nothing is raised when the policy stops a run.

    Attributes:
        success: as given.
    """

    def __init__(
        self,
        *,
        max_runs: int = 10_000,
        idle_seconds: float = 3_600.0,
        clock: Callable[[], float] = time.monotonic,
        success: Mapping[str, Success] = {},
        ends_itself: bool = False,
    ) -> None:
        super().__init__(max_runs=max_runs, idle_seconds=idle_seconds, clock=clock)
        self.success = dict(success)
        self._ends_itself = ends_itself

    def scope_of(self, run_id: UUID | None) -> Scope | None:
        """The scope of an open chain or tool."""
        if run_id is None:
            return None
        if self.postponed:
            self.open_postponed(run_id)
        return self.scopes.get(run_id.int)

    def leave_chain(self, run_id: UUID) -> Scope | None:
        """A chain has ended: its scope. A run that nothing happened in is opened first."""
        if self.postponed:
            self.open_postponed(run_id)
        return self.leave(run_id.int)

    def open_run(
        self, chain: OpenChain, event: RunStarted, around: Scope | None, **given: Any
    ) -> None:
        """Open a run, or resume the one that waits for this invocation.

        What is invoked inside a graph gets its input again; its thread says that it continues. A
        graph that continues reports its checkpoint next, which says which run that is. A graph
        without a name may be an entrypoint, which has the name of its first chain.

        Args:
            **given: of :meth:`_begin_run`.
        """
        metadata = chain.metadata
        inside = _is_inside(metadata)
        context = None if around is None else around.context()
        opening: Callable[..., None] = partial(self._open_now, chain, event, around, **given)
        waits = not inside and run_starts.waiting_key(event, metadata) is not None
        resumes = waits and control_flow.resumes(chain.inputs)
        unnamed = around is None and event.agent == run_starts.UNNAMED
        if resumes or unnamed:
            begun = context or get_current()
            opening = partial(opening, context=begun, resumes=resumes or inside)
            self.postpone(UUID(int=chain.key), Postponed(opening, unnamed))
        else:
            opening(None, context=context, resumes=inside)

    def open_child(
        self,
        chain: OpenChain,
        event: RunStarted,
        around: Scope,
        *,
        branch: OpenChain | None = None,
    ) -> None:
        """Open the run of an agent inside another one's."""
        success, request = self.success.get(event.agent), around.run.recorded.request
        self.open_run(chain, event, around, branch=branch, success=success, request=request)

    def open_agent(self, chain: NestedChain) -> Scope:
        """The agent that a chain inside a tool is in becomes a run: see ``nested_agents``."""
        agent = chain.agent()
        if agent is None or not agent.claim(chain):
            return chain
        around, inputs, metadata = agent.around, agent.inputs, agent.metadata
        event = run_starts.child_run(inputs, metadata, name=agent.agent_name, around=around)
        root = agent.opened(None)
        run = self._begin_run(
            root,
            event,
            around,
            context=around.context(),
            resumes=_is_inside(metadata) or control_flow.resumes(inputs),
            success=self.success.get(event.agent),
            request=around.run.recorded.request,
        )
        self._open(root, run)
        self._move_nested(agent, root)
        return self.find(chain.key) or chain

    def open_branches(self, chain: OpenChain, *, calls: bool = False) -> None:
        """A step begins in a chain: the branches that it is in become runs.

        Args:
            calls: whether the step is a tool that no model chose.
        """
        for branch in chain.branches(calls=calls):
            self.open_branch(branch, chain)

    def open_branch(self, branch: OpenChain, chain: OpenChain) -> None:
        """A branch becomes a run, because of what begins in ``chain``."""
        if branch.parent is None or not branch.claim(chain):
            return
        around = RunScope(branch.parent.run)
        inputs, metadata = branch.inputs, branch.metadata
        event = run_starts.branch_run(inputs, metadata, name=branch.name, around=around)
        run = self._begin_run(
            branch,
            event,
            around,
            context=around.context(),
            resumes=_is_inside(metadata),
            branch=branch,
            request=around.run.recorded.request,
        )
        run.branch_off(around)
        self._move_branch(branch, run)
        self._open(branch, run)

    def resume_branch(self, chain: OpenChain) -> None:
        """A branch that was interrupted begins again."""
        around = RunScope(chain.run)
        event = run_starts.branch_run(chain.inputs, chain.metadata, name=chain.name, around=around)
        key = run_starts.waiting_key(event, chain.metadata)
        if any(run.branch and run.key == key for run in around.run.waiting):
            self.open_branch(chain, chain)

    def chooser(self, chain: OpenChain) -> AgentRun:
        """The run whose step it is that a model chose calls in a chain."""
        self.open_branches(chain)
        if chain.own is None and chain.parent is not None:
            chain.run = chain.parent.run  # also if the chain has just ended
        return chain.chooser()

    def suspend(self, run: AgentRun) -> None:
        """The graph of a run is paused for a person: the run waits."""
        run.suspend()
        self.close(run)
        if not run.recorded.ended:
            run.recorded.waiting.add(run, partial(save_agent_run, run))

    def end_run(self, run: AgentRun, **ending: Any) -> None:
        """A run has ended; see ``AgentRun.end``."""
        self.close(run)
        run.end(**ending)

    def postpone(self, root: UUID, postponed: Postponed) -> None:
        """Open a run later: when its graph reports its checkpoint, or something happens in it."""
        with here.critical, self._lock:
            self.postponed[root.int] = postponed
            if len(self.postponed) > _MAX_POSTPONED:
                self.postponed.popitem(last=False)

    def is_postponed(self, root: UUID) -> bool:
        """Whether a run is opened later."""
        return root.int in self.postponed

    def name_postponed(self, root: UUID, metadata: Mapping[str, Any]) -> None:
        """The first chain of a run begins, which is opened later: it may name the run."""
        postponed = self.postponed.get(root.int)
        if postponed is not None and postponed.unnamed:
            self.open_postponed(root, agent=run_starts.entrypoint_name(metadata))

    def open_postponed(
        self, root: UUID, checkpoint: str | None = None, agent: str | None = None
    ) -> None:
        """Open a run that was postponed, if it was.

        Args:
            checkpoint: the checkpoint from which its graph continues; ``None``, not reported.
            agent: its agent; ``None``, the name of its root chain.
        """
        with here.critical, self._lock:
            postponed = self.postponed.pop(root.int, None)
        if postponed is not None:
            postponed.opening(checkpoint or postponed.checkpoint, agent)

    def resume_postponed(self, root: UUID, checkpoint: str | None) -> None:
        """A graph reports the checkpoint from which it continues."""
        with here.critical, self._lock:
            postponed = self.postponed.get(root.int)
            if postponed is not None and postponed.unnamed:
                self.postponed[root.int] = postponed._replace(checkpoint=checkpoint)
                return
        self.open_postponed(root, checkpoint)

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self.postponed: OrderedDict[int, Postponed] = OrderedDict()

    def _open_now(
        self,
        chain: OpenChain,
        event: RunStarted,
        around: Scope | None,
        checkpoint: str | None,
        agent: str | None = None,
        **given: Any,
    ) -> None:
        if agent is not None:
            event = replace(event, agent=agent)
        run = self._begin_run(chain, event, around, checkpoint=checkpoint, **given)
        self._open(chain, run)
        if run.span is not None:
            enter_chain(run.span)

    def _begin_run(
        self,
        chain: OpenChain,
        event: RunStarted,
        around: Scope | None,
        *,
        context: Context | None,
        resumes: bool,
        checkpoint: str | None = None,
        branch: OpenChain | None = None,
        success: Success | None = None,
        request: RequestLabels | None = None,
        node_steps: bool = False,
        node_spans: bool = False,
    ) -> AgentRun:
        """Begin a run, or resume the one that waits at its place for this checkpoint.

        Args:
            checkpoint: the checkpoint from which it continues; ``None``, not reported. If the user
                chose an earlier one, it is a copy of that.
            node_spans: whether the nodes of its graph have spans; inside another run, as there.
        """
        call = None
        if around is not None and around.tool is None:
            around.run.enforce(1)
            arguments = parsing.last_content(chain.inputs)
            if branch is None:
                attempts = chain.attempts
                call = around.run.turns.begin(event.agent, arguments, None, attempts)
                around.run.enforce(1)
            else:
                call = branch.join_fan_out(event.agent, arguments)
        recorder = get_recorder()
        root, metadata = UUID(int=chain.key), chain.metadata
        key = run_starts.waiting_key(event, metadata)
        resumes = resumes and key is not None
        run: AgentRun | None = None
        if call is not None and chain.attempts is not None:
            run = chain.attempts.continued(call)
        again = run is not None
        if run is not None:
            self.close(run)
            run.try_again(root, metadata)
        elif resumes:
            chosen = None if _is_inside(metadata) else label(metadata.get("checkpoint_id"))
            load = partial(load_agent_run, recorder)
            run = recorder.waiting.take(key, chosen or checkpoint, load)
        link = None
        if run is not None and not again and recorder.waiting.is_idle(run):
            link = run.recorded.link
            run.end(outcome="unknown", reason="not resumed")
            run = None
        if run is None:
            recorded = recorder.start_run(event, context, link=link, request=request)
            run = AgentRun(
                root,
                recorded,
                metadata,
                key=key,
                idle_seconds=self._idle_seconds,
                success=success,
                ends_itself=self._ends_itself,
            )
            run.continues = resumes and not run.unique
        elif not again:
            run.resume(root, metadata, context, success, ends_itself=self._ends_itself)
        if checkpoint is not None:
            run.recorded.continues(checkpoint)
        run.around, run.call, run.node_steps = around, call, node_steps
        run.node_spans = node_spans or (around is not None and around.run.node_spans)
        run.given = parsing.message_count(chain.inputs)
        return run

    def _open(self, chain: OpenChain, run: AgentRun) -> None:
        """The chain is the root of the run."""
        chain.own = chain.run = run
        if run.fan_outs:
            chain.resume_fan_out()
        self.open(chain)

    def _move_branch(self, branch: OpenChain, run: AgentRun) -> None:
        """A branch becomes a run, with all that is open in it."""
        before, branch.run = branch.run, run
        for key in tuple(before.open_ids):
            scope = self.scopes.get(key)
            if isinstance(scope, OpenChain) and scope.is_in(branch):
                before.open_ids.pop(key, None)
                choice = before.choices.pop(key, None)
                if choice is not None:
                    run.choices[key] = choice
                if scope is not branch:
                    scope.run = run
                    run.open_ids[key] = None

    def _move_nested(self, agent: NestedChain, root: OpenChain) -> None:
        """An agent inside a tool becomes a run, with all that is open in it."""
        before, opened = agent.run, {agent.key: root}
        before.open_ids.pop(agent.key, None)
        for key in tuple(before.open_ids):
            chain = self.scopes.get(key)
            if not isinstance(chain, NestedChain) or chain.parent is None:
                continue
            parent = opened.get(chain.parent.key)
            if parent is not None:
                before.open_ids.pop(key, None)
                opened[key] = chain.opened(parent)
                self.enter(key, opened[key])


def _is_inside(metadata: Mapping[str, Any]) -> bool:
    """Whether a chain is invoked inside a graph."""
    return metadata.get("langgraph_checkpoint_ns") is not None


def save_agent_run(run: AgentRun) -> dict[str, Any]:
    """The adapter's part of the state of a run that waits, as plain data (JSON).

    It has no contents: neither arguments nor results of calls. A result that is missing is read
    from the answers that the model is shown next.
    """
    return {
        "run": run.recorded.id,
        "key": run.key,
        "trace_id": run.recorded.event.trace_id,
        "span_id": run.recorded.event.span_id,
        "steps": run.recorded.steps,
        "turns": run.turns.state(),
        "nodes": sorted(run.asking),
        "continues": run.continues,
        "idle_seconds": run.idle_seconds,
        "tasks": {task: done.state() for task, done in run.interrupted_tasks.items()},
        "inside": [save_agent_run(inside) for inside in run.waiting],
    }


def load_agent_run(recorder: Recorder, saved: SavedRun) -> AgentRun:
    """A run from its state. Those inside it wait again.

    Raises:
        KeyError, TypeError, ValueError: the state has another form.
    """
    return _load(recorder, saved, saved.state, None)


def _load(
    recorder: Recorder, saved: SavedRun, state: Mapping[str, Any], around: AgentRun | None
) -> AgentRun:
    event = saved.starts[state["run"]]
    ids = state["trace_id"], state["span_id"]
    recorded = recorder.restore_run(event, steps=state["steps"], trace_id=ids[0], span_id=ids[1])
    thread, agent, place, task = state["key"]
    key = (thread, agent, place, task)
    run = AgentRun(_NO_ROOT, recorded, {}, key=key, idle_seconds=state["idle_seconds"])
    run.turns.load(state["turns"])
    run.asking = set(state["nodes"])
    run.continues = state["continues"]
    for inside in state["inside"]:
        run.waiting.append(_load(recorder, saved, inside, run))
    trackers = {one.recorded.id: one.turns for one in (run, *run.waiting)}
    for task, done in state["tasks"].items():
        run.interrupted_tasks[task] = Attempts.load(done, trackers)
    if around is not None:
        run.around = Scope(around)
        recorder.waiting.add(run)
    return run
