"""Metrics of the GenAI conventions: how long calls and runs took, and what tokens they used.

Recorded where tidegauge is the instrumentation, through the OpenTelemetry metrics API, and
whether or not their spans are sampled. While no provider collects metrics, calls are not timed
at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.util.types import AttributeValue

from tidegauge._version import __version__
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import guarded
from tidegauge.tracer import conventions as names
from tidegauge.tracer.model_calls import ModelResponse
from tidegauge.tracer.provider import application_meter_provider

_MAX_SETS: Final = 1_000
_OTHER: Final = "other"

_CALL_SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
_RUN_SECONDS: Final = tuple(0.1 * 2**power for power in range(13))
_TOKENS: Final = tuple(float(4**power) for power in range(14))

_CHAT: Final = (names.OPERATION_NAME, names.PROVIDER_NAME, names.REQUEST_MODEL)
_TOOL: Final = (names.TOOL_NAME, names.TOOL_TYPE, names.AGENT_NAME)
_AGENT: Final = (names.AGENT_NAME, names.REQUEST_MODEL)


class CallMetrics:
    """The instruments, made by one provider of metrics.

    Names of tools, models and agents come from outside. So that they cannot fill the memory, at
    most 1,000 sets of attributes are distinguished; the names of later ones are ``other``.

    Args:
        provider: collects what is recorded.
    """

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("tidegauge", __version__, schema_url=names.SCHEMA_URL)

        def histogram(name: str, unit: str, help: str, bounds: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(
                name, unit, help, explicit_bucket_boundaries_advisory=bounds
            )

        self._chats = histogram(names.CHAT_DURATION, "s", "Time of a model call.", _CALL_SECONDS)
        self._first_chunks = histogram(
            names.TIME_TO_FIRST_CHUNK,
            "s",
            "Time from a model call to the first chunk of its answer, if it is streamed.",
            _CALL_SECONDS,
        )
        self._tokens = histogram(
            names.TOKEN_USAGE, "{token}", "Tokens read and written by a model call.", _TOKENS
        )
        tools = histogram(names.TOOL_DURATION, "s", "Time of a tool call.", _CALL_SECONDS)
        agents = histogram(
            names.AGENT_DURATION,
            "s",
            "Time of an agent's run, from its call to its end.",
            _RUN_SECONDS,
        )
        self._durations = {"tool": (tools, _TOOL), "agent": (agents, _AGENT)}
        self._sets: dict[tuple[AttributeValue | None, ...], dict[str, AttributeValue]] = {}

    @guarded("call_metrics", default=None)
    def chat(
        self,
        seconds: float,
        attributes: Mapping[str, AttributeValue],
        *,
        first_chunk: AttributeValue | None,
        response: ModelResponse,
        error: str | None,
        context: Context | None,
    ) -> None:
        """Record a model call.

        Args:
            attributes: attributes of its span, of which those of the metric are taken.
            first_chunk: seconds until the first chunk of its answer; ``None``, not streamed.
            error: type of the error it ended with.
            context: of its span, for exemplars.
        """
        labels = self._attributes(_CHAT, attributes, names.ERROR_TYPE, error)
        with here.critical:
            self._chats.record(seconds, labels, context)
        if isinstance(first_chunk, float):
            labels = self._attributes(_CHAT, attributes, names.ERROR_TYPE, None)
            with here.critical:
                self._first_chunks.record(first_chunk, labels, context)
        read, written = response.input_tokens, response.output_tokens
        for kind, tokens in (("input", read), ("output", written)):
            if tokens is not None:
                labels = self._attributes(_CHAT, attributes, names.TOKEN_TYPE, kind)
                with here.critical:
                    self._tokens.record(tokens, labels, context)

    @guarded("call_metrics", default=None)
    def duration(
        self,
        of: Literal["tool", "agent"],
        seconds: float,
        attributes: Mapping[str, AttributeValue],
        *,
        error: str | None,
        context: Context | None,
    ) -> None:
        """Record a tool call, or an agent's run; the other arguments are those of :meth:`chat`."""
        histogram, taken = self._durations[of]
        labels = self._attributes(taken, attributes, names.ERROR_TYPE, error)
        with here.critical:
            histogram.record(seconds, labels, context)

    def _attributes(
        self,
        taken: tuple[str, ...],
        attributes: Mapping[str, AttributeValue],
        last: str,
        value: str | None,
    ) -> dict[str, AttributeValue]:
        """The attributes in ``taken``, and the last one: made once, then cached."""
        key = (*taken, last, *[attributes.get(name) for name in taken], value)
        known = self._sets.get(key)
        if known is not None:
            return known
        found = {name: attributes[name] for name in taken if name in attributes}
        if len(self._sets) >= _MAX_SETS:
            found = {name: _kept(name, text) for name, text in found.items()}
            if last == names.ERROR_TYPE and value is not None:
                value = names.OTHER_ERROR
        if value is not None:
            found[last] = value
        if len(self._sets) < _MAX_SETS:
            self._sets[key] = found
        return found


class CallMetricsSource:
    """Whose instruments to use now: asked once a run.

    Args:
        provider: use this one; ``None``, the application's, where it has set one up by now.
        owned: whether the provider is ours, and so not one of a forked child.
    """

    def __init__(self, provider: MeterProvider | None, *, owned: bool = False) -> None:
        self._given = provider
        self._made: tuple[MeterProvider, CallMetrics] | None = None
        if owned:
            reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        # Another thread of the parent may have held a lock of the provider, whose reader thread
        # is the parent's, too: in the child nothing is recorded to it.
        self._given = self._made = None

    def current(self) -> CallMetrics | None:
        """The instruments; ``None`` while no provider collects metrics."""
        provider = self._given or application_meter_provider()
        if provider is None:
            return None
        made = self._made
        if made is None or made[0] is not provider:
            self._made = made = (provider, CallMetrics(provider))
        return made[1]


def _kept(name: str, text: AttributeValue) -> AttributeValue:
    return text if name in (names.OPERATION_NAME, names.TOOL_TYPE) else _OTHER
