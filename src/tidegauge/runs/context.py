"""A run as a context manager: for agents that report their own steps."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, cast

from tidegauge.events import (
    ABSENT,
    GO_ON,
    Answer,
    Call,
    Decision,
    Identity,
    ModelUsage,
    Outcome,
    Reach,
    RunStarted,
    Step,
    Task,
)
from tidegauge.runs.open_run import Failure, OpenRun, find_current_run
from tidegauge.runs.recorder import new_run_id
from tidegauge.runs.request_metadata import request_labels
from tidegauge.safety.guard import guarded, internal_errors
from tidegauge.values import type_name
from tidegauge.values.safe_reading import count, given_items, is_a, named, number


class Run:
    """One run, from ``with tidegauge.run(...) as run:`` to its end.

    Report every step twice: :meth:`act` before the action is run, :meth:`observe` when its
    result is there. Both raise :class:`~tidegauge.RunStopped` when the policy stops the run and
    return the decision otherwise; nothing else of ours is ever raised. Where the policy blocks
    (``decision.block``), don't run the action: answer the model with ``decision.advice``.

    >>> import tidegauge
    >>> with tidegauge.run(agent="counter", task="count to two") as run:
    ...     for number in (1, 2):
    ...         _ = run.act("say", {"number": number})
    ...         _ = run.observe(f"said {number}")
    ...     run.finish(success=True)
    """

    __slots__ = ("__weakref__", "_open")

    def __init__(self, opened: OpenRun) -> None:
        self._open = opened

    @property
    def id(self) -> str:
        """The run's id."""
        return self._open.id

    @property
    def trace_id(self) -> str | None:
        """Trace of the run, when spans are recorded."""
        recorded = self._open.recorded
        return recorded.event.trace_id if recorded else None

    @property
    def decision(self) -> Decision:
        """The last decision other than ``go_on``; a stop is final. You can poll it anywhere."""
        return self._open.decision

    def nudge(self) -> str | None:
        """The advice for the model before it chooses again, or ``None``.

        Call it before each call of the model and put the text where the model reads it. A nudge
        is returned once; if the model still repeats itself, another one follows.
        """
        recorded = self._open.recorded
        nudge = recorded.take_nudge() if recorded else None
        return nudge.advice if nudge else None

    @guarded("run.spend", default=GO_ON)
    def spend(
        self,
        tokens: int | None = None,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        model: str | None = None,
        usd: float | None = None,
    ) -> Decision:
        """Report what a call of the model has used, as soon as it has answered.

        Budgets count it, also if the answer chooses no action. The tokens are those of the next
        step, too: do not give them to :meth:`act` again.

        Args:
            tokens: of both directions together, where they are not known apart.
            input_tokens: that it read, those from a cache included.
            output_tokens: that it wrote, those of its reasoning included.
            cache_read_tokens: of those that it read, from the provider's cache.
            cache_write_tokens: of those that it read, written to the provider's cache.
            reasoning_tokens: of those that it wrote, of its reasoning.
            model: name of the model; by default, the one that the run was opened with.
            usd: what the call cost, where the provider says so.

        Raises:
            RunStopped: a budget stops the run.
        """
        usage = ModelUsage(
            count(tokens),
            count(input_tokens),
            count(output_tokens),
            count(cache_read_tokens),
            count(cache_write_tokens),
            count(reasoning_tokens),
            named(model),
            usd=number(usd),
        )
        return self._given(self._open.spend(usage))

    @guarded("run.act", default=GO_ON)
    def act(
        self,
        action: str,
        arguments: object = None,
        *,
        state: object = ABSENT,
        tokens: float | None = None,
        entropy: float | None = None,
        uses: Iterable[Identity] = (),
        mentions: Iterable[Identity] = (),
        call_id: str | None = None,
    ) -> Decision:
        """Report one issued call, before it is run.

        Args:
            action: the tool's name.
            arguments: its arguments, any JSON value.
            state: what the agent saw before it chose; by default, the previous result.
            tokens: tokens spent on choosing.
            entropy: entropy of the choice, nats per token.
            uses: entities that the action uses.
            mentions: entities that occur in the state.
            call_id: the model's id of the call.

        Raises:
            RunStopped: the policy stops the run; do not run the action.
        """
        calls = (Call(action, arguments),)
        step = Step(
            self.id,
            calls,
            state,
            tokens,
            entropy,
            given_items(uses) or (),
            given_items(mentions) or (),
            blockable=True,
        )
        return self._given(self._open.issue(step, (call_id,))[0])

    @guarded("run.answer", default=GO_ON)
    def answer(
        self, text: object = ABSENT, *, shown: object = ABSENT, messages: int | None = None
    ) -> Decision:
        """Report an answer of the model that chose no call, before the model is asked again.

        It is a turn, and no step: an agent that only talks loops, too. Do not report the answer
        that ends the run.

        Args:
            text: what it said; white space means nothing.
            shown: the last message that the model was shown.
            messages: how many messages it was shown. Without these two, equal answers count, and no
                loop is seen; nor where it is shown no more messages than before.

        Raises:
            RunStopped: the policy stops the run.
        """
        return self._given(self._open.answer(Answer(self.id, text, shown, messages)))

    @guarded("run.act", default=GO_ON)
    def act_round(
        self,
        calls: Iterable[tuple[str, object]],
        *,
        state: object = ABSENT,
        tokens: float | None = None,
        entropy: float | None = None,
        uses: Iterable[Identity] = (),
        mentions: Iterable[Identity] = (),
        call_ids: Iterable[str | None] = (),
    ) -> Decision:
        """Report several calls chosen in one turn: one action, in any order.

        Args:
            calls: (tool's name, arguments) of each call; the rest is as for :meth:`act`.

        Raises:
            RunStopped: the policy stops the run; do not run any of the calls.
        """
        issued = tuple([Call(*_pair(call, "", None)) for call in given_items(calls) or ()])
        step = Step(
            self.id,
            issued,
            state,
            tokens,
            entropy,
            given_items(uses) or (),
            given_items(mentions) or (),
            blockable=True,
        )
        ids = given_items(call_ids) or ()
        return self._given(self._open.issue(step, (*ids, *[None] * len(issued)))[0])

    def observe(
        self,
        outcome: object = ABSENT,
        *,
        error: Failure = False,
        step: int | None = None,
        place: Identity | None = None,
        exits: Iterable[Identity] | None = None,
        tasks: Iterable[Task] = (),
        achieved: Iterable[Identity] = (),
        progress: float | None = None,
        tokens: float | None = None,
        seconds: float | None = None,
    ) -> Decision:
        """Report what a call returned.

        Args:
            outcome: the result, or the text of the failure that the agent sees.
            error: whether it failed (``None``, not known), or the exception itself.
            step: index of the step, if several wait; by default, the last one.
            place: where the agent is now.
            exits: places that can be reached from there.
            tasks: tasks found there.
            achieved: tasks that the step achieved.
            progress: how much of the task is done, 0 to 1.
            tokens: tokens spent on the step beyond those of the choice.
            seconds: how long it took; by default, the time since :meth:`act`.

        Raises:
            RunStopped: the policy stops the run.
        """
        return self.observe_round(
            [(outcome, error)],
            step=step,
            place=place,
            exits=exits,
            tasks=tasks,
            achieved=achieved,
            progress=progress,
            tokens=tokens,
            seconds=seconds,
        )

    @guarded("run.observe", default=GO_ON)
    def observe_round(
        self,
        results: Iterable[tuple[object, Failure]],
        *,
        step: int | None = None,
        place: Identity | None = None,
        exits: Iterable[Identity] | None = None,
        tasks: Iterable[Task] = (),
        achieved: Iterable[Identity] = (),
        progress: float | None = None,
        tokens: float | None = None,
        seconds: float | None = None,
    ) -> Decision:
        """Report what the calls of a round returned, in the order of :meth:`act_round`.

        Args:
            results: (outcome, error) of each call; the rest is as for :meth:`observe`.

        Raises:
            RunStopped: the policy stops the run.
        """
        outcome = Outcome(
            self.id,
            (),
            _index(step),
            place,
            given_items(exits),
            given_items(tasks) or (),
            given_items(achieved) or (),
            progress,
            tokens,
            seconds,
        )
        returned = [_pair(result, ABSENT, None) for result in given_items(results) or ()]
        return self._given(self._open.observe(returned, outcome))

    def _given(self, decision: Decision) -> Decision:
        """A decision that the caller gets: a nudge is delivered by that."""
        recorded = self._open.recorded
        if decision.nudge and recorded is not None:
            recorded.nudged(decision)
        return decision

    @guarded("run.finish", default=None)
    def finish(self, *, success: bool | None = None, reason: str | None = None) -> None:
        """Set how the run ended; it is reported at the end of the ``with`` block."""
        self._open.finish(success, reason)

    def __enter__(self) -> Self:
        try:
            self._open.watch(self)
            self._open.start()
            self._open.enter()
        except BaseException as error:  # of a signal handler: there will be no __exit__
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._open.leave()
            self._open.end(error)
        except BaseException:  # of a signal handler: once more
            self._open.leave()
            self._open.end(error)
            raise

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)


