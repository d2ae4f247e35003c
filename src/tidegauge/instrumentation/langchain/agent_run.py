"""One run of an agent, as the callbacks of its invocation share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.trace import Span

from tidegauge.chanting import Chanting
from tidegauge.errors import RunStopped
from tidegauge.events import ABSENT, CallResult, RunOutcome, made
from tidegauge.instrumentation.langchain.body_context import BodyContext
from tidegauge.instrumentation.langchain.control_flow import STOP
from tidegauge.instrumentation.langchain.parsing import (
    AGENT_NAME,
    ModelAnswer,
    NodeAnswer,
    NodeKey,
    agent_identity,
    node_answer,
    replaces,
    tool_answers,
)
from tidegauge.runs.call_groups import CallGroup
from tidegauge.runs.open_run import (
    CurrentRun,
    SharedRun,
    current_run,
    find_current_run,
    next_order,
)
from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.run_map import RunScope
from tidegauge.runs.task_attempts import Attempts, FirstTurns
from tidegauge.runs.turn_calls import TurnCall
from tidegauge.runs.turns import TurnTracker
from tidegauge.safety.guard import guarded
from tidegauge.tracer import CallFailure, ModelResponse
from tidegauge.values.safe_reading import label, truth

Success: TypeAlias = Callable[[Any], bool | None]

WaitingKey: TypeAlias = tuple[str, str, str, str | None]
"""Thread, agent, place in the graphs around it, and its task there."""

_MAX_MODEL_NODES: Final = 100
_MAX_USED: Final = 1_000
_NO_NUDGE: Final = (
    "a nudge did not reach the model; add TidegaugeMiddleware to create_agent(middleware=[...]), "
    "or show the model what get_current_run().nudge() returns, in the node that asks it"
)
_NO_END: Final = (
    "a stopped run goes on, because the handler has on_stop='end' and its graph does not end; "
    "add TidegaugeMiddleware, stop_hook or a conditional edge"
)
_NO_BLOCK: Final = (
    "a rule with the action block cannot block calls here; "
    "add TidegaugeMiddleware to create_agent(middleware=[...])"
)
_PARSERS_OF_CALLS: Final = frozenset(
    {
        *("JsonOutputToolsParser", "JsonOutputKeyToolsParser", "PydanticToolsParser"),
        *("JsonOutputFunctionsParser", "JsonKeyOutputFunctionsParser"),
        *("PydanticOutputFunctionsParser", "PydanticAttrOutputFunctionsParser"),
    }
)
"""LangChain's parsers that take a model's calls as its answer: no tool runs."""

SEQUENCE: Final = "RunnableSequence"
"""LangChain's name of a sequence that has no other."""

ANSWERING: Final = "model"
"""The node of ``create_agent`` that asks the model. It answers structured output by itself."""
AGENT: Final = "tidegauge_agent"
"""Name in the metadata of chains: the agent that they are in, by the application."""


class ModelCall(NamedTuple):
    """An open model call.

    Attributes:
        span: its span.
        chooses: whether its tool calls are the agent's action.
        node: the execution of a graph's node that it is made in; ``None`` outside of graphs.
        context: the context in which its span is current; ``None``, it has no span.
        answering: whether it may give the agent's structured output as a tool call.
        piped: whether it is a part of a sequence: what comes next may parse its calls.
        messages: what it was shown, or its prompt.
        chanting: reads its answer while it streams; ``None``, it has not streamed any text.
        streams: what gives that text, ``tokens`` or ``events``: some models give both.
    """

    span: Span
    chooses: bool
    node: object = None
    answering: bool = False
    piped: bool = False
    context: BodyContext | None = None
    messages: object = None
    chanting: Chanting | None = None
    streams: str = ""


