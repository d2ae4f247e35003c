"""An agent without tidegauge: it looks at a few pages, then at the last one again and again.

Like an instrumentation, it writes spans that follow the GenAI conventions. Run
``python agent.py [SECONDS]`` (default: a minute). The spans go to ``OTEL_EXPORTER_OTLP_ENDPOINT``.
"""

from __future__ import annotations

import json
import sys
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Tracer

LOOKS = 5
STEP_SECONDS = 0.5


def step(tracer: Tracer, number: int) -> None:
    """One turn: the model chooses a page, and the tool that reads it finds nothing."""
    page = min(number, LOOKS)
    chat: dict[str, str | int] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 200 + 40 * number,
        "gen_ai.usage.output_tokens": 12,
    }
    with tracer.start_as_current_span("chat scripted", kind=SpanKind.CLIENT, attributes=chat):
        time.sleep(STEP_SECONDS / 2)
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read_page",
        "gen_ai.tool.call.id": f"call-{number}",
        "gen_ai.tool.call.arguments": json.dumps({"page": page}),
        "gen_ai.tool.call.result": f"nothing on page {page}",
    }
    with tracer.start_as_current_span("execute_tool read_page", attributes=tool):
        time.sleep(STEP_SECONDS / 2)


def work(tracer: Tracer, seconds: float) -> None:
    """A run of the agent."""
    agent = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "reader",
    }
    until = time.monotonic() + seconds
    number = 0
    with tracer.start_as_current_span("invoke_agent reader", attributes=agent):
        while time.monotonic() < until:
            step(tracer, number)
            number += 1


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "reader"}))
    # Spans are sent soon after they have ended, so that a loop is seen while it lasts.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=200))
    try:
        work(provider.get_tracer("reader"), float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
    finally:
        provider.shutdown()