def run(
    *,
    agent: str = "",
    task: str | None = None,
    task_group: str = "",
    t_max: int | None = None,
    model: str | None = None,
    memory: str | None = None,
    operations: int | None = None,
    height: int | None = None,
    place: Identity | None = None,
    exits: Iterable[Identity] | None = None,
    tasks: Iterable[Task] = (),
    goal: Identity | None = None,
    reach: Reach = "adjacent",
    conversation: str | None = None,
    user: str | None = None,
    session: str | None = None,
    tags: Iterable[str] = (),
    run_id: str | None = None,
) -> Run:
    """Open a run: one attempt of one agent at one task. Use it in a ``with`` statement.

    Args:
        agent: name of the agent; a label of its metrics.
        task: the task, as text or id: what the agent sees first.
        task_group: family of tasks whose runs are compared; a label of its metrics.
        t_max: turns within which a solved task counts towards AUV.
        model: name of the model that decides.
        memory: arm of a memory experiment, such as ``"on"`` and ``"off"``.
        operations: how many operations the task needs.
        height: height of the task's dependency tree.
        place: where the agent is at the start.
        exits: places that can be reached from there.
        tasks: tasks found there.
        goal: id of the task that is the goal.
        reach: whether it moves to neighbouring places only, or to any place it knows.
        conversation: id of the conversation or thread that the run belongs to.
        user: id of the user whose request it serves; for its span, as the next two.
        session: id of the user's session.
        tags: any words by which you find it again.
        run_id: the run's id; left out, a new one.
    """
    outer = find_current_run()
    event = RunStarted(
        run=named(run_id) or new_run_id(),
        agent=agent,
        task=task,
        task_group=task_group,
        t_max=t_max,
        model=model,
        memory=memory,
        operations=operations,
        height=height,
        place=place,
        exits=given_items(exits),
        tasks=given_items(tasks) or (),
        goal=goal,
        reach=reach,
        parent=outer.run.id if outer else None,
        conversation=conversation,
    )
    request = request_labels({"user_id": user, "session_id": session}, given_items(tags))
    return Run(OpenRun(event, request))


