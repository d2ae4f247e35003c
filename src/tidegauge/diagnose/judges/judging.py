"""Judging runs: on threads of its own, behind a bounded queue, never where an agent waits."""

from __future__ import annotations

import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge._guard import guarded
from tidegauge.diagnose.judges.asking import Asking, Unanswered, Usage, model_name
from tidegauge.diagnose.judges.judge import FIVE_JUDGES, Judge, NotJudged, Question, Verdict
from tidegauge.diagnose.judges.judgement import Judgement, JudgementKey, key_of
from tidegauge.diagnose.judges.transcript import Transcript
from tidegauge.errors import ConfigurationError
from tidegauge.events import RunStarted

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel

__all__ = ["Judging", "judged"]

OnJudgement = Callable[[Transcript, Judgement], object]
"""Takes what came of judging a run."""

_SCORES: Final = (None, 1, 2, 3, 4)
_REPAIR: Final = (
    "That answer cannot be used: {fault}. Answer once more, with the one JSON object that was "
    "asked for and nothing else."
)


def judged(judge: Judge, transcript: Transcript, asking: Asking, model: str) -> Judgement:
    """What comes of judging a run: a score, or a stated reason why there is none.

    An answer that cannot be used is sent back once, with what is wrong with it.

    Args:
        judge: puts the question and reads the answer.
        transcript: the run.
        asking: asks the model.
        model: its name.
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
            verdict = _verdict(judge, transcript, question, asking)
        if verdict is not None and verdict.score not in _SCORES:
            error, verdict = f"judge_error: {verdict.score!r} is no score from 1 to 4", None
    except Unanswered as reason:
        error = str(reason)
    except Exception as fault:  # noqa: BLE001 -- a judge is anybody's code
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


def _verdict(judge: Judge, transcript: Transcript, question: Question, asking: Asking) -> Verdict:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

    messages: list[BaseMessage] = [SystemMessage(question.system), HumanMessage(question.text)]
    answer = asking.answer(messages)
    try:
        return judge.read(answer, transcript)
    except ValueError as fault:
        messages += [AIMessage(answer), HumanMessage(_REPAIR.format(fault=fault))]
    answer = asking.answer(messages)
    try:
        return judge.read(answer, transcript)
    except ValueError as fault:
        raise Unanswered("invalid_answer", str(fault)) from None


class Judging:
    """Judges runs in the background.

    Give it to ``tidegauge.configure(judging=...)`` to judge runs as they end, or
    :meth:`submit` transcripts yourself. One thread judges one run at a time, competency by
    competency.

    Args:
        model: any chat model of LangChain; what a run held goes to it, and nowhere else.
        judges: who judges; left out, one for each of the five competencies.
        share: share of the runs that are judged, chosen by their ids.
        concurrency: runs that are judged at a time.
        max_waiting: runs that may wait; one more is dropped, and counted.
        timeout: seconds, as of :class:`~tidegauge.diagnose.judges.asking.Asking`.
        attempts: as of :class:`~tidegauge.diagnose.judges.asking.Asking`.
        pause: as of :class:`~tidegauge.diagnose.judges.asking.Asking`.
        requests_per_minute: as of :class:`~tidegauge.diagnose.judges.asking.Asking`.
        name: of the model, where it does not tell it.
        known: what needs not be judged again.

    Attributes:
        judges: who judges.
        model: the model's name.
        dropped: runs that were not judged, by reason: ``queue_full`` or ``closed``.

    Raises:
        ConfigurationError: a number that cannot be, two judges of one competency, or none.
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
            raise ConfigurationError("there is to be at least one judge")
        if len({judge.competency for judge in self.judges}) < len(self.judges):
            raise ConfigurationError("there is to be one judge of a competency")
        if not 0 <= share <= 1:
            raise ConfigurationError("share is to be from 0 to 1")
        if concurrency < 1 or max_waiting < 1:
            raise ConfigurationError("concurrency and max_waiting are to be at least 1")
        self.model = name or model_name(model)
        self._closing = threading.Event()
        self._new_asking = partial(
            Asking,
            model,
            timeout=timeout,
            attempts=attempts,
            pause=pause,
            requests_per_minute=requests_per_minute,
            closing=self._closing,
        )
        self._share = share
        self._concurrency = concurrency
        self._max_waiting = max_waiting
        self._known = known
        self._listeners: list[OnJudgement] = []
        self._process = os.getpid()
        self._renew()

    @property
    def usage(self) -> Usage:
        """What it has cost so far, as the model told it."""
        return self._asking.usage

    def wants(self, run: RunStarted) -> bool:
        """Whether the run is among the share that is judged."""
        drawn = zlib.crc32(run.run.encode("utf-8", "replace")) / 2**32
        return drawn < self._share

    def listen(self, on_judgement: OnJudgement) -> None:
        """Have every judgement told to this, on a thread of the judges."""
        self._listeners.append(on_judgement)

    def submit(self, transcript: Transcript, *, wait: bool = False) -> bool:
        """Have a run judged; gives whether it will be.

        Args:
            transcript: the run.
            wait: wait while too many wait already, where it would be dropped.
        """
        if self._process != os.getpid():
            self._renew()
        with self._changed:
            if wait:
                self._changed.wait_for(self._has_room)
            if self._closing.is_set():
                self.dropped["closed"] += 1
                return False
            if not self._has_room():
                self.dropped["queue_full"] += 1
                return False
            self._waiting.append(transcript)
            self._start()
            self._changed.notify_all()
        return True

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until every run that was submitted is judged; gives whether they are.

        Args:
            seconds: no longer than this.
        """
        if self._process != os.getpid():
            return True  # they were submitted in the process before a fork
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._in_work, timeout=seconds
            )

    def close(self, seconds: float = 5.0) -> None:
        """Judge what waits, for so many seconds; drop and count the rest, and take no more."""
        self.wait(seconds)
        self._closing.set()
        if self._process == os.getpid():
            with self._changed:
                self.dropped["closed"] += len(self._waiting) + self._in_work
                self._waiting.clear()
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._waiting) < self._max_waiting or self._closing.is_set()

    def _renew(self) -> None:
        """Begin with nothing: a process that was forked has no threads, and locks as they were."""
        self.dropped = {"queue_full": 0, "closed": 0}
        self._asking = self._new_asking()
        self._waiting: deque[Transcript] = deque()
        self._in_work = 0
        self._changed = threading.Condition()  # something waits, is taken, is done
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()

    def _start(self) -> None:
        """Another thread, up to as many as there may be, since there is something to do."""
        if len(self._threads) < self._concurrency:
            thread = threading.Thread(target=self._work, name="tidegauge-judge", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
                if not self._waiting:
                    return
                transcript = self._waiting.popleft()
                self._in_work += 1
                self._changed.notify_all()
            try:
                self._judge(transcript)
            finally:
                with self._changed:
                    self._in_work -= 1
                    self._changed.notify_all()

    @guarded("judging", default=None)
    def _judge(self, transcript: Transcript) -> None:
        for judge in self.judges:
            if self._closing.is_set():
                return
            if key_of(transcript.run, judge, self.model) in self._known:
                continue
            judgement = judged(judge, transcript, self._asking, self.model)
            for listener in self._listeners:
                listener(transcript, judgement)
