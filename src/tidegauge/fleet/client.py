"""The client of ``tidegauge decisions`` in an agent's process: must one of its runs stop?

A thread sends the requests, over one connection that stays open; the agent only reads what the
thread has received. A failure of the server never affects the agent: without a decision, it
continues.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, cast, get_args
from urllib.parse import urlencode, urlsplit

from tidegauge.errors import ConfigurationError, RunStopped, TidegaugeError
from tidegauge.events import GO_ON, Decision, Intervention
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import guarded, log

MAX_IDS: Final = 64
"""Limit of the ids in a request; client and server obey it."""

MAX_ID_BYTES: Final = 512
"""Limit of the id of a run or trace, in UTF-8."""

MAX_WAIT_SECONDS: Final = 30.0
"""Limit of the time that a request waits for a change."""

Decisions: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The decisions in a response, by the id in the request."""

_PATH: Final = "/v1/decisions"
_MAX_RESPONSE: Final = 1 << 20


class RequestFailedError(Exception):
    """There was no response, or none that can be read; the message says why."""


class DecisionsTransport:
    """Sends requests in one thread; another thread may interrupt it.

    Args:
        timeout: seconds to wait for a response, including the time that the server waits for a
            change.

    Attributes:
        server: host and port of the server, for the log.

    Raises:
        ConfigurationError: ``url`` is not an HTTP URL.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigurationError(
                f"{url!r} is not a valid URL: {error}; use http://HOST:PORT"
            ) from error
        if host is None or parts.scheme not in ("http", "https"):
            raise ConfigurationError(f"{url!r} is not an HTTP URL; use http://HOST:PORT")
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._kind = kinds[parts.scheme]
        self._host, self._port, self._timeout = host, port, timeout
        self._path = parts.path.rstrip("/") + _PATH
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._interrupted = False
        self.server = parts.netloc.rpartition("@")[2]

    def get(
        self, ids: Sequence[str], wait: float, tag: str | None
    ) -> tuple[Decisions | None, str | None]:
        """Get the decisions for these runs or traces, and their entity tag; or RequestFailedError.

        If ``tag`` of the last response is still current, the server waits at most ``wait`` seconds
        for a change; without a change, the result is ``None`` and the same tag.
        """
        query = urlencode([*(("id", name) for name in ids), ("wait", f"{wait:g}")])
        headers = self._headers if tag is None else {**self._headers, "If-None-Match": tag}
        try:
            response, body = self._send(f"{self._path}?{query}", headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise RequestFailedError(f"{error}" or type(error).__name__) from error
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None, tag
        if response.status != HTTPStatus.OK:
            raise RequestFailedError(f"{response.status} {response.reason}")
        return _parsed(body), response.headers["ETag"]

    def interrupt(self) -> None:
        """From another thread: end a request that waits."""
        self._interrupted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, if there is one; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(
        self, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is not None:
            try:
                return self._send_over(self._connection, target, headers)
            except ConnectionError:  # the server closed it between two requests
                self.close()
                if self._interrupted:
                    raise
        self._connection = self._kind(self._host, self._port, timeout=self._timeout)
        return self._send_over(self._connection, target, headers)

    def _send_over(
        self, connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request("GET", target, headers=dict(headers))
        response = connection.getresponse()
        body = response.read(_MAX_RESPONSE + 1)
        if len(body) > _MAX_RESPONSE:
            raise ValueError(f"the response is larger than {_MAX_RESPONSE} bytes")
        return response, body


def _parsed(body: bytes) -> Decisions:
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        decisions = json.loads(body).get("decisions")
        if isinstance(decisions, dict) and all(map(_is_decision, decisions.values())):
            return decisions
    raise RequestFailedError("the response is not from tidegauge decisions")


def _is_decision(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    texts = [value.get(name) for name in ("reason", "message")]
    return (
        isinstance(value.get("run"), str)
        and isinstance(value.get("action"), str)
        and all(text is None or isinstance(text, str) for text in texts)
    )


_ACTIONS: Final = frozenset(get_args(Intervention))
_LONGEST_PAUSE: Final = 30.0
_SHORTEST_PAUSE: Final = 0.05


class WorkerRun(contextlib.AbstractContextManager["WorkerRun"]):
    """A run that a worker measures, as its agent sees it.

    :meth:`DecisionClient.watch` makes it. It is a context manager: at the end of the block, the
    client stops asking for the run.

    Args:
        run: the run's id; ``None``: unknown, and there are never decisions.

    Attributes:
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