def _pair(given: object, *missing: Any) -> tuple[Any, ...]:
    """What was given for one call: a tuple or list of two, else ``missing``."""
    if type(given) is tuple and len(given) == 2:
        return given
    for kind in (tuple, list):
        if is_a(given, kind) and kind.__len__(given) == 2:  # type: ignore[arg-type]
            return tuple(kind.__iter__(given))  # type: ignore[arg-type]
    internal_errors.record("value", TypeError(f"{type_name(type(given))} is not a pair"))
    return missing


def _index(step: object) -> int | None:
    """The index of a step as a plain number."""
    if step is None or type(step) is int:
        return step
    return int.__int__(cast("int", step)) if is_a(step, int) else None


def get_current_run() -> Run:
    """The run that the caller is in: inside a decorated agent, or a ``with tidegauge.run(...)``.

    In the nodes, chains and tools of LangChain and LangGraph it is the run of the callback handler,
    to which steps can be reported as to any other; the handler ends it.

    Outside of every run it is one that takes no steps and never intervenes, so that its methods can
    be called everywhere.

    >>> import tidegauge
    >>> with tidegauge.run(run_id="r1"):
    ...     tidegauge.get_current_run().id
    'r1'
    >>> tidegauge.get_current_run().act("look").action
    'go_on'
    """
    current = find_current_run()
    return Run(current.run if current else OpenRun(RunStarted(run="")))
