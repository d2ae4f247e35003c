"""The spans that tidegauge emits, the durations of what they show, and where both go."""

from tidegauge.tracer.evaluations import send_evaluation
from tidegauge.tracer.model_calls import ModelRequest, ModelResponse
from tidegauge.tracer.provider import Telemetry, open_telemetry, otlp_asked_for
from tidegauge.tracer.spans import RequestLabels, RunSpans, SpanFactory

__all__ = [
    "ModelRequest",
    "ModelResponse",
    "RequestLabels",
    "RunSpans",
    "SpanFactory",
    "Telemetry",
    "open_telemetry",
    "otlp_asked_for",
    "send_evaluation",
]
