"""What a metric is to an operator: its name, kind, unit, labels and help.

The metrics of runs are defined beside their classes and gathered in
:mod:`tidegauge.streaming_metrics.registry`; here are those of receivers, workers, recordings,
judges and of tidegauge's own health. What is defined is emitted once it can be measured, and
nothing else is. What could not be measured is absent, never 0; a counter of agents that are known
is 0 from the start, so that its rate is right from the first event on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]

RUNBOOKS: Final = "https://tidegauge.example/docs/runbooks"
"""Default address of the runbooks, in alerts and on the live page: a placeholder, because only you
know where you serve them."""

GROUP_LABELS: Final = ("agent", "task_group")
"""Labels of every metric but those of our own health."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric, as Prometheus sees it.

    Args:
        name: full name; the series of a histogram add ``_bucket``, ``_sum`` and ``_count``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        unit: of the value; of a histogram, of what it observes.
        help: what it means to an operator.
        labels: names of its labels, in their order.
        values: of the last label, where all of them are known beforehand.

    >>> INTERNAL_ERRORS.name, INTERNAL_ERRORS.labels
    ('tidegauge_internal_errors_total', ('where',))
    """

    name: str
    kind: MetricKind
    unit: str
    help: str
    labels: tuple[str, ...] = GROUP_LABELS
    values: tuple[str, ...] = ()


# Our own health.

STARTED: Final = MetricDefinition(
    "tidegauge_started_timestamp_seconds",
    "gauge",
    "seconds",
    "When this process began to count from 0, in seconds since the epoch.",
    labels=(),
)
INTERNAL_ERRORS: Final = MetricDefinition(
    "tidegauge_internal_errors_total",
    "counter",
    "errors",
    "Errors inside tidegauge, caught so that the agent continues, by place. Each is a defect.",
    labels=("where",),
)
EVICTED_RUNS: Final = MetricDefinition(
    "tidegauge_evicted_runs_total",
    "counter",
    "runs",
    "Runs that were ended because they were idle for too long, or because there was no room: too "
    "many were active, or they took too much memory.",
    labels=(),
)
DROPPED_EVENTS: Final = MetricDefinition(
    "tidegauge_dropped_events_total",
    "counter",
    "events",
    "Events that belong to no active run, or to no step that waits for them.",
    labels=(),
)
NAMES_BEYOND_LIMIT: Final = MetricDefinition(
    "tidegauge_names_beyond_limit_total",
    "counter",
    "names",
    "Names counted as other because a limit was reached: action (of a loop step; "
    "max_actions), group (agent and task group; max_groups), memory (arm of an "
    "experiment).",
    labels=("kind",),
    values=("action", "group", "memory"),
)

# Spans of other instrumentations, wherever they are read.

DROPPED_SPANS: Final = MetricDefinition(
    "tidegauge_dropped_spans_total",
    "counter",
    "spans",
    "Model and tool calls of other instrumentations that are not counted: invalid "
    "ids; no_agent (no agent, chain or workflow) around them; no_start seen, or over "
    "100,000 spans open; run_ended; shutdown before their end; too_many in their run.",
    labels=("reason",),
    values=("invalid", "no_agent", "no_start", "run_ended", "shutdown", "too_many"),
)
REPAIRED_SPANS: Final = MetricDefinition(
    "tidegauge_repaired_spans_total",
    "counter",
    "spans",
    "Spans of other instrumentations measured despite a fault: a cycle of parents; "
    "depth over 1,000; no_time, or an end before the start; contents cut; an "
    "attribute unreadable; pending_parent, a call could not wait for it; unmatched, "
    "no model chose the tool call.",
    labels=("fault",),
    values=("cycle", "cut", "depth", "no_time", "pending_parent", "unmatched", "unreadable"),
)
CLOCK_SKEW: Final = MetricDefinition(
    "tidegauge_clock_skew_total",
    "counter",
    "contradictions",
    "Contradicting times in spans of two hosts, by the service.name of the called "
    "span: one clock is wrong.",
    labels=("service",),
)
UNREAD_SPANS: Final = MetricDefinition(
    "tidegauge_receiver_unread_spans_total",
    "counter",
    "spans",
    "Spans like an agent's that made no step, by instrumentation scope (at most 100): "
    "unknown_convention; no_contents, a model call without the calls it chose; "
    "no_calls, an agent without any; no_run around them; late, after the end of their "
    "run.",
    labels=("scope", "reason"),
)
DROPPED_CONTENTS: Final = MetricDefinition(
    "tidegauge_receiver_dropped_contents_total",
    "counter",
    "log records",
    "Log records with contents of model calls that were not read: late, after their "
    "span; no_span came; too_many waited.",
    labels=("reason",),
    values=("late", "no_span", "too_many"),
)
SPAN_FAULTS: Final = (DROPPED_SPANS, REPAIRED_SPANS, CLOCK_SKEW, UNREAD_SPANS, DROPPED_CONTENTS)
"""Measured where spans of other instrumentations are read."""

# Spans of runs that wait for the decision whether they are exported (``export="troubled"``).

SAMPLING_DECISIONS: Final = MetricDefinition(
    "tidegauge_sampling_decisions_total",
    "counter",
    "runs",
    "Runs by what was decided about their spans. Not exported: not_troubled. "
    "Exported, by the first reason that holds: stopped, error, failure, loop, result_streak, "
    "failed_rounds, stale, cost (more tokens than p95), sample (at random), beyond_limit (could "
    "not wait), unknown (decided before the run's end was known).",
    labels=("reason",),
    values=(
        "not_troubled",
        "stopped",
        "error",
        "failure",
        "loop",
        "result_streak",
        "failed_rounds",
        "stale",
        "cost",
        "sample",
        "beyond_limit",
        "unknown",
    ),
)
SAMPLING_DROPPED_SPANS: Final = MetricDefinition(
    "tidegauge_sampling_dropped_spans_total",
    "counter",
    "spans",
    "Spans not exported where only troubled runs are: not_troubled; export_failed; "
    "queue_full, the exporter was too slow; shutdown.",
    labels=("reason",),
    values=("not_troubled", "export_failed", "queue_full", "shutdown"),
)
SAMPLING: Final = (SAMPLING_DECISIONS, SAMPLING_DROPPED_SPANS)
"""Measured where spans wait for that decision."""

# Health of the receiver of spans (``tidegauge serve``).

SPANS_RECEIVED: Final = MetricDefinition(
    "tidegauge_receiver_spans_total",
    "counter",
    "spans",
    "Spans that the receiver accepted, of agents or not.",
    labels=(),
)
SPANS_REFUSED: Final = MetricDefinition(
    "tidegauge_receiver_refused_spans_total",
    "counter",
    "spans",
    "Spans and log records that the receiver rejected: busy, try again; invalid; "
    "too_many in a request. Each request that was malformed, too_large, too_slow, "
    "unauthorized or unsupported counts 1.",
    labels=("reason",),
    values=(
        "busy",
        "invalid",
        "malformed",
        "too_large",
        "too_many",
        "too_slow",
        "unauthorized",
        "unsupported",
    ),
)
SPANS_DUPLICATE: Final = MetricDefinition(
    "tidegauge_receiver_duplicate_spans_total",
    "counter",
    "spans",
    "Spans that arrived again; they count once.",
    labels=(),
)
SPANS_LATE: Final = MetricDefinition(
    "tidegauge_receiver_late_spans_total",
    "counter",
    "spans",
    "Spans that arrived after the end of their run; they do not count.",
    labels=(),
)
SPANS_FORWARDED: Final = MetricDefinition(
    "tidegauge_receiver_forwarded_spans_total",
    "counter",
    "spans",
    "Spans forwarded to the endpoint behind the receiver.",
    labels=(),
)
SPANS_NOT_FORWARDED: Final = MetricDefinition(
    "tidegauge_receiver_forward_dropped_spans_total",
    "counter",
    "spans",
    "Spans that were not forwarded: queue_full; refused by the endpoint; unreachable for too long; "
    "shutdown.",
    labels=("reason",),
    values=("queue_full", "refused", "shutdown", "unreachable"),
)
SPANS_QUEUED: Final = MetricDefinition(
    "tidegauge_receiver_queued_spans",
    "gauge",
    "spans",
    "Accepted spans that wait to be assembled.",
    labels=(),
)
REQUESTS_TO_FORWARD: Final = MetricDefinition(
    "tidegauge_receiver_forward_queued_requests",
    "gauge",
    "requests",
    "Requests that wait to be forwarded.",
    labels=(),
)
TRACES_OPEN: Final = MetricDefinition(
    "tidegauge_receiver_open_traces",
    "gauge",
    "traces",
    "Traces whose spans are being assembled.",
    labels=(),
)

# Gateway of a fleet (``tidegauge serve --kafka``).

GATEWAY_MESSAGES: Final = MetricDefinition(
    "tidegauge_gateway_messages_total",
    "counter",
    "messages",
    "Messages of spans that the gateway delivered to the brokers.",
    labels=(),
)
GATEWAY_FAILED_MESSAGES: Final = MetricDefinition(
    "tidegauge_gateway_failed_messages_total",
    "counter",
    "messages",
    "Messages that the gateway could not deliver: no_topic; refused by the brokers; "
    "shutdown before; timed_out, if a limit is set; too_large; unauthorized.",
    labels=("reason",),
    values=("no_topic", "refused", "shutdown", "timed_out", "too_large", "unauthorized"),
)
GATEWAY_QUEUED_MESSAGES: Final = MetricDefinition(
    "tidegauge_gateway_queued_messages",
    "gauge",
    "messages",
    "Messages that wait to be delivered.",
    labels=(),
)

RECORDED_LINES: Final = MetricDefinition(
    "tidegauge_recorded_lines_total",
    "counter",
    "lines",
    "Lines of step events written to the recording.",
    labels=(),
)
DROPPED_LINES: Final = MetricDefinition(
    "tidegauge_dropped_lines_total",
    "counter",
    "lines",
    "Lines that the recording lost: queue_full, the disk was too slow; write_failed; "
    "closed, they came too late.",
    labels=("reason",),
    values=("queue_full", "write_failed", "closed"),
)
RECORDING: Final = (RECORDED_LINES, DROPPED_LINES)

RUN_STORE_FAILURES: Final = MetricDefinition(
    "tidegauge_run_store_failures_total",
    "counter",
    "failures",
    "Times that the run store failed, or had something that cannot be read: the run waits in its "
    "process only, or continues as a new one.",
    labels=(),
)
"""Measured where runs are recorded."""

UNKNOWN_RESUMES: Final = MetricDefinition(
    "tidegauge_unknown_resumes_total",
    "counter",
    "resumes",
    "Graphs that were resumed, but whose run was not found: another process or thread resumed it "
    "too, it has ended, or the store failed. They continue in a new run.",
    labels=(),
)
"""Measured where runs are saved in a store."""

FAILED_JUDGEMENTS: Final = MetricDefinition(
    "tidegauge_failed_judgements_total",
    "counter",
    "judgements",
    "Competencies that judges could not score: no answer (time_out, rate_limited, "
    "model_error, refused), invalid_answer, or nothing to judge (no_steps, no_task, "
    "no_contents).",
    labels=("reason",),
)
DROPPED_JUDGEMENTS: Final = MetricDefinition(
    "tidegauge_dropped_judgements_total",
    "counter",
    "runs",
    "Ended runs that were not judged: queue_full; too_many_runs at a time for their "
    "transcripts; closed, the process ended.",
    labels=("reason",),
    values=("queue_full", "too_many_runs", "closed"),
)

POLICY_LABELS: Final = (*GROUP_LABELS, "score")
POLICY_RUNS: Final = MetricDefinition(
    "tidegauge_policy_runs_total",
    "counter",
    "runs",
    "Finished runs with a calibrated threshold, by outcome. agent or task_group is "
    "empty if the threshold is for all.",
    labels=(*POLICY_LABELS, "outcome"),
    values=("success", "failure", "unknown", "stopped", "error"),
)
POLICY_CROSSED_RUNS: Final = MetricDefinition(
    "tidegauge_policy_crossed_runs_total",
    "counter",
    "runs",
    "Finished runs whose score exceeded their calibrated threshold: of the successful "
    "ones, at most the share alpha should.",
    labels=(*POLICY_LABELS, "outcome"),
    values=("success", "failure", "unknown", "stopped", "error"),
)
POLICY_ALPHA: Final = MetricDefinition(
    "tidegauge_policy_alpha",
    "gauge",
    "1",
    "False-stop bound of a calibrated threshold: the greatest share of successful runs above it.",
    labels=POLICY_LABELS,
)
POLICY_CALIBRATED: Final = MetricDefinition(
    "tidegauge_policy_calibrated_timestamp_seconds",
    "gauge",
    "seconds",
    "When a threshold was calibrated, in seconds since the epoch.",
    labels=POLICY_LABELS,
)
POLICY_SHIFT: Final = MetricDefinition(
    "tidegauge_policy_shift_p_value",
    "gauge",
    "probability",
    "Whether this process's last 50 successful runs have the scores that the "
    "threshold was learned from (Kolmogorov-Smirnov). Below 0.01, the false-stop "
    "bound may not hold; 1 in 100 blocks is that low by chance.",
    labels=POLICY_LABELS,
)
POLICY: Final = (
    POLICY_RUNS,
    POLICY_CROSSED_RUNS,
    POLICY_ALPHA,
    POLICY_CALIBRATED,
    POLICY_SHIFT,
)
"""Measured where a policy has calibrated lines."""
MODEL_TOKENS: Final = MetricDefinition(
    "tidegauge_model_tokens_total",
    "counter",
    "tokens",
    "Tokens of model calls: input (read, from caches too), output (written, of its reasoning "
    "too), and of these cache_read, cache_write and reasoning. Only with budgets or breakers, "
    "and where they are reported apart.",
    labels=("kind",),
    values=("input", "output", "cache_read", "cache_write", "reasoning"),
)
MODEL_COST: Final = MetricDefinition(
    "tidegauge_model_cost_usd_total",
    "counter",
    "dollars",
    "What model calls cost. Only with budgets in $, without calls whose price is not known.",
    labels=(),
)
BREAKER_STATE: Final = MetricDefinition(
    "tidegauge_breaker_open",
    "gauge",
    "1",
    "Whether the breaker of a tool is open, so that its calls are blocked: 1, else 0.",
    labels=("tool",),
)
BREAKER_OPENED: Final = MetricDefinition(
    "tidegauge_breaker_opened_total",
    "counter",
    "times",
    "How often the breaker of a tool was opened.",
    labels=("tool",),
)
LIMITS: Final = (MODEL_TOKENS, MODEL_COST, BREAKER_STATE, BREAKER_OPENED)
"""Measured where there are budgets or breakers."""
JUDGED_SCORE: Final = MetricDefinition(
    "tidegauge_judged_score",
    "histogram",
    "score",
    "Scores of ended runs by judges, from 1 to 4, by competency.",
    labels=(*GROUP_LABELS, "competency"),
)
JUDGING: Final = (JUDGED_SCORE, FAILED_JUDGEMENTS, DROPPED_JUDGEMENTS)
"""Measured where runs are judged."""

RECEIVER: Final = (
    SPANS_RECEIVED,
    SPANS_REFUSED,
    SPANS_DUPLICATE,
    SPANS_LATE,
    SPANS_FORWARDED,
    SPANS_NOT_FORWARDED,
    SPANS_QUEUED,
    REQUESTS_TO_FORWARD,
    TRACES_OPEN,
    GATEWAY_MESSAGES,
    GATEWAY_FAILED_MESSAGES,
    GATEWAY_QUEUED_MESSAGES,
)
"""What only ``tidegauge serve`` shows."""

DECISIONS_READ: Final = MetricDefinition(
    "tidegauge_decisions_read_total",
    "counter",
    "records",
    "Valid records of decisions read, with duplicates.",
    labels=(),
)
DECISIONS_SKIPPED: Final = MetricDefinition(
    "tidegauge_decisions_skipped_total",
    "counter",
    "records",
    "Records of decisions skipped: malformed, of an unknown version, with a key that "
    "is not their run, or with an invalid field.",
    labels=("reason",),
    values=("malformed", "version", "key", "invalid"),
)
DECISIONS_RUNS: Final = MetricDefinition(
    "tidegauge_decisions_runs",
    "gauge",
    "runs",
    "Runs with a decision in the cache, with some that have ended.",
    labels=(),
)
DECISIONS_DROPPED_RUNS: Final = MetricDefinition(
    "tidegauge_decisions_dropped_runs_total",
    "counter",
    "runs",
    "Runs dropped from the full cache; one may have had a stop.",
    labels=(),
)
DECISIONS_REQUESTS: Final = MetricDefinition(
    "tidegauge_decisions_requests_total",
    "counter",
    "requests",
    "Requests for decisions by answer: sent; unchanged while the request waited; "
    "not_ready, the topic is still being read; unauthorized; refused, invalid; busy, "
    "too many connections.",
    labels=("answer",),
    values=("sent", "unchanged", "not_ready", "unauthorized", "refused", "busy"),
)
DECISIONS: Final = (
    DECISIONS_READ,
    DECISIONS_SKIPPED,
    DECISIONS_RUNS,
    DECISIONS_DROPPED_RUNS,
    DECISIONS_REQUESTS,
)
"""What only ``tidegauge decisions`` shows."""

WORKER_PARTITIONS: Final = MetricDefinition(
    "tidegauge_worker_partitions",
    "gauge",
    "partitions",
    "Partitions of the topic that are assigned to the worker.",
    labels=(),
)
WORKER_RUNS: Final = MetricDefinition(
    "tidegauge_worker_runs",
    "gauge",
    "runs",
    "Live runs that the worker holds.",
    labels=(),
)
WORKER_LAG: Final = MetricDefinition(
    "tidegauge_worker_lag_messages",
    "gauge",
    "messages",
    "Messages of its partitions that the worker has not processed yet.",
    labels=(),
)
WORKER_MESSAGES: Final = MetricDefinition(
    "tidegauge_worker_messages_total",
    "counter",
    "messages",
    "Messages that the worker processed.",
    labels=(),
)
WORKER_DUPLICATES: Final = MetricDefinition(
    "tidegauge_worker_duplicates_total",
    "counter",
    "records",
    "Spans and step events that arrived again; they count once.",
    labels=(),
)
WORKER_LATE: Final = MetricDefinition(
    "tidegauge_worker_late_total",
    "counter",
    "records",
    "Spans and step events that arrived after the end of their run; they do not count.",
    labels=(),
)
WORKER_ABORTED: Final = MetricDefinition(
    "tidegauge_worker_aborted_runs_total",
    "counter",
    "runs",
    "Runs and traces that the worker ended because their state was too large.",
    labels=(),
)
WORKER_DEAD_LETTERS: Final = MetricDefinition(
    "tidegauge_worker_dead_letters_total",
    "counter",
    "messages",
    "Messages written to the topic of dead letters: malformed, of an unknown version, "
    "with a key that is not their run, or with an invalid field.",
    labels=("reason",),
    values=("malformed", "version", "key", "invalid"),
)
WORKER_PRODUCED: Final = MetricDefinition(
    "tidegauge_worker_records_produced_total",
    "counter",
    "records",
    "Summaries and decisions that the worker wrote.",
    labels=("kind",),
    values=("summary", "decision"),
)
WORKER_STATE_BYTES: Final = MetricDefinition(
    "tidegauge_worker_state_bytes",
    "gauge",
    "bytes",
    "Size of the changelog of live runs, from which another worker can continue them.",
    labels=(),
)
WORKER_RESTORED_RUNS: Final = MetricDefinition(
    "tidegauge_worker_restored_runs_total",
    "counter",
    "runs",
    "Live runs and traces that the worker restored with a partition.",
    labels=(),
)
WORKER_RESTORE_SECONDS: Final = MetricDefinition(
    "tidegauge_worker_restore_seconds",
    "gauge",
    "seconds",
    "Duration of the last restore of partitions.",
    labels=(),
)
WORKER: Final = (
    WORKER_PARTITIONS,
    WORKER_RUNS,
    WORKER_LAG,
    WORKER_MESSAGES,
    WORKER_DUPLICATES,
    WORKER_LATE,
    WORKER_ABORTED,
    WORKER_DEAD_LETTERS,
    WORKER_PRODUCED,
    WORKER_STATE_BYTES,
    WORKER_RESTORED_RUNS,
    WORKER_RESTORE_SECONDS,
)
"""What only ``tidegauge worker`` shows."""

# Coding agents, as tidegauge watch sees them.

SESSIONS: Final = MetricDefinition(
    "tidegauge_sessions_total",
    "counter",
    "sessions",
    "Sessions of coding agents that tidegauge watch has seen.",
)
SESSIONS_ACTIVE: Final = MetricDefinition(
    "tidegauge_sessions_active",
    "gauge",
    "sessions",
    "Sessions of coding agents that are at work on a prompt now; sub-agents are not counted.",
)
SESSION_METRICS: Final = (SESSIONS, SESSIONS_ACTIVE)

OTHER_METRICS: Final = (
    STARTED,
    INTERNAL_ERRORS,
    EVICTED_RUNS,
    DROPPED_EVENTS,
    NAMES_BEYOND_LIMIT,
    *POLICY,
    *LIMITS,
    *JUDGING,
    *RECORDING,
    RUN_STORE_FAILURES,
    UNKNOWN_RESUMES,
    *SPAN_FAULTS,
    *SAMPLING,
    *RECEIVER,
    *DECISIONS,
    *WORKER,
    *SESSION_METRICS,
)
"""Those listed here, in the order in which they are shown."""
