"""Sends the spans of a program to the receiver of the test."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

MODEL = "gpt-4o"
MODEL_URL = os.environ["MODEL_URL"]
TASK = "find the key"


def provider() -> TracerProvider:
    """A provider that exports every fifth of a second, and is the global one."""
    found = TracerProvider(resource=Resource({"service.name": "framework"}))
    exporter = OTLPSpanExporter(endpoint=os.environ["RECEIVER_URL"] + "/v1/traces")
    found.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=200))
    trace.set_tracer_provider(found)
    return found


def search(query: str) -> str:
    """Search for something.

    Args:
        query: what for.
    """
    return f"nothing at {query}"
