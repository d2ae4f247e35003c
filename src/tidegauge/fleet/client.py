"""The client of ``tidegauge decisions`` in an agent's process: must one of its runs stop?

A thread sends the requests; the agent only reads what the thread has received. A failure of the
server never affects the agent: without a decision, it continues.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, cast, get_args

from tidegauge.errors import ConfigurationError, RunStopped, TidegaugeError
from tidegauge.events import GO_ON, Decision, Intervention
from tidegauge.fleet.transport import (
    MAX_ID_BYTES,
    MAX_IDS,
    MAX_WAIT_SECONDS,
    DecisionsTransport,
    RequestFailedError,
)
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import guarded, log

_ACTIONS: Final = frozenset(get_args(Intervention))
_LONGEST_PAUSE: Final = 30.0
_SHORTEST_PAUSE: Final = 0.05


class WorkerRun(contextlib.AbstractContextManager["WorkerRun"]):
    """A run that a worker measures, as its agent sees it.

    :meth:`DecisionClient.watch` makes it. It is a context manager: at the end of the block, the
    client stops asking for the run.

    Args:
        run: the run's id; ``None``: unknown, and there are never decisions.
        forget: called when it is closed.

    Attributes:
        run: the run's id.
        decision: the last decision that is known; at first, to go on. A stop is final.
    """

    def __init__(self, run: str | None, forget: Callable[[WorkerRun], object]) -> None:
        self.run = run
        self.decision: Decision = GO_ON
        self._forget = forget
        self._decided = (run or "", 0)

    def enforce(self) -> None:
        """Raise the deliberate stop if the run must stop; call it between the agent's turns.

        Raises:
            RunStopped: the run must stop. Its ``run`` may be a run inside this one.
        """
        decision = self.decision
        if decision.action == "stop":
            run, step = self._decided
            raise RunStopped(
                run,
                step=step,
                reason=decision.reason or "decided by a worker",
                message=decision.message or "a worker decided it",
            )

    def close(self) -> None:
        """Stop asking for the run; a second call does nothing."""
        self._forget(self)

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, answer: Mapping[str, Any]) -> bool:
        """Take the server's answer for this run; whether the decision changed."""
        action, step = answer["action"], answer.get("step")
        if action not in _ACTIONS:  # ended: there is nothing left to decide
            action = "go_on"
        reason, message = answer.get("reason"), answer.get("message")
        decision = Decision(cast("Intervention", action), reason, message)
        if self.decision.stop or decision == self.decision:
            return False
        self._decided = (str(answer["run"]), step if isinstance(step, int) else 0)
        self.decision = decision  # last: a thread that sees it finds the rest
        return True


OnDecision: TypeAlias = Callable[[WorkerRun], object]
"""Called with a run whose decision changed, in the client's thread."""


