"""``tidegauge inspect``: how the spans of traces are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from tidegauge.cli.command_settings import FILES, FLAG, PORT, SECONDS, setting, settings_options
from tidegauge.cli.server_settings import set_on_signal
from tidegauge.cli.terminal import MAX_NAME, NOT_MEASURED, print_line, visible
from tidegauge.errors import ConfigurationError

if TYPE_CHECKING:
    from tidegauge.events import Outcome, Step
    from tidegauge.foreign_spans.span import SpanData

_MAX_HELD: Final = 100_000
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class InspectSettings:
    """Settings of ``tidegauge inspect``."""

    files: tuple[str, ...] = setting(FILES, (), "")
    listen: bool = setting(FLAG, False, "Receive OTLP over HTTP on 127.0.0.1, until Ctrl-C.")
    port: int = setting(PORT, 4318, "Port to listen on.")
    quiet: float = setting(SECONDS, 2.0, "Print a trace when no span of it came for this long.")


@click.command()
@settings_options(InspectSettings)
def inspect(settings: InspectSettings) -> None:
    """Show how the spans of traces are read.

    Prints a tree for each trace: what each span is, by which convention, its run and its steps, or
    why it makes none. A FILE has OTLP trace requests: JSON, JSON lines or protobuf, as the file
    exporters of collectors write them; - is standard input.

    \b
    Examples:
      tidegauge inspect traces.json
      tidegauge inspect --listen
                        then run an agent that exports to http://127.0.0.1:4318

    Exit code 1: a file cannot be read, or the port cannot be listened on; 2: wrong usage, or a
    file that is not OTLP.
    """
    if bool(settings.files) == settings.listen:
        raise ConfigurationError("nothing to inspect, or both; use either files or --listen")
    if settings.listen:
        _listen(settings)
        return
    from tidegauge.receivers.decoding import READ_LIMITS, MalformedRequestError
    from tidegauge.receivers.inspection import decode_file
    from tidegauge.values.elements import MOST_OF_A_FILE

    spans: list[SpanData] = []
    limits = READ_LIMITS._replace(unread=True, elements=MOST_OF_A_FILE)
    for name in settings.files:
        with click.open_file(name, "rb") as file:
            data: bytes = file.read()
        try:
            found = decode_file(data, limits)
        except MalformedRequestError as error:
            raise ConfigurationError(f"{name}: {error}") from error
        if not found:
            raise ConfigurationError(f"{name}: no spans in it; use a file of OTLP trace requests")
        spans += found
    _print(spans)


def _listen(settings: InspectSettings) -> None:
    from tidegauge.net.listener import Listener
    from tidegauge.receivers.decoding import READ_LIMITS
    from tidegauge.receivers.receiver import Receiver, ReceiverSettings

    stop = set_on_signal()
    traces = _Traces(settings.quiet)
    receiver_settings = ReceiverSettings(
        grpc=None,
        http=Listener(port=settings.port),
        read=READ_LIMITS._replace(unread=True),
    )
    receiver = Receiver(receiver_settings, traces)
    print_line(f"OTLP over HTTP: {receiver.urls['http']}", err=True)
    try:
        while not stop.wait(_POLL_SECONDS):
            for spans in traces.quiet():
                _print(spans)
    finally:
        receiver.stop()
    for spans in traces.quiet(every=True):
        _print(spans)


class _Traces:
    """Holds the spans that arrive until their traces are quiet.

    Args:
        seconds: a trace without a span for this long is quiet.
        max_held: limit of the spans; more are refused until some are printed.
    """

    def __init__(self, seconds: float, max_held: int = _MAX_HELD) -> None:
        self._seconds = seconds
        self._max_held = max_held
        self._lock = threading.Lock()
        self._traces: dict[int, list[SpanData]] = {}
        self._seen: dict[int, float] = {}
        self._held = 0
        self.alive = True

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        """Take spans that arrived."""
        with self._lock:
            if not self.alive or (self._held and self._held + len(spans) > self._max_held):
                return False
            self._held += len(spans)
            for span in spans:
                self._traces.setdefault(span.trace_id, []).append(span)
                self._seen[span.trace_id] = time.monotonic()
        return True

    def quiet(self, *, every: bool = False) -> list[list[SpanData]]:
        """Take out the traces that are quiet, or every one."""
        until = time.monotonic() - self._seconds
        with self._lock:
            ended = [one for one, seen in self._seen.items() if every or seen <= until]
            found = [self._traces.pop(one) for one in ended]
            for trace_id in ended:
                del self._seen[trace_id]
            self._held -= sum(map(len, found))
        return found

    def close(self, timeout: float | None = None) -> list[str]:
        """Take no more spans."""
        self.alive = False
        return []

    def metrics(self) -> Mapping[Any, Any]:
        """It has none."""
        return {}


def _print(spans: Iterable[SpanData]) -> None:
    from tidegauge.events import Outcome
    from tidegauge.receivers.inspection import inspect_spans
    from tidegauge.streaming_metrics.digested import Digester
    from tidegauge.streaming_metrics.normalise import volatile

    digester = Digester(volatile())

    def noise(event: Step | Outcome) -> Sequence[str]:
        if isinstance(event, Outcome):
            return [kind for one in digester.outcome(event).noise for kind in one]
        return digester.step(event).noise

    for trace in inspect_spans(spans, noise):
        counted = f"{len(trace.spans)} spans, {len(trace.runs)} runs"
        print_line(f"trace {trace.trace_id:032x}: {counted}", wrap=False)
        for run in trace.runs:
            inside = "" if run.parent is None else f", inside run {run.parent}"
            agent = _name(run.agent)
            print_line(f"  run {run.number}: agent {agent}, {run.steps} steps{inside}", wrap=False)
        for one in trace.spans:
            read = one.convention or "no convention"
            notes = "; ".join(one.notes)
            indent = "  " * (one.depth + 1)
            name, scope = _name(one.span.name), _name(one.span.scope)
            print_line(f"{indent}{name} [{scope}, {read}]: {notes}", wrap=False)
        print_line()


def _name(text: str) -> str:
    return visible(text, MAX_NAME) or NOT_MEASURED
