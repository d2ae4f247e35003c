"""Turns without calls: answers of the model that choose nothing, and the loops they are part of.

An agent that only talks has no steps: it thanks another one, says what it will do next, or is
silent, until a limit ends it. Each such answer is a turn here; steps are turns, too.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    Measured,
    RunView,
    Signal,
    Sum,
    times,
    zero,
)
from tidegauge.streaming_metrics.loops import LASTING, MAX_PERIOD, Loops
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import Answered, IssuedStep, ObservedStep


class Answers(Metric[Answered]):
    """Answers without calls: how many in a row, how many equal ones, and the loop of all turns.

    Two answers are equal if their texts are, white space apart. The loop over turns is that of
    :class:`~tidegauge.streaming_metrics.loops.Loops`, over steps and answers in their order: an
    answer repeats another one if it is equal, the model was last shown an equal message, and more
    messages than then: its conversation has grown, and it is where it was. So votes on one prompt
    and one word for many documents repeat nothing; nor does an answer of which one of the three is
    not known.

    Runs have it from their first answer without a call on. O(1) a turn; memory as ``Loops``.

    Attributes:
        answers: answers without calls.
        streak: how many equal ones came in a row, with no step between; 0, the last turn is a step.
        streak_max: the most in the run.
        without_calls: how many came in a row, equal or not.
        without_calls_max: the most in the run.

    >>> answers = Answers()
    >>> for n, text in enumerate([b"thanks", b"welcome"] * 3):
    ...     _ = answers.update(Answered(text, shown=[b"welcome", b"thanks"][n % 2], messages=n))
    >>> answers.value, answers.streak, answers.repeats, answers.period
    (6, 1, 2, 2)
    """

    takes: ClassVar[type] = Answered
    __slots__ = (
        "_answer",
        "_loops",
        "_seen",
        "_turn_of",
        "_turns",
        "answers",
        "streak",
        "streak_max",
        "without_calls",
        "without_calls_max",
    )

    def __init__(self) -> None:
        self.answers = 0
        self.streak = 0
        self.streak_max = 0
        self.without_calls = 0
        self.without_calls_max = 0
        self._turns = 0
        self._answer: bytes | None = None  # the last turn's, if it is one without calls
        # How many messages the model was shown when it last gave an answer to a message.
        self._seen: dict[bytes, int] = {}
        self._loops = Loops(max_loops=0)
        self._turn_of: deque[tuple[int, int]] = deque(maxlen=MAX_PERIOD)  # of the last steps

    def update(self, step: Answered) -> bool:
        """Take an answer. Returns whether a loop of turns begins with it."""
        digest, shown, messages, at = step
        turn = self._turns
        self.answers += 1
        self.without_calls += 1
        self.without_calls_max = max(self.without_calls_max, self.without_calls)
        self.streak = self.streak + 1 if digest is not None and digest == self._answer else 1
        self.streak_max = max(self.streak_max, self.streak)
        self._answer = digest or b""
        if digest is not None and shown is not None and messages is not None:
            seen, key = self._seen, shown + digest
            before = seen.pop(key, -1)
            seen[key] = messages
            if len(seen) > _MAX_SEEN:
                del seen[next(iter(seen))]
            if messages > before:
                return self._turn(IssuedStep(turn, b"answer" + shown, digest, _NAME, at=at))
        unlike = b"unlike %08d" % turn  # 15 bytes that equal no digest
        return self._turn(IssuedStep(turn, unlike, unlike, _NAME, at=at))

    def issue(self, step: IssuedStep) -> bool:
        """Take an issued step, which is a turn with calls."""
        self.streak = self.without_calls = 0
        self._answer = None
        self._turn_of.append((step.t, self._turns))
        return self._turn(step._replace(t=self._turns))

    def observe(self, step: ObservedStep) -> None:
        """Take the result of a step: one that changed something is part of no loop."""
        if step.changed or step.outcome is not None:
            for t, turn in reversed(self._turn_of):
                if t == step.t:
                    self._loops.observe(step._replace(t=turn))
                    return

    @property
    def period(self) -> int:
        """Turns of one round of the current loop; 0, there is none."""
        return self._loops.period

    @property
    def repeats(self) -> int:
        """Complete rounds of it after the first one."""
        return self._loops.repeats

    @property
    def evidence(self) -> float:
        """Repeating turns over those that are enough."""
        return self._loops.evidence

    @property
    def evidence_max(self) -> float:
        """The most of that in the run."""
        return self._loops.evidence_max

    @property
    def times(self) -> int:
        """How often it was repeated, as people count."""
        return self._loops.times

    @property
    def since(self) -> float | None:
        """When its first turn that repeats another was taken, in seconds since the epoch."""
        return self._loops.since

    @property
    def lasts(self) -> bool:
        """Whether it repeated more often than a retry does."""
        return self._loops.repeats >= LASTING

    @property
    def value(self) -> int:
        """Answers without calls."""
        return self.answers

    def _turn(self, turn: IssuedStep) -> bool:
        self._turns += 1
        onsets = self._loops.onsets
        self._loops.update(turn)
        return self._loops.onsets != onsets


_NAME: Final = "answer"
_MAX_SEEN: Final = 64
"""Different answers to messages that are remembered: a loop of more of them is not seen."""

ANSWERS: Final = MetricDefinition(
    "tidegauge_answers_total",
    "counter",
    "answers",
    "Answers of the model that chose no call: turns that are no steps.",
)
RUN_TURNS_WITHOUT_CALLS: Final = MetricDefinition(
    "tidegauge_run_turns_without_calls",
    "gauge",
    "answers",
    "Answers without a call since the last step. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)


def take_answer(run: RunView, answers: Answers, answer: Answered) -> None:
    """Give a run's metric an answer, and count what begins with it."""
    _count(run, answers, answers.update(answer))


