"""Judges runs in separate threads behind a bounded queue, so that no agent waits."""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tidegauge.diagnose.judges.judgement import Judgement, JudgementKey, key_of
from tidegauge.diagnose.judges.model_client import ModelClient, NoAnswer, Usage, model_name
from tidegauge.diagnose.judges.rubric_judge import FIVE_JUDGES, Judge, NotJudged, Question, Verdict
from tidegauge.diagnose.judges.transcript import Transcript
from tidegauge.errors import ConfigurationError
from tidegauge.events import RunStarted
from tidegauge.safety.critical import defer, here, interrupted, reset_after_fork
from tidegauge.safety.guard import guarded

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel


OnJudgement = Callable[[Transcript, Judgement], object]
"""Receives each judgement."""

_SCORES: Final = (None, 1, 2, 3, 4)
_REPAIR: Final = (
    "That answer cannot be used: {fault}. Answer once more, with the one JSON object that was "
    "asked for and nothing else."
)


def judged(judge: Judge, transcript: Transcript, client: ModelClient, model: str) -> Judgement:
    """Judge a run: a score, or the reason why there is none.

    An invalid answer is sent back once, with the error.
    """
    verdict: Verdict | None = None
    error: str | None = None
    try:
        question = judge.ask(transcript)
        if isinstance(question, NotJudged):
            error = question.reason
        elif isinstance(question, Verdict):
            verdict = question
        else:
            verdict = _verdict(judge, transcript, question, client)
        if verdict is not None and verdict.score not in _SCORES:
            error, verdict = (
                f"judge_error: the score is {verdict.score!r}; use 1 to 4 or None",
                None,
            )
    except NoAnswer as reason:
        error = str(reason)
    except Exception as fault:  # noqa: BLE001 -- of the user's judge
        error = f"judge_error: {type(fault).__name__}: {fault}"
    key = key_of(transcript.run, judge, model)
    return Judgement(
        **key._asdict(),
        score=None if verdict is None else verdict.score,
        applicable=None if verdict is None else verdict.score is not None,
        reason="" if verdict is None else verdict.reason,
        steps=() if verdict is None else verdict.steps,
        left_out_steps=transcript.left_out_steps,
        shortened_steps=transcript.shortened_steps,
        error=error,
    )


def _verdict(
    judge: Judge, transcript: Transcript, question: Question, client: ModelClient
) -> Verdict:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

    messages: list[BaseMessage] = [SystemMessage(question.system), HumanMessage(question.text)]
    answer = client.answer(messages)
    try:
        return judge.read(answer, transcript)
    except ValueError as fault:
        messages += [AIMessage(answer), HumanMessage(_REPAIR.format(fault=fault))]
    answer = client.answer(messages)
    try:
        return judge.read(answer, transcript)
    except ValueError as fault:
        raise NoAnswer("invalid_answer", str(fault)) from None