class Choice(NamedTuple):
    """Calls that are not issued yet, because they may be structured output.

    Attributes:
        answer: the model's answer.
        node: the execution of a graph's node in which it chose.
        attempts: those of the task in which it chose.
        chooser: gives the run whose step they are; ``None``, the one that holds this.
        piped: whether the next part of a sequence may parse them.
        waits: whether another node may replace them: they wait for the tools, not for its end.
    """

    answer: ModelAnswer
    node: object
    attempts: Attempts | FirstTurns | None
    chooser: Callable[[], AgentRun] | None
    piped: bool = False
    waits: bool = False


class AgentRun:
    """One run.

    Attributes:
        root: callback id of its root chain, as an integer like the other ones here.
        key: where it waits when its graph is interrupted; ``None``, it has no thread to wait in.
        recorded: takes its steps and spans.
        span: its span, which is current in its chains; ``None``, spans are off.
        traced: whether spans are made for its calls: they are recorded, or their time is.
        shows_contents: whether contents are put on its spans.
        turns: tracks its turns and their calls.
        metadata: what came with its root chain.
        agent_label: name of its agent by the application, as its metadata have it.
        agent_name: its name by ``create_agent``, as its metadata have it.
        asking: names of the nodes that ask its model.
        last_chooser: callback id of the chain that chose last, if it may replace what was chosen
            before; else 0.
        identity: distinguishes its agent from one that is invoked inside it.
        models: its open model calls, by callback id; a branch has those of the run around it, too.
        tools: its open tool calls, by callback id.
        choices: calls that may be its structured output, by the callback id of the node that asked
            the model: its end says what they are.
        used: names of the tools that it has used, as far as they are remembered.
        interrupted: its graph is paused for a person.
        around: where it is invoked, inside another run.
        call: the step that it is of that run; ``None`` inside a tool, whose call that is.
        branch: whether it is a branch of the run around it.
        checkpoint: id of the checkpoint at which its graph is paused; ``None``, not reported.
        checkpointer: refers weakly to what stores its checkpoints; ``None``, not known.
        continues: it continues a run that is not known here, and its model was not asked yet: the
            calls that are run were chosen in that one.
        resumed: it waited for a person, and continues.
        idle_seconds: it waits for a person for at most so long.
        given: how many messages it was given.
        waiting: runs inside it that were interrupted, and are resumed or ended with it.
        interrupted_tasks: what the tasks did that were interrupted, and begin again.
        fan_outs: what ran in parallel when it was interrupted, by task and name of the chain around
            it: the turn, its superstep and the first task of that.
        blockable: the middleware answers blocked calls (see ``TurnTracker.blocked``) and does not
            run them.
        graceful: the graph ends when the policy stops the run, by middleware or by itself; nothing
            is raised then.
        ends_itself: it is graceful also where it has no middleware.
        watched_only: after a fault of ours, nothing is blocked or stopped any more.
        held: whether the map holds it.
        last_seen: when its model was last called, by the clock of the map that holds it.
        open_ids: callback ids that the map holds for it, oldest first.
        node_steps: the nodes of its graph are its steps.
        node_spans: the nodes of its graph have spans.
        shared: the run as code inside it sees it; ``None``, no code has asked for it.
    """

    __slots__ = (
        "_asked_again",
        "_last_choice",
        "_order",
        "_rejected",
        "_replaceable",
        "_rewritten",
        "_stopped",
        "_success",
        "agent_label",
        "agent_name",
        "around",
        "asking",
        "blockable",
        "branch",
        "call",
        "checkpoint",
        "checkpointer",
        "choices",
        "continues",
        "ends_itself",
        "fan_outs",
        "given",
        "graceful",
        "held",
        "identity",
        "idle_seconds",
        "interrupted",
        "interrupted_tasks",
        "key",
        "last_chooser",
        "last_seen",
        "metadata",
        "models",
        "node_spans",
        "node_steps",
        "open_ids",
        "recorded",
        "resumed",
        "root",
        "shared",
        "shows_contents",
        "span",
        "tools",
        "traced",
        "turns",
        "used",
        "waiting",
        "watched_only",
    )

    def __init__(
        self,
        root: UUID,
        recorded: RecordedRun,
        metadata: Mapping[str, Any],
        *,
        key: WaitingKey | None = None,
        idle_seconds: float = 3_600.0,
        success: Success | None = None,
        ends_itself: bool = False,
    ) -> None:
        self.recorded = recorded
        self.turns = TurnTracker(recorded)
        self.key = key
        self.idle_seconds = idle_seconds
        self.checkpointer: Callable[[], object] | None = None
        self.continues = self.resumed = False
        self._enter(root, metadata)
        self.models: dict[int, ModelCall] = {}
        self.tools: dict[int, TurnCall] = {}
        self.around: Scope | None = None
        self.call: TurnCall | None = None
        self.given = 0
        self.branch = False
        self.waiting: list[AgentRun] = []
        self.interrupted_tasks: dict[str, Attempts] = {}
        self.fan_outs: dict[Hashable, tuple[CallGroup, int | None, str | None]] = {}
        self.blockable = False
        self.ends_itself = self.graceful = ends_itself
        self.watched_only = False
        self.held = False
        self.last_seen = 0.0
        self.open_ids: OrderedDict[int, None] = OrderedDict()
        self.choices: dict[int, Choice] = {}
        self._rejected: frozenset[str] = frozenset()  # calls that were no valid structured output
        self.last_chooser = 0
        # With the chain that made it, and whether that was in no branch.
        self._last_choice: tuple[int, Choice, bool] | None = None
        self._replaceable: tuple[int, Choice, bool] | None = None  # by the chain that chose last
        self._rewritten: set[str] = set()  # nodes whose calls another node has replaced
        self.node_steps = self.node_spans = False
        self._asked_again = 0  # model calls since the run was stopped
        self.asking: set[str] = set()
        self.shared: SharedRun | None = None
        self._stopped = False  # whether a stop was given to what ends the graph
        self.used: set[str] = set()
        self._success = success

    def _enter(self, root: UUID, metadata: Mapping[str, Any]) -> None:
        self.root = root.int
        self.metadata = metadata
        self.identity = agent_identity(metadata)
        self.agent_label, self.agent_name = metadata.get(AGENT), metadata.get(AGENT_NAME)
        spans = self.recorded.spans
        self.span = spans.span if spans.owns_span else None
        self.traced, self.shows_contents = spans.calls_wanted, spans.shows_contents
        self.interrupted = False
        self.checkpoint: str | None = None
        self._order = next_order()

    @property
    def unique(self) -> bool:
        """Whether no other graph has its key: inside a graph, it names a task of a checkpoint."""
        return self.key is not None and self.key[2] != ""

    def suspend(self) -> None:
        """Its graph is paused for a person: its span is closed, its turns wait for the rest."""
        if not self.branch:
            self._leave_models()
            self.models.clear()
        self.tools.clear()
        self.turns.pause(stored=self.recorded.waiting.saved is not None)
        self.recorded.suspend("interrupt", self.checkpoint)
        if self.around is not None:
            self.around.run.waiting.append(self)

    def resume(
        self,
        root: UUID,
        metadata: Mapping[str, Any],
        context: Context | None,
        success: Success | None,
        *,
        ends_itself: bool,
    ) -> None:
        """Its graph continues, in another invocation.

        Args:
            ends_itself: it is graceful also where it has no middleware.
        """
        self._success = success
        self.resumed = True
        self.ends_itself = ends_itself
        self.graceful = self.graceful or ends_itself
        if self.around is not None and self in self.around.run.waiting:
            self.around.run.waiting.remove(self)
        self.turns.resume()
        self.recorded.resume(context)
        self._enter(root, metadata)

    def try_again(self, root: UUID, metadata: Mapping[str, Any]) -> None:
        """It failed, and the next attempt of its task continues it."""
        if not self.branch:
            self._leave_models()
            self.models.clear()
        self.tools.clear()
        self._enter(root, metadata)
        if self.turns.done is not None:
            self.turns.done = ""  # of the attempt that succeeds

    def branch_off(self, around: Scope) -> None:
        """It is a branch: it is guided like the run around it."""
        outer = around.run
        self.branch, self.models = True, outer.models
        self.turns.done = self.turns.done or ""
        self.blockable, self.graceful = outer.blockable, outer.graceful
        self.watched_only = outer.watched_only

    def run_of(self, name: str, arguments: object, call_id: str | None) -> AgentRun:
        """The run that chose a call which is about to run in it: a run around a branch, maybe."""
        run = self
        while run.branch and run.around is not None:
            if run.turns.awaits(name, arguments, call_id):
                return run
            run = run.around.run
        return run if run.turns.awaits(name, arguments, call_id) else self

    def is_part_of(self, run: AgentRun) -> bool:
        """Whether it is this run, or a branch of it."""
        part = self
        while part is not run and part.branch and part.around is not None:
            part = part.around.run
        return part is run

    def is_calling(self) -> bool:
        """Whether a tool is open in it, or in the runs that it is a branch of."""
        run = self
        while not run.tools and run.branch and run.around is not None:
            run = run.around.run
        return bool(run.tools)

    def is_same_agent(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a chain with this metadata is part of this run's agent."""
        return agent_identity(metadata) == self.identity

    def next_turn(self, messages: object, *, ends: bool = False) -> None:
        """The model is asked again, or the run ends: the turns before are over.

        A call that was answered without being run (its tool is unknown, a person refused it) gets
        its span here.

        Args:
            messages: what the model is shown; only the answers at their end are looked at.
        """
        answers = tool_answers(messages)
        if rejected := self._rejected:
            self._rejected = frozenset()
            answers = (
                (call_id, result._replace(error=True) if call_id in rejected else result)
                for call_id, result in answers
            )
        for call in self.turns.next_turn(answers, ends=ends):
            if self.traced and call.result is not None:
                self.recorded.spans.answered_tool(
                    call.name,
                    call_id=call.id,
                    signals=call.turn.signals,
                    arguments=call.arguments,
                    result=call.result,
                )

    def take_turn(self, messages: object, metadata: Mapping[str, Any]) -> None:
        """The model is about to choose.

        Args:
            messages: what it is shown; only the answers at their end are looked at.
        """
        node = metadata.get("langgraph_node")
        if type(node) is not str:
            node = label(node)
        if node is not None and len(self.asking) < _MAX_MODEL_NODES:
            self.asking.add(node)
        if self.recorded.nudge is not None and not self.watched_only:
            self.recorded.warn(_NO_NUDGE)
        self.continues = False
        turns = self.turns
        if turns._open.turns or turns._loose is not None or turns._said or self._rejected:
            self.next_turn(messages)
        if self.recorded.counts_usage:
            self.recorded.spend()
        if self.recorded.decision.action == "stop":
            if self.ends_itself:
                self._asked_again += 1
                if self._asked_again > 1:
                    self.recorded.warn(_NO_END)
            self.enforce()

    def leave_model(self, key: int) -> ModelCall | None:
        """A model call is over. It began in the run around it, if it became a run meanwhile."""
        run: AgentRun | None = self
        while run is not None:
            call = run.models.pop(key, None)
            if call is not None:
                return call
            run = None if run.around is None else run.around.run
        return None

    def read(self, call: ModelCall, key: int, text: str, streams: str) -> None:
        """The model goes on with its answer: if it chants, a stop is raised here, in its stream.

        Where the middleware ends the agent, it catches the stop; where nothing can, the answer goes
        on to its end.

        Args:
            key: callback id of the call.
            streams: what gives the text, ``tokens`` or ``events``.
        """
        chanting = call.chanting
        if chanting is None:
            chanting = Chanting()
            self.models[key] = call._replace(chanting=chanting, streams=streams)
            self.recorded.chants(0.0)
        elif call.streams != streams:
            return
        chanting.add(text)
        if chanting.highest:
            self.recorded.chants(chanting.highest)
            if self.recorded.decision.action == "stop" and self.refuses:
                self._stopped = True
                self.recorded.enforce(STOP)

    def choose(
        self,
        answer: ModelAnswer,
        call: ModelCall,
        chain: int,
        attempts: Attempts | FirstTurns | None = None,
        chooser: Callable[[], AgentRun] | None = None,
        *,
        alone: bool = True,
    ) -> None:
        """The model chose calls: a step. None of them runs yet.

        In ``create_agent`` the call may be the agent's structured output, which is no step. Whether
        it is, is known when the node ends; until then a turn with a tool that the run has not used
        is not issued. In a sequence, the calls are structured output if a parser comes next.

        Args:
            chooser: opens the branches that it is in, and gives the run whose step it is; ``None``,
                it is in none, and the step is of this run.
            alone: whether it is in none now.
        """
        choice = made(Choice, (answer, call.node, attempts, chooser, call.piped, False))
        before, self._last_choice = self._last_choice, (chain, choice, alone)
        turns = self.turns
        # What was chosen before has run, as nearly always: nothing can replace it.
        if before is not None and not (
            turns._open.turns or turns._blocked.turns or self.choices or not alone or not before[2]
        ):
            before = None
        self._replaceable, self.last_chooser = before, 0 if before is None else chain
        if self._rewritten and _node_name(call.node) in self._rewritten:
            for waiting in [key for key, one in self.choices.items() if one.waits]:
                self.settle(waiting)  # nothing has replaced them
            # Spent, whatever becomes of the calls: the next step has the tokens.
            self.turns.add_tokens(answer.tokens)
            spent = answer._replace(response=ModelResponse(), tokens=None)
            self.choices[chain] = choice._replace(answer=spent, waits=True)
            return
        if call.piped:
            self.settle(chain)  # the model is asked again in the same sequence
            self.choices[chain] = choice
            return
        if call.answering:
            for chosen in answer.calls:
                if chosen.name not in self.used:
                    self.settle(chain)  # the model is asked again in the same node
                    self.choices[chain] = choice
                    return
        run = self._choose(choice, alone=alone)
        if run.recorded.decision.action == "stop":
            run.enforce(len(answer.calls))

    def leave_node(self, chain: int, output: object) -> None:
        """A chain ends: it may be a node that says what calls are, or replaces those of another.

        A node that checks what another has chosen may put its own message into that one's place:
        ``add_messages`` takes that of the same id (``graph/message.py`` of langgraph 1.2.24). The
        calls that were there never run, and are no step. That is known when it happens, after the
        calls were chosen: from then on, those of the same node wait.
        """
        if self.last_chooser == chain and self._replaceable is not None:
            before, choice, _ = self._replaceable
            answer = choice.answer
            ids = frozenset([call.id for call in answer.calls])
            if answer.message is not None and replaces(output, answer.message, ids):
                if len(self._rewritten) < _MAX_MODEL_NODES and (name := _node_name(choice.node)):
                    self._rewritten.add(name)
                waiting = self.choices.get(before)
                if waiting is not None and waiting.waits:
                    del self.choices[before]
        own = self.choices.get(chain)
        if own is not None and not own.waits:
            steps = self.settle(chain, node_answer(output))
            if steps:  # an accepted structured output may be the last answer: no stop must cost it
                self.enforce(steps)

    def settle_begun(self, name: str, call_id: str | None) -> None:
        """A tool is about to run: calls that wait and are run are a step."""
        for chain, choice in list(self.choices.items()):
            if choice.waits and any(
                call.id == call_id if call_id is not None else call.name == name
                for call in choice.answer.calls
            ):
                self.enforce(self.settle(chain))

    def settle(self, chain: int, by: NodeAnswer = NodeAnswer()) -> int:  # noqa: B008 -- immutable
        """It is known what the calls are that were chosen in a chain: structured output or a step.

        Returns:
            How many calls are a step.
        """
        choice = self.choices.pop(chain, None)
        if choice is None:
            return 0
        answer = choice.answer
        if by.accepted:
            calls = tuple([call for call in answer.calls if call.id not in by.answered])
            answer = answer._replace(calls=calls)
        else:
            self._rejected |= by.answered  # until the model sees the answers
        if answer.calls:
            self._choose(choice._replace(answer=answer))
        else:
            self.turns.add_tokens(answer.tokens)
        return len(answer.calls)

    def settle_piped(self, chain: int, name: object) -> None:
        """What comes next in a sequence begins: a parser, or anything else."""
        choice = self.choices.get(chain)
        if choice is None or not choice.piped:
            return
        if label(name) in _PARSERS_OF_CALLS:
            self.choices.pop(chain, None)
            self.turns.add_tokens(choice.answer.tokens)
        else:
            self.enforce(self.settle(chain))

    def settle_answered(self, messages: object) -> None:
        """Calls with an answer are no structured output: code in the node ran them, or refused.

        Args:
            messages: what the model is shown; only the answers at their end are looked at.
        """
        answered = {call_id for call_id, _ in tool_answers(messages)}
        for chain, choice in list(self.choices.items()):
            if any(call.id in answered for call in choice.answer.calls):
                self.settle(chain)

    def use(self, name: str) -> None:
        """A tool is about to run that was not used: calls of its name are no structured output."""
        if len(self.used) < _MAX_USED:
            self.used.add(name)
        for chain, choice in list(self.choices.items()):
            if not choice.waits and any(call.name == name for call in choice.answer.calls):
                self.settle(chain)

    def _choose(self, choice: Choice, *, alone: bool = False) -> AgentRun:
        """Issue calls. Returns the run whose step they are."""
        answer, node, attempts, chooser, *_ = choice
        run = self if alone or chooser is None else chooser()
        if run.recorded.decision.action == "stop" and run.refuses:
            return run  # the calls are no step
        if not run.blockable and run.recorded.must_block:
            run.recorded.without_blocking(_NO_BLOCK)
        run.turns.choose(
            answer.calls,
            tokens=answer.tokens,
            entropy=answer.entropy,
            node=node,
            blockable=run.blockable and not run.watched_only,
            attempts=attempts,
        )
        return run

    def stop_error(self) -> RunStopped | None:
        """The deliberate stop, if the policy stops the run; else ``None``.

        A run that is a step of a stopped run around it ends with that one.
        """
        if self.watched_only:
            return None
        stop = self.recorded.stop_error(STOP)
        self._stopped = self._stopped or stop is not None
        if stop is None and self.call is not None and self.around is not None:
            return self.around.run.stop_error()
        return stop

    @property
    def refuses(self) -> bool:
        """Whether calls that its model chooses are not run when it is stopped."""
        return not self.watched_only and (self.blockable or not self.graceful)

    def enforce(self, calls: int = 0) -> None:
        """Raise the deliberate stop, unless the middleware ends the run gracefully."""
        if self.recorded.decision.action == "stop" and not self.watched_only and not self.graceful:
            self._stopped = True
            self.recorded.enforce(STOP, calls=calls)

    def as_current(
        self, tool: TurnCall | None, attempts: Callable[[], Attempts | None]
    ) -> CurrentRun:
        """The run as the current one of code inside it."""
        shared = self.shared
        if shared is None:
            shared = self.shared = SharedRun(self.recorded, self.turns, self.enforce, attempts)
        return CurrentRun(shared, tool, current_run.get(), self._order)

    def own_call(self) -> TurnCall | None:
        """The call of a decorated tool in the run that the caller is in; ``None``, in none."""
        if self.shared is None:
            return None
        current = find_current_run()
        call = None if current is None or current.run is not self.shared else current.call
        turn = None if call is None else call.turn
        return turn.calls[0] if turn is not None and turn.calls else None

    def begin_node(self, name: str, node: NodeKey, inputs: object) -> TurnCall:
        """A node of its graph begins, which is a step; see ``TurnTracker.gather``.

        Args:
            inputs: of a task its arguments, which are its own. Those of a node are all of the
                state, with what has gathered there: they would make every step a new one.
        """
        arguments = inputs if node.superstep is None else None
        call = self.turns.gather(name, node.place, node.superstep, arguments)
        try:
            self.enforce(1)
        except RunStopped:
            self.turns.withdraw(call)  # it does not run
            raise
        if self.traced:
            call.span = self.recorded.spans.start_tool(name, arguments=arguments)
        return call

    def end_node(self, call: TurnCall, result: CallResult) -> None:
        """A node has ended."""
        if self.traced:
            failure = CallFailure.of(result, "node_error")
            self.recorded.spans.end_tool(call.span, result=result.outcome, error=failure)
        self.turns.end(call, result, raised=bool(result.error))

    def answer(self, result: CallResult, *, raised: bool = False) -> None:
        """Report its result to the run around it, when it is a step of that run."""
        if self.call is not None and self.around is not None:
            done = self.turns.done
            self.around.run.turns.end(self.call, result, raised=raised, arguments=done)

    @guarded("langchain.success", default=None)
    def succeeded(self, output: object) -> bool | None:
        """Whether the task was solved, by its root chain's output; ``None``, not known."""
        if self.shared is not None and self.shared.success is not None:
            return self.shared.success
        return truth(self._success(output)) if self._success and not self.interrupted else None

    def begin(
        self, name: str, arguments: object, call_id: str | None, attempts: Attempts | None
    ) -> TurnCall:
        """A tool is about to run; see ``TurnTracker.begin``."""
        if self.continues and call_id is not None:
            return self.turns.begin_foreign(name, arguments, call_id)
        call = self.turns.begin(name, arguments, call_id, attempts)
        if call.arguments is ABSENT:  # it was chosen in another process
            call.arguments = arguments
        return call

    def end(self, **ending: Any) -> None:
        """Report the rest of its turns, and its end (see ``RecordedRun.end``).

        What waits inside it ends with it.
        """
        if not self.branch:
            self._leave_models()
        shared, self.shared = self.shared, None  # neither holds the other any more
        self._last_choice = self._replaceable = None
        try:
            for chain, choice in tuple(self.choices.items()):
                self.choices[chain] = choice._replace(chooser=None)  # no branch begins any more
                self.settle(chain)
            self.turns.next_turn(ends=True)
            while self.fan_outs:
                self.turns.report_group(self.fan_outs.popitem()[1][0])
        finally:
            if shared is not None:
                shared.release()
                self._stopped = self._stopped or shared.stop_seen
                if "outcome" not in ending:
                    ending.setdefault("reason", shared.reason)
            if self.recorded.decision.stop and not self._stopped:
                ending.setdefault("outcome", _outcome(ending.get("success")))
            self.recorded.end(**ending)
            waiting, self.waiting = self.waiting, []
            for inside in waiting:
                inside.recorded.waiting.discard(inside)
                inside.end(
                    outcome="unknown", reason="not resumed", evicted=ending.get("evicted", False)
                )

    def _leave_models(self) -> None:
        """Model calls whose end LangChain did not report are over, too."""
        for call in list(self.models.values()):
            if call.context is not None:
                call.context.over = True


Scope: TypeAlias = RunScope[AgentRun]


def _node_name(node: object) -> str | None:
    """The name of a node, from the execution of it: ``agent:TASK|node:TASK``."""
    return node.rpartition("|")[2].partition(":")[0] if isinstance(node, str) else None


def _outcome(success: bool | None) -> RunOutcome:
    """How a run ended that its last result would have stopped, and that ended by itself."""
    return "unknown" if success is None else "success" if success else "failure"
