"""Calls a model with a rate limit, a timeout and retries, and counts its usage.

Any chat model of LangChain works. The prompt asks for JSON in words, without features that only
some models have (tools, JSON mode). So the question is the same for every model.
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

R = TypeVar("R")

_MAX_ABANDONED: Final = 32
_MAX_WAIT_SECONDS: Final = 60.0
_REFUSED: Final = ("content_filter", "refusal", "safety", "prohibited_content")
_BUSY: Final = (408, 409, 425, 429)
_OUR_FAULTS: Final = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)
_SHOWN: Final = 300


class NoAnswer(Exception):  # noqa: N818 -- it is caught where it is raised
    """A model gave no answer: the kind of failure and its detail."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass(slots=True)
class Usage:
    """The usage of a model, as reported by it.

    Attributes:
        unreported: answers that reported no tokens.
        input_tokens: reported tokens of the questions.
        output_tokens: reported tokens of the answers.
    """

    answers: int = 0
    unreported: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class ModelClient:
    """Calls a chat model.

    Args:
        timeout: seconds within which an answer must arrive. A call that takes longer is abandoned,
            because a thread cannot be ended.
        attempts: limit of attempts per question; a question is repeated after a timeout, a rate
            limit, or an error that the question did not cause.
        pause: seconds before the second attempt. The pause doubles for each further attempt, up to
            a minute; a longer pause that the provider asks for takes precedence.
        requests_per_minute: rate limit over all threads; ``None``: no limit.
        closing: when set, questions are not repeated and pauses end.

    Attributes:
        usage: the usage so far.

    Raises:
        ConfigurationError: a number is out of range.
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
            raise ConfigurationError(
                f"One of timeout={timeout}, attempts={attempts}, pause={pause} is out of range; "
                "use more than 0, at least 1, and at least 0."
            )
        if requests_per_minute is not None and not requests_per_minute > 0:
            raise ConfigurationError(
                f"requests_per_minute {requests_per_minute} is out of range; use more than 0."
            )
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
        """The model's answer.

        Raises:
            NoAnswer: ``time_out``, ``rate_limited``, ``refused``, ``model_error``.
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
        except NoAnswer:
            raise
        except Exception as error:
            raise NoAnswer(_kind(error), _described(error)) from error
        self._count(message)
        refusal = _refusal(message)
        if refusal is not None:
            raise NoAnswer("refused", refusal)
        return str(message.text)

    def _ask(self, messages: list[BaseMessage]) -> AIMessage:
        if self._limiter is not None:
            self._limiter.acquire()
        with self._lock:
            if self._abandoned >= _MAX_ABANDONED:
                raise NoAnswer("time_out", f"{self._abandoned} earlier calls have not returned")
        return self._within(lambda: self._model.invoke(messages))

    def _within(self, call: Callable[[], R]) -> R:
        """The result of the call, if in time. Its daemon thread does not delay the exit."""
        done: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        left = threading.Event()

        def work() -> None:
            try:
                done.put((call(), None))
            except Exception as error:  # noqa: BLE001 -- raised in the waiting thread
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
        usage = message.usage_metadata
        with self._lock:
            self.usage.answers += 1
            if usage is None:
                self.usage.unreported += 1
            else:
                self.usage.input_tokens += usage["input_tokens"]
                self.usage.output_tokens += usage["output_tokens"]


def model_name(model: BaseChatModel) -> str:
    """The name of a model, else that of its class."""
    for attribute in ("model_name", "model", "model_id"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _status(error: BaseException | None) -> int | None:
    """The HTTP status of an error of a provider's client."""
    for holder in (error, getattr(error, "response", None)):
        for attribute in ("status_code", "code", "status"):
            value = getattr(holder, attribute, None)
            if type(value) is int and 400 <= value < 600:
                return value
    return None


def _may_pass(error: BaseException) -> bool:
    """Whether another attempt may help: not if the question or the code caused the error."""
    status = _status(error)
    if status is not None:
        return status >= 500 or status in _BUSY
    return isinstance(error, Exception) and not isinstance(error, (NoAnswer, *_OUR_FAULTS))


def _retry_after(error: BaseException | None) -> float:
    """Seconds that the provider asks to wait; 0 if it does not."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        return float(headers.get("retry-after", 0)) if headers is not None else 0.0
    except (TypeError, ValueError):  # a date, or no headers at all
        return 0.0


def _kind(error: Exception) -> str:
    # Clients have their own timeouts; retries do not depend on their names.
    named = any("Timeout" in kind.__name__ for kind in type(error).__mro__)
    if named or _status(error) == 408:
        return "time_out"
    return "rate_limited" if _status(error) == 429 else "model_error"


def _described(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _refusal(message: AIMessage) -> str | None:
    """The provider's reason for refusing, if any."""
    refusal = message.additional_kwargs.get("refusal")
    if refusal:
        return str(refusal)[:_SHOWN]
    for key in ("finish_reason", "stop_reason"):
        reason = message.response_metadata.get(key)
        if isinstance(reason, str) and reason.lower() in _REFUSED:
            return reason
    return None