class Judging:
    """Judges runs in the background.

    Give it to ``tidegauge.configure(judging=...)`` to judge runs as they end, or
    :meth:`submit` transcripts yourself. One thread judges one run at a time, competency by
    competency.

    Args:
        model: any chat model of LangChain; contents of runs go only to it.
        judges: the judges; default: one for each of the five competencies.
        share: share of the runs that are judged, selected by their ids.
        max_waiting: limit of waiting runs; further ones are dropped and counted.
        name: name of the model, if the model has none.
        known: what was judged before, and is not judged again.

    ``timeout``, ``attempts``, ``pause`` and ``requests_per_minute`` are those of a
    :class:`~tidegauge.diagnose.judges.model_client.ModelClient`.

    Attributes:
        model: name of the model.
        dropped: runs that were not judged, by reason: ``queue_full`` or ``closed``.

    Raises:
        ConfigurationError: a number is out of range, there is no judge, or two judges have the same
            competency.
        MissingExtraError: LangChain is not installed.
    """

    def __init__(
        self,
        model: BaseChatModel,
        judges: Iterable[Judge] = FIVE_JUDGES,
        *,
        share: float = 1.0,
        concurrency: int = 1,
        max_waiting: int = 100,
        timeout: float = 60.0,
        attempts: int = 4,
        pause: float = 1.0,
        requests_per_minute: float | None = None,
        name: str | None = None,
        known: Container[JudgementKey] = (),
    ) -> None:
        self.judges = tuple(judges)
        if not self.judges:
            raise ConfigurationError("The list of judges is empty; use at least one judge.")
        if len({judge.competency for judge in self.judges}) < len(self.judges):
            raise ConfigurationError("Two judges have the same competency; use one per competency.")
        if not 0 <= share <= 1:
            raise ConfigurationError(f"The share {share} is out of range; use 0 to 1.")
        if concurrency < 1 or max_waiting < 1:
            raise ConfigurationError(
                f"concurrency {concurrency} or max_waiting {max_waiting} is out of range; use at "
                "least 1."
            )
        self.model = name or model_name(model)
        self._closing = threading.Event()
        self._new_client = partial(
            ModelClient,
            model,
            timeout=timeout,
            attempts=attempts,
            pause=pause,
            requests_per_minute=requests_per_minute,
        )
        self._share = share
        self._concurrency = concurrency
        self._max_waiting = max_waiting
        self._known = known
        self._listeners: list[OnJudgement] = []
        self._begin()
        reset_after_fork(self)

    @property
    def usage(self) -> Usage:
        """The usage so far, as reported by the model."""
        return self._client.usage

    def wants(self, run: RunStarted) -> bool:
        """Whether the run is in the share that is judged."""
        drawn = zlib.crc32(run.run.encode("utf-8", "replace")) / 2**32
        return drawn < self._share

    def listen(self, on_judgement: OnJudgement) -> None:
        """Call this with every judgement, in a thread of the judges."""
        self._listeners.append(on_judgement)

    def submit(self, transcript: Transcript, *, wait: bool = False) -> bool:
        """Queue a run for judging; returns whether it was queued.

        Args:
            wait: wait for room in the queue instead of dropping the run.
        """
        if wait:
            with self._changed:
                self._changed.wait_for(self._has_room)
        # Arithmetic, and a queue written in C: an agent that ends a run waits for no judge, and
        # may be interrupted here.
        with here.critical, self._lock:
            if self._closing.is_set():
                self.dropped["closed"] += 1
                return False
            if not self._has_room():
                self.dropped["queue_full"] += 1
                return False
            self._wake.put(None)
            self._waiting.append(transcript)
        self._start()
        return True

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all submitted runs are judged; returns whether they are."""
        if self._waiting:
            self._start()  # none may have been started for them
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout=seconds)

    def close(self, seconds: float = 5.0) -> None:
        """Judge waiting runs for at most ``seconds``, then drop and count the rest."""
        self.wait(seconds)
        self._closing.set()
        with here.critical, self._lock:
            self.dropped["closed"] += len(self._waiting) + self._in_work
            self._waiting.clear()
        for _ in range(self._concurrency):
            self._wake.put(None)
        self._notify()

    def _has_room(self) -> bool:
        return len(self._waiting) < self._max_waiting or self._closing.is_set()

    def _is_idle(self) -> bool:
        with here.critical, self._lock:
            return not self._waiting and not self._in_work

    def _begin(self) -> None:
        self.dropped = {"queue_full": 0, "closed": 0}
        self._client = self._new_client(closing=self._closing)
        # Re-entrant: a signal handler may submit a run in the middle of this.
        self._lock = threading.RLock()  # of all that follows
        self._waiting: deque[Transcript] = deque()
        self._in_work = 0
        self._threads: list[threading.Thread] = []
        self._wake: SimpleQueue[None] = SimpleQueue()  # has something for each run that waits
        self._changed = threading.Condition()  # notified when a run is taken or judged

    def _reset_after_fork(self) -> None:
        """The child judges what it submits, unless it was closed."""
        closed = self._closing.is_set()
        self._closing = threading.Event()
        if closed:
            self._closing.set()
        self._begin()

    def _start(self) -> None:
        """Start another thread, up to the limit, and in place of those that could not start."""
        if interrupted():  # maybe a start, which holds locks of Python
            defer(self._start)
            return
        with here.critical, self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if len(self._threads) < self._concurrency and not self._closing.is_set():
                thread = threading.Thread(target=self._work, name="tidegauge-judge", daemon=True)
                with suppress(RuntimeError):  # the system has no more: with the next run
                    thread.start()
                    self._threads.append(thread)

    def _work(self) -> None:
        with here.critical, self._lock:
            if threading.current_thread() not in self._threads:
                return  # an exception has interrupted its start, and there is another one
        while True:
            self._wake.get()
            with here.critical, self._lock:
                if self._closing.is_set():
                    return
                if not self._waiting:
                    continue
                transcript = self._waiting.popleft()
                self._in_work += 1
            self._notify()
            try:
                self._judge(transcript)
            finally:
                with here.critical, self._lock:
                    self._in_work -= 1
                self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @guarded("judging", default=None)
    def _judge(self, transcript: Transcript) -> None:
        for judge in self.judges:
            if self._closing.is_set():
                return
            if key_of(transcript.run, judge, self.model) in self._known:
                continue
            judgement = judged(judge, transcript, self._client, self.model)
            for listener in self._listeners:
                listener(transcript, judgement)


CHARACTERS_PER_TOKEN: Final = 4
"""Characters per token of a question: about right for English and code, too high for others."""

ANSWER_TOKENS: Final = 150
"""Tokens of an answer. A model that reasons first writes many times more."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model, in any currency.

    Args:
        input: price of a million input tokens.
        output: price of a million output tokens.

    >>> Price(input=3.0, output=15.0).of(input_tokens=200_000, output_tokens=10_000)
    0.75
    """

    input: float
    output: float

    def of(self, *, input_tokens: float, output_tokens: float) -> float:
        """The price of these tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000

    def of_usage(self, usage: Usage) -> float:
        """The price of the reported usage."""
        return self.of(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


class Estimate:
    """Estimates the cost of judging runs, without a model.

    Each question counts once. An invalid answer costs another question of about the same length.

    Attributes:
        questions: prompts to send.
        known_questions: questions that were answered before.
        not_judged: questions that are not asked because there is nothing to judge.
        input_tokens: tokens of the prompts, at :data:`CHARACTERS_PER_TOKEN`.
        cut_runs: runs with omitted steps.
    """

    def __init__(
        self, judges: Sequence[Judge], model: str, known: Container[JudgementKey] = ()
    ) -> None:
        self.runs = self.questions = self.known_questions = 0
        self.not_judged = self.input_tokens = self.cut_runs = 0
        self._judges = judges
        self._model = model
        self._known = known

    @property
    def output_tokens(self) -> int:
        """Tokens of the answers, at :data:`ANSWER_TOKENS` each."""
        return self.questions * ANSWER_TOKENS

    def add(self, transcript: Transcript) -> None:
        """Add a run."""
        self.runs += 1
        self.cut_runs += bool(transcript.left_out_steps)
        for judge in self._judges:
            if key_of(transcript.run, judge, self._model) in self._known:
                self.known_questions += 1
                continue
            question = judge.ask(transcript)
            if not isinstance(question, Question):
                self.not_judged += 1
                continue
            self.questions += 1
            characters = len(question.system) + len(question.text)
            self.input_tokens += -(-characters // CHARACTERS_PER_TOKEN)
