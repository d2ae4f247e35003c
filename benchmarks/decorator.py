"""Target 3: a decorated tool, with its span and all metrics, against a bare span."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import tidegauge
from benchmarks.measure import Line, medians

CALLS = 500


class _Discard(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def measure() -> list[Line]:
    """Ratio of a decorated call to a bare span with eight attributes."""
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(_Discard(), max_queue_size=200_000, schedule_delay_millis=1_000)
    )
    tracer = provider.get_tracer("bare")
    pipeline = tidegauge.configure(tracer_provider=provider, serve_metrics=False)
    attributes = {f"key.{number}": number for number in range(8)}

    def plain(number: int) -> int:
        return number % 7

    decorated = tidegauge.tool(plain)

    def bare_span() -> None:
        for number in range(CALLS):
            with tracer.start_as_current_span("execute_tool plain", attributes=attributes):
                plain(number)

    def tool() -> None:
        with tidegauge.run(agent="benchmark"):
            for number in range(CALLS):
                decorated(number)

    def tool_without_spans() -> None:
        with tidegauge.run(agent="benchmark"):
            for number in range(CALLS):
                decorated(number)

    taken = medians({"bare": bare_span, "tool": tool}, rounds=21, inner=CALLS)
    pipeline.shutdown()
    tidegauge.configure(serve_metrics=False)
    unrecorded = medians({"tool": tool_without_spans}, rounds=11, inner=CALLS)
    provider.shutdown()
    return [
        Line("bare span with 8 attributes", taken["bare"] * 1e6, "µs"),
        Line("decorated tool / bare span", taken["tool"] / taken["bare"], "x", 1.5),
        Line("decorated tool, spans not recorded", unrecorded["tool"] * 1e6, "µs"),
    ]