class DecisionClient(contextlib.AbstractContextManager["DecisionClient"]):
    """Asks ``tidegauge decisions`` for the open runs of this process.

    Args:
        url: URL of ``tidegauge decisions``, such as ``http://decisions:9465``.
        token: bearer token to send.
        every: seconds that a request waits for a change, and so the longest time until the client
            asks for a new run. A decision arrives as soon as the server has it.
        timeout: seconds beyond ``every`` to wait for a response.
        on_decision: called whenever a run's decision changes, in the client's thread.
        max_runs: limit of the watched runs; further runs get no decisions.

    Attributes:
        failures: failed requests.
        unwatched: runs that are not watched, because there are too many or their id is too long.

    Raises:
        ConfigurationError: ``url`` is not an HTTP URL, or a number is not positive.

    >>> client = DecisionClient("http://127.0.0.1:9465")
    >>> with client.watch("r1") as watched:
    ...     watched.enforce()  # between the agent's turns
    >>> client.close()
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        every: float = 1.0,
        timeout: float = 5.0,
        on_decision: OnDecision | None = None,
        max_runs: int = 1_000,
    ) -> None:
        if min(every, timeout, max_runs) <= 0:
            raise ConfigurationError("every, timeout and max_runs must be greater than 0")
        self._every = min(every, MAX_WAIT_SECONDS)
        self._timeout = timeout
        self._transport = DecisionsTransport(url, token, self._every + timeout)
        self._on_decision = on_decision
        self._max_runs = max_runs
        self.failures = 0
        self.unwatched = 0
        self._open: dict[WorkerRun, None] = {}
        self._polled: tuple[WorkerRun, ...] = ()
        self._tags: dict[tuple[str, ...], str | None] = {}
        self._failed_in_a_row = 0
        self._begin()
        reset_after_fork(self)

    def watch(self, run: str) -> WorkerRun:
        """Ask for a run until the result is closed. Never blocks, never raises.

        Args:
            run: the run's id; the id of a trace: all runs in it.
        """
        return self._watch(run)

    def watch_current_trace(self) -> WorkerRun:
        """Ask for the runs in the trace of the current OpenTelemetry span, if there is one.

        For agents whose spans go to ``tidegauge serve --kafka``: the ids of their runs follow from
        the id of their trace. Never blocks, never raises.
        """
        return self._watch(_current_trace())

    def close(self) -> None:
        """Send no more requests; a second call does nothing. The last decisions stay."""
        self._closing.set()
        self._wake.put(None)
        self._transport.interrupt()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        if thread.is_alive():  # it may not have started
            thread.join(self._timeout)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Begin without a thread: at first, and in a forked child, which has none."""
        self._lock = threading.Lock()
        # Written in C: one that interrupts Event.set() in the same thread would wait for itself.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def _reset_after_fork(self) -> None:
        self._transport.close()  # only the child's side; the parent's connection stays open
        self._begin()

    def _watch(self, run: str | None) -> WorkerRun:
        watched = WorkerRun(run, self._forget)
        if run is not None:
            self._add(watched, run)
        return watched

    @guarded("fleet.client", default=None)
    def _add(self, watched: WorkerRun, run: str) -> None:
        with here.critical, self._lock:
            if self._closing.is_set():
                return
            if len(self._open) >= self._max_runs or not _is_valid(run):
                self.unwatched += 1
                return
            if self._wake.empty():
                self._wake.put(None)
            self._open[watched] = None
            if self._thread is None or not self._thread.is_alive():  # or could not start
                self._thread = threading.Thread(
                    target=self._run, name="tidegauge-decisions", daemon=True
                )
                self._thread.start()

    @guarded("fleet.client", default=None)
    def _forget(self, watched: WorkerRun) -> None:
        with here.critical, self._lock:
            self._open.pop(watched, None)

    def _run(self) -> None:
        with here.critical, self._lock:
            if self._thread is not threading.current_thread():
                return  # an exception has interrupted its start, and there is another one
        while not self._closing.is_set():
            with here.critical, self._lock:
                runs = tuple(self._open)
            if runs:
                self._closing.wait(self._poll(runs))
            else:
                self._wake.get()
        self._transport.close()

    @guarded("fleet.client", default=_LONGEST_PAUSE)
    def _poll(self, runs: tuple[WorkerRun, ...]) -> float:
        """Ask for these runs; returns the seconds until the next request."""
        began = time.monotonic()
        try:
            changed = self._update(runs)
        except RequestFailedError as error:
            return self._failed(error)
        self._failed_in_a_row = 0
        if changed:
            return _SHORTEST_PAUSE
        return max(_SHORTEST_PAUSE, self._every - (time.monotonic() - began))

    def _update(self, runs: tuple[WorkerRun, ...]) -> bool:
        """Ask for these runs, and update them; whether the server sent anything new.

        Raises:
            RequestFailedError: there was no usable response.
        """
        if runs != self._polled:  # a new run does not know the last response
            self._polled, self._tags = runs, {}
        ids = tuple(dict.fromkeys([watched.run for watched in runs if watched.run is not None]))
        changed = False
        for start in range(0, len(ids), MAX_IDS):
            part = ids[start : start + MAX_IDS]
            wait = self._every if part == ids else 0.0
            decisions, self._tags[part] = self._transport.get(part, wait, self._tags.get(part))
            if decisions is None:
                continue
            changed = True
            for watched in runs:
                answer = decisions.get(watched.run or "")
                if answer is not None and watched.update(answer):
                    self._notify(watched)
        return changed

    def _failed(self, error: RequestFailedError) -> float:
        """Count the failure, log the first in a row; returns the increasing seconds to wait."""
        if self._closing.is_set():
            return 0.0
        if not self._failed_in_a_row:
            log(
                logging.WARNING,
                "tidegauge: no decisions from %s, agents continue: %s",
                self._transport.server,
                error,
            )
        self.failures += 1
        self._failed_in_a_row += 1
        pause = min(self._every * 2.0 ** min(self._failed_in_a_row, 10), _LONGEST_PAUSE)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads the clients' retries

    @guarded("fleet.client.on_decision", default=None)
    def _notify(self, watched: WorkerRun) -> None:
        if self._on_decision is not None:
            with contextlib.suppress(TidegaugeError):  # enforce() belongs in the agent's thread
                self._on_decision(watched)


def _is_valid(run: str) -> bool:
    try:
        return 0 < len(run.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


@guarded("fleet.client", default=None)
def _current_trace() -> str | None:
    """The id of the current span's trace; ``None``: there is none."""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
