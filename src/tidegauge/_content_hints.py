"""What to switch on in an instrumentation so that its spans can be measured.

The names of scopes, options and environment variables are those of the instrumentations.
"""

from __future__ import annotations

from typing import Final

_OTEL: Final = (
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY and "
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
)
_OPENLLMETRY: Final = "set TRACELOOP_TRACE_CONTENT=true"
_HINTS: Final = (
    (
        "openinference.instrumentation.google_genai",
        "functions that the client calls by itself are in no span; use "
        "opentelemetry-instrumentation-google-genai, or disable automatic_function_calling",
    ),
    (
        "openinference.",
        "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS, "
        "OPENINFERENCE_HIDE_INPUT_MESSAGES and OPENINFERENCE_HIDE_OUTPUT_MESSAGES",
    ),
    ("opentelemetry.instrumentation.genai.", _OTEL),
    ("opentelemetry.instrumentation.openai_v2", _OTEL),
    ("opentelemetry.instrumentation.google_genai", _OTEL),
    ("opentelemetry.instrumentation.vertexai_v2", _OTEL),
    ("opentelemetry.util.genai", _OTEL),
    ("opentelemetry.instrumentation.", _OPENLLMETRY),
    ("traceloop.", _OPENLLMETRY),
    ("pydantic-ai", "use InstrumentationSettings(include_content=True)"),
    ("gcp.vertex.agent", "set ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true"),
    ("agent_framework", "set ENABLE_SENSITIVE_DATA=true"),
    (
        "semantic_kernel.",
        "set SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true and export "
        "log records",
    ),
    ("azure.ai.", "set AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED=true"),
    ("ai", "set recordInputs and recordOutputs to true in the telemetry settings of the AI SDK"),
    ("strands.", "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"),
)
"""By the start of the scope's name; a name without a dot at its end is the whole name."""

_OTHERS: Final = "switch on the capture of messages in this instrumentation"


def content_hint(scope: str) -> str:
    """How to switch on the contents of this instrumentation.

    >>> content_hint("pydantic-ai")
    'use InstrumentationSettings(include_content=True)'
    >>> content_hint("aider")
    'switch on the capture of messages in this instrumentation'
    """
    for name, hint in _HINTS:
        if scope == name or (name.endswith(".") and scope.startswith(name)):
            return hint
    return _OTHERS
