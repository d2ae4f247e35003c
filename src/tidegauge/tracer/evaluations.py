"""Evaluations of runs that have ended, as the events of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry._logs import Logger, LogRecord
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.util.types import AttributeValue

from tidegauge.events import RunStarted
from tidegauge.tracer import conventions as names


def send_evaluation(
    logger: Logger,
    run: RunStarted,
    name: str,
    *,
    score: float | None = None,
    label: str | None = None,
    explanation: str | None = None,
    error: str | None = None,
    judge: str | None = None,
    rubric_version: str | None = None,
    model: str | None = None,
) -> None:
    """Send one ``gen_ai.evaluation.result``, with the context of the run's span.

    Args:
        logger: where it is sent.
        run: what was evaluated.
        name: what was evaluated of it.
        score: the score; ``None``, there is none.
        label: the score in a word.
        explanation: why, in words: contents.
        error: the kind of the error for which there is none.
        judge: who evaluated.
        rubric_version: by what.
        model: with which model.
    """
    given: dict[str, AttributeValue | None] = {
        names.EVALUATION_NAME: name,
        names.EVALUATION_SCORE: score,
        names.EVALUATION_LABEL: label,
        names.EVALUATION_EXPLANATION: explanation,
        names.ERROR_TYPE: error,
        names.RUN_ID: run.run,
        names.AGENT_NAME: run.agent or None,
        names.TASK_GROUP: run.task_group or None,
        names.JUDGE: judge,
        names.RUBRIC_VERSION: rubric_version,
        names.JUDGE_MODEL: model,
    }
    attributes = {key: _writable(value) for key, value in given.items() if value is not None}
    logger.emit(
        LogRecord(event_name=names.EVALUATION_EVENT, attributes=attributes, context=_context(run))
    )


def _context(run: RunStarted) -> Context:
    """That of the run's span, which has ended; else an empty one, and not that of the caller."""
    if run.trace_id is None or run.span_id is None:
        return Context()
    span = SpanContext(
        int(run.trace_id, 16),
        int(run.span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(NonRecordingSpan(span), Context())


def _writable(value: AttributeValue) -> AttributeValue:
    """Without lone surrogates, of which one would lose a whole batch."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