def _issued(run: RunView, answers: Answers, step: IssuedStep) -> None:
    _count(run, answers, answers.issue(step))


def _count(run: RunView, answers: Answers, begins: bool) -> None:
    """A loop of steps is one of turns, too: it is counted once."""
    if run.metrics[Loops].period:
        return
    if begins:
        run.count_onset("loop", run.steps - 1)
    loops = answers._loops
    if answers.lasts and not loops.lasting:
        loops.lasting = True
        run.totals.lasting_loops += 1


def turns_in_words(period: int, repeated: int) -> str:
    """A loop of turns in words.

    >>> turns_in_words(2, 3), turns_in_words(1, 1)
    ('2 turns, repeated 3 times', '1 turn, repeated once')
    """
    return f"{period} turn{'s' if period > 1 else ''}, repeated {times(repeated)}"


DECLARATION: Final[Declaration[Answers]] = Declaration(
    name="answers",
    kind=Answers,
    issued=_issued,
    observed="observe",
    brought_by_start=lambda started, settings: False,
    sums=(Sum("answers", zero, kept_as="answers"),),
    absent={
        "answers": 0,
        "answer_streak": 0,
        "answer_streak_max": 0,
        "turns_without_calls": 0,
        "turns_without_calls_max": 0,
        "turn_loop_period": 0,
        "turn_loop_repeats": 0,
        "turn_loop_times": 0,
        "turn_loop_evidence": 0.0,
        "turn_loop_evidence_max": 0.0,
    },
    report=lambda run, answers: {
        "looping": answers.period > 0 or run.of(Loops).period > 0,
        "answers": answers.answers,
        "answer_streak": answers.streak,
        "answer_streak_max": answers.streak_max,
        "turns_without_calls": answers.without_calls,
        "turns_without_calls_max": answers.without_calls_max,
        "turn_loop_period": answers.period,
        "turn_loop_repeats": answers.repeats,
        "turn_loop_times": answers.times,
        "turn_loop_evidence": answers.evidence,
        "turn_loop_evidence_max": answers.evidence_max,
    },
    document=lambda report: {
        "answers": report.answers,
        "answer_streak_max": report.answer_streak_max,
        "turns_without_calls_max": report.turns_without_calls_max,
    },
    signals=(
        Signal(
            name="turn_loop_repeats",
            read=Attribute(Answers, "repeats"),
            help="how often the last turns, answers without calls among them, repeated those just "
            "before them",
            message=lambda now, at: turns_in_words(now.turn_loop_period, now.turn_loop_times),
            moment="answered",
        ),
        Signal(
            name="turn_loop_evidence",
            read=Attribute(Answers, "evidence"),
            help="turns that repeat, over those that are enough, as for `loop_evidence`",
            message=lambda now, at: turns_in_words(now.turn_loop_period, now.turn_loop_times),
            threshold="positive",
            moment="answered",
        ),
        Signal(
            name="answer_streak",
            read=Attribute(Answers, "streak"),
            help="equal answers without a call in a row",
            message=lambda now, at: f"{now.answer_streak} equal answers in a row, without a call",
            moment="answered",
        ),
        Signal(
            name="turns_without_calls",
            read=Attribute(Answers, "without_calls"),
            help="answers without a call in a row, equal or not",
            message=lambda now, at: f"{now.turns_without_calls} answers in a row without a call",
            moment="answered",
        ),
    ),
    details={
        "turn_loop_period": lambda run: _of(run, "period"),
        "turn_loop_times": lambda run: _of(run, "times"),
    },
    of_group=(Measured(ANSWERS, lambda group: group.totals.answers),),
    of_run=(Measured(RUN_TURNS_WITHOUT_CALLS, lambda run: run.turns_without_calls),),
)


def _of(run: RunView, name: str) -> Any:
    answers = run.find(Answers)
    return 0 if answers is None else getattr(answers, name)
