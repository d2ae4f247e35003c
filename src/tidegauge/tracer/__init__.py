"""The spans that tidegauge emits, the durations of what they show, and where both go."""

from tidegauge.tracer.evaluations import send_evaluation
from tidegauge.tracer.failures import CallFailure, Failed
from tidegauge.tracer.message_history import MessageFormat, Prompt, Reply
from tidegauge.tracer.model_calls import ModelRequest, ModelResponse
from tidegauge.tracer.provider import Telemetry, open_telemetry, otlp_asked_for
from tidegauge.tracer.run_spans import NO_SPANS, NoSpans, RunSpans
from tidegauge.tracer.span_texts import Contents, Item, Redact
from tidegauge.tracer.spans import RequestLabels, SpanFactory

__all__ = [
    "NO_SPANS",
    "CallFailure",
    "Contents",
    "Failed",
    "Item",
    "MessageFormat",
    "ModelRequest",
    "ModelResponse",
    "NoSpans",
    "Prompt",
    "Redact",
    "Reply",
    "RequestLabels",
    "RunSpans",
    "SpanFactory",
    "Telemetry",
    "open_telemetry",
    "otlp_asked_for",
    "send_evaluation",
]
