"""Asking a model: at a rate, within a time, again when it was busy, and counting what it costs.

Any chat model of LangChain will do. It is asked in words for JSON, and for nothing that only some
models have (tools, a mode for JSON): so the question is the same whichever model is asked.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegauge.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from tenacity import RetryCallState

__all__ = ["Asking", "Unanswered", "Usage", "model_name"]

R = TypeVar("R")

_MAX_ABANDONED: Final = 32
_MAX_WAIT_SECONDS: Final = 60.0
_REFUSED: Final = ("content_filter", "refusal", "safety", "prohibited_content")
_BUSY: Final = (408, 409, 425, 429)
_OUR_FAULTS: Final = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)
_SHOWN: Final = 300


class Unanswered(Exception):  # noqa: N818 -- it is caught where it is raised
    """A model gave no answer: ``kind`` in a word, and what is known of it."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass(slots=True)
class Usage:
    """What asking has cost, as the model told it.

    Attributes:
        answers: answers that came.
        untold: those of them that did not tell their tokens.
        input_tokens: tokens of the questions, as far as told.
        output_tokens: tokens of the answers, as far as told.
    """

    answers: int = 0
    untold: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Asking:
    """Asks a chat model.

    Args:
        model: any chat model of LangChain.
        timeout: seconds within which an answer is to come. A call that takes longer is left to
            itself: no thread can be ended.
        attempts: how often a question is asked, at most: again after a time-out, a limit of its
            rate, or a fault that is not the question's own.
        pause: seconds before the second attempt. Before each later one it doubles, up to a
            minute; where the provider asks for a longer pause, that is made.
        requests_per_minute: no more than so many, over all threads; ``None``, no limit.
        closing: once this is set, nothing is asked again, and no pause is made.

    Attributes:
        usage: what it has cost so far.

    Raises:
        ConfigurationError: a number that cannot be.
        MissingExtraError: LangChain is not installed.
    """

    def __init__(
        self,
        model: BaseChatModel,
        *,
        timeout: float = 60.0,
        attempts: int = 4,
        pause: float = 1.0,
        requests_per_minute: float | None = None,
        closing: threading.Event | None = None,
    ) -> None:
        if not timeout > 0 or not pause >= 0 or attempts < 1:
            raise ConfigurationError("timeout is to be more than 0, attempts at least 1, pause 0")
        if requests_per_minute is not None and not requests_per_minute > 0:
            raise ConfigurationError("requests_per_minute is to be more than 0")
        try:
            from langchain_core.rate_limiters import InMemoryRateLimiter
        except ModuleNotFoundError as error:
            raise MissingExtraError("langchain_core", extra="judge") from error
        self.usage = Usage()
        self._model = model
        self._timeout = timeout
        self._attempts = attempts
        self._pause = pause
        self._closing = closing or threading.Event()
        self._limiter = (
            None
            if requests_per_minute is None
            else InMemoryRateLimiter(
                requests_per_second=requests_per_minute / 60, check_every_n_seconds=0.05
            )
        )
        self._lock = threading.Lock()
        self._abandoned = 0

    def answer(self, messages: Sequence[BaseMessage]) -> str:
        """What the model answers.

        Raises:
            Unanswered: ``time_out``, ``rate_limited``, ``refused``, ``model_error``.
        """
        import tenacity

        growing = tenacity.wait_exponential(multiplier=self._pause, max=_MAX_WAIT_SECONDS)
        backoff = growing + tenacity.wait_random(0, self._pause)  # not all threads at once

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome is not None else None
            return max(backoff(state), min(_retry_after(error), _MAX_WAIT_SECONDS))

        again = tenacity.Retrying(
            sleep=tenacity.sleep_using_event(self._closing),
            stop=tenacity.stop_after_attempt(self._attempts)
            | tenacity.stop_when_event_set(self._closing),
            wait=pause,
            retry=tenacity.retry_if_exception(_may_pass),
            reraise=True,
        )
        try:
            message: AIMessage = again(self._ask, list(messages))
        except Unanswered:
            raise
        except Exception as error:
            raise Unanswered(_kind(error), _told(error)) from error
        self._count(message)
        refusal = _refusal(message)
        if refusal is not None:
            raise Unanswered("refused", refusal)
        return str(message.text)

    def _ask(self, messages: list[BaseMessage]) -> AIMessage:
        if self._limiter is not None:
            self._limiter.acquire()
        with self._lock:
            if self._abandoned >= _MAX_ABANDONED:
                raise Unanswered("time_out", f"{self._abandoned} calls have not come back")
        return self._within(lambda: self._model.invoke(messages))

    def _within(self, call: Callable[[], R]) -> R:
        """What the call gives, if it does in time. Its thread holds up nobody's exit."""
        done: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        left = threading.Event()

        def work() -> None:
            try:
                done.put((call(), None))
            except Exception as error:  # noqa: BLE001 -- told to whoever waits
                done.put((None, error))
            with self._lock:
                if left.is_set():
                    self._abandoned -= 1

        threading.Thread(target=work, name="tidegauge-judge-call", daemon=True).start()
        try:
            value, error = done.get(timeout=self._timeout)
        except queue.Empty:
            with self._lock:
                if done.empty():
                    left.set()
                    self._abandoned += 1
            raise TimeoutError(f"no answer within {self._timeout:g} s") from None
        if error is not None:
            raise error
        found: R = value
        return found

    def _count(self, message: AIMessage) -> None:
        told = message.usage_metadata
        with self._lock:
            self.usage.answers += 1
            if told is None:
                self.usage.untold += 1
            else:
                self.usage.input_tokens += told["input_tokens"]
                self.usage.output_tokens += told["output_tokens"]


def model_name(model: BaseChatModel) -> str:
    """The name of a model, as far as it tells one."""
    for attribute in ("model_name", "model", "model_id"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _status(error: BaseException | None) -> int | None:
    """The HTTP status that an error of a provider's client tells."""
    for holder in (error, getattr(error, "response", None)):
        for attribute in ("status_code", "code", "status"):
            value = getattr(holder, attribute, None)
            if type(value) is int and 400 <= value < 600:
                return value
    return None


def _may_pass(error: BaseException) -> bool:
    """Whether asking again may help: not where the question or the code is at fault."""
    status = _status(error)
    if status is not None:
        return status >= 500 or status in _BUSY
    return isinstance(error, Exception) and not isinstance(error, (Unanswered, *_OUR_FAULTS))


def _retry_after(error: BaseException | None) -> float:
    """Seconds that the provider asks to wait; 0, it does not say."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        return float(headers.get("retry-after", 0)) if headers is not None else 0.0
    except (TypeError, ValueError):  # a date, or no headers at all
        return 0.0


def _kind(error: Exception) -> str:
    # Clients have time-outs of their own; whether to ask again does not hang on their names.
    named = any("Timeout" in kind.__name__ for kind in type(error).__mro__)
    if named or _status(error) == 408:
        return "time_out"
    return "rate_limited" if _status(error) == 429 else "model_error"


def _told(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _refusal(message: AIMessage) -> str | None:
    """Why the provider would not answer, where it says so in its own way."""
    refusal = message.additional_kwargs.get("refusal")
    if refusal:
        return str(refusal)[:_SHOWN]
    for key in ("finish_reason", "stop_reason"):
        reason = message.response_metadata.get(key)
        if isinstance(reason, str) and reason.lower() in _REFUSED:
            return reason
    return None
