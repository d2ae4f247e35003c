"""Spans of other instrumentations: OpenTelemetry GenAI, OpenInference, OpenLLMetry and others.

>>> from tidegauge.instrumentation.spans import TidegaugeSpanProcessor
>>> processor = TidegaugeSpanProcessor(task_group="docs")  # provider.add_span_processor(processor)
"""

from tidegauge.instrumentation.spans.processor import TidegaugeSpanProcessor

__all__ = ["TidegaugeSpanProcessor"]
