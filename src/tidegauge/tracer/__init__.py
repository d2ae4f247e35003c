"""The spans that tidegauge emits."""

from tidegauge.tracer.provider import Telemetry, open_telemetry
from tidegauge.tracer.spans import RunSpans, SpanFactory

__all__ = ["RunSpans", "SpanFactory", "Telemetry", "open_telemetry"]
