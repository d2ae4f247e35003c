"""Every metric by name: its kind, unit, labels, and what it means to an operator.

The one source of exporters, dashboards, rules and docs: what is listed here is emitted once it
can be measured, and nothing else is. What could not be measured is absent, never 0; a counter of
agents that are known is 0 from the start, so that its rate is right from the first event on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from tidegauge.events import RunOutcome

__all__ = [
    "DECISIONS",
    "GROUP_LABELS",
    "JUDGING",
    "METRICS",
    "POLICY",
    "RECEIVER",
    "RECORDING",
    "SPAN_FAULTS",
    "WORKER",
    "Kind",
    "MetricDefinition",
    "metrics_table",
]

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

GROUP_LABELS: Final = ("agent", "task_group")
"""Labels of every metric but those of our own health."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric, as Prometheus sees it.

    Args:
        name: full name; the series of a histogram add ``_bucket``, ``_sum`` and ``_count``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        unit: of the value; of a histogram, of what it observes.
        help: what it tells an operator.
        labels: names of its labels, in their order.
        values: of the last label, where all of them are known beforehand.

    >>> LOOP_STEPS.name, LOOP_STEPS.labels
    ('tidegauge_loop_steps_total', ('agent', 'task_group', 'action'))
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = GROUP_LABELS
    values: tuple[str, ...] = ()


# Counters of runs and steps.

RUNS_STARTED: Final = MetricDefinition(
    "tidegauge_runs_started_total",
    "counter",
    "runs",
    "Runs that began, whether or not they have ended.",
)
RUNS_FINISHED: Final = MetricDefinition(
    "tidegauge_runs_finished_total",
    "counter",
    "runs",
    "Runs that ended: success or failure as reported, stopped by a policy, error when the agent "
    "raised, unknown without a report.",
    labels=(*GROUP_LABELS, "outcome"),
    values=get_args(RunOutcome),
)
STEPS: Final = MetricDefinition(
    "tidegauge_steps_total",
    "counter",
    "steps",
    "Steps issued. Several tool calls chosen in one model turn are one step.",
)
LOOP_STEPS: Final = MetricDefinition(
    "tidegauge_loop_steps_total",
    "counter",
    "steps",
    "Steps that repeated, one for one, the cycle closed just before them, by action. Over "
    "tidegauge_steps_total this is the loop ratio.",
    labels=(*GROUP_LABELS, "action"),
)
CYCLE_STEPS: Final = MetricDefinition(
    "tidegauge_cycle_steps_total",
    "counter",
    "steps",
    "Steps inside closed cycles: the agent came back to a state it had been in.",
)
LOOPS: Final = MetricDefinition(
    "tidegauge_loops_total",
    "counter",
    "loops",
    "Loops that began: a cycle repeated for the first time, a streak of one and the same result, "
    "a row of failed rounds.",
    labels=(*GROUP_LABELS, "kind"),
    values=("cycle", "result_streak", "failed_rounds"),
)
LOOP_TOKENS: Final = MetricDefinition(
    "tidegauge_loop_tokens_total",
    "counter",
    "tokens",
    "Tokens spent on loop steps, as far as steps reported theirs.",
)
LOOP_SECONDS: Final = MetricDefinition(
    "tidegauge_loop_seconds_total",
    "counter",
    "seconds",
    "Seconds spent on loop steps, from the action to its outcome.",
)
AUV_SUM: Final = MetricDefinition(
    "tidegauge_auv_sum_total",
    "counter",
    "areas",
    "Sum of what finished runs add to the area under success over turns (AUV): near 1 for a run "
    "solved at once, 0 for one not solved within its t_max turns.",
    labels=(*GROUP_LABELS, "memory"),
)
AUV_RUNS: Final = MetricDefinition(
    "tidegauge_auv_runs_total",
    "counter",
    "runs",
    "Finished runs in tidegauge_auv_sum_total: those with a t_max whose success is known.",
    labels=(*GROUP_LABELS, "memory"),
)
BEHAVIOR_ERRORS: Final = MetricDefinition(
    "tidegauge_behavior_errors_total",
    "counter",
    "steps",
    "Steps that neither made progress nor came nearer to what was needed, or went round in "
    "circles. Over tidegauge_behavior_required_steps_total of the same kind this is the "
    "exploration or exploitation error.",
    labels=(*GROUP_LABELS, "kind"),
    values=("exploration", "exploitation"),
)
BEHAVIOR_REQUIRED_STEPS: Final = MetricDefinition(
    "tidegauge_behavior_required_steps_total",
    "counter",
    "steps",
    "Steps that required looking for something new (exploration) or doing what was ready "
    "(exploitation); where either would do, a step counts as both.",
    labels=(*GROUP_LABELS, "kind"),
    values=("exploration", "exploitation"),
)
PREMATURE_HALTS: Final = MetricDefinition(
    "tidegauge_premature_halts_total",
    "counter",
    "runs",
    "Runs that ended without success while places were unvisited or tasks were ready.",
)
HORIZON_RUNS: Final = MetricDefinition(
    "tidegauge_horizon_runs_total",
    "counter",
    "runs",
    "Finished runs whose success is known and whose task says how many operations it needs, by "
    "that number, rounded up to a power of two.",
    labels=(*GROUP_LABELS, "operations"),
)
HORIZON_SOLVED_RUNS: Final = MetricDefinition(
    "tidegauge_horizon_solved_runs_total",
    "counter",
    "runs",
    "Solved ones among the runs of tidegauge_horizon_runs_total: over them, this is how the agent "
    "endures longer tasks.",
    labels=(*GROUP_LABELS, "operations"),
)
BACKTRACKS: Final = MetricDefinition(
    "tidegauge_backtracks_total",
    "counter",
    "moves",
    "Moves to a place that the run had visited before.",
)
DISPLACED_LEADS: Final = MetricDefinition(
    "tidegauge_displaced_leads_total",
    "counter",
    "leads",
    "Places that ended runs had seen and never visited, and that newer ones had displaced.",
)
INTERVENTIONS: Final = MetricDefinition(
    "tidegauge_interventions_total",
    "counter",
    "interventions",
    "Times a policy stepped in (nudge, block, stop), or would have (would_stop), by the signal "
    "that crossed its line. Stops count once a run, nudges and blocked calls each time.",
    labels=(*GROUP_LABELS, "action", "reason"),
)
SAVED_STEPS: Final = MetricDefinition(
    "tidegauge_would_have_saved_steps_total",
    "counter",
    "steps",
    "Steps taken after a policy that only observes would have stopped the run.",
)
SAVED_TOKENS: Final = MetricDefinition(
    "tidegauge_would_have_saved_tokens_total",
    "counter",
    "tokens",
    "Tokens spent on those steps, where they are reported.",
)
SAVED_SECONDS: Final = MetricDefinition(
    "tidegauge_would_have_saved_seconds_total",
    "counter",
    "seconds",
    "Time spent on those steps.",
)

# Our own health.

NOT_COMPARABLE: Final = MetricDefinition(
    "tidegauge_not_comparable_total",
    "counter",
    "steps",
    "Steps with a part (arguments, result, state) that cannot be compared with other steps: it "
    "equals nothing. Give the tool a key=.",
    labels=(*GROUP_LABELS, "action", "part"),
)
INTERNAL_ERRORS: Final = MetricDefinition(
    "tidegauge_internal_errors_total",
    "counter",
    "errors",
    "Faults of tidegauge itself, swallowed so that the agent goes on, by place. Any is a defect.",
    labels=("where",),
)
EVICTED_RUNS: Final = MetricDefinition(
    "tidegauge_evicted_runs_total",
    "counter",
    "runs",
    "Runs ended as unknown because they were idle for too long or too many were active.",
    labels=(),
)
DROPPED_EVENTS: Final = MetricDefinition(
    "tidegauge_dropped_events_total",
    "counter",
    "events",
    "Events that belonged to no active run, or to no step that waited for them.",
    labels=(),
)

# Spans of other instrumentations, wherever they are read.

DROPPED_SPANS: Final = MetricDefinition(
    "tidegauge_dropped_spans_total",
    "counter",
    "spans",
    "Model and tool calls in spans of other instrumentations that are not counted: invalid, bad "
    "ids; no_agent, no agent, chain or workflow is around them; no_start, their start was not "
    "seen, or more than 100,000 spans were open; run_ended, their run had ended; shutdown, they "
    "ended after it; too_many, their run waited for too many calls.",
    labels=("reason",),
    values=("invalid", "no_agent", "no_start", "run_ended", "shutdown", "too_many"),
)
REPAIRED_SPANS: Final = MetricDefinition(
    "tidegauge_repaired_spans_total",
    "counter",
    "spans",
    "Spans of other instrumentations that are measured despite a fault: cycle, their parents "
    "formed a cycle, which was cut; depth, more than 1,000 nested spans; no_time, the start or "
    "the end is missing, or the end is before the start, so durations are absent; cut, contents "
    "beyond the limits were cut; unreadable, an attribute was ignored; undecided, a call could "
    "not wait for its parent; unmatched, a tool call that no model chose is a separate step.",
    labels=("fault",),
    values=("cycle", "cut", "depth", "no_time", "undecided", "unmatched", "unreadable"),
)
CLOCK_SKEW: Final = MetricDefinition(
    "tidegauge_clock_skew_total",
    "counter",
    "contradictions",
    "Contradicting times in spans of two hosts, by the service.name of the called or chosen span: "
    "one of the two clocks is wrong.",
    labels=("service",),
)
SPAN_FAULTS: Final = (DROPPED_SPANS, REPAIRED_SPANS, CLOCK_SKEW)
"""Measured where spans of other instrumentations are read."""

# Health of the receiver of spans (``tidegauge serve``).

SPANS_RECEIVED: Final = MetricDefinition(
    "tidegauge_receiver_spans_total",
    "counter",
    "spans",
    "Spans that the receiver took, of agents or not.",
    labels=(),
)
SPANS_REFUSED: Final = MetricDefinition(
    "tidegauge_receiver_refused_spans_total",
    "counter",
    "spans",
    "Spans that the receiver rejected: busy, the sender was asked to try again; invalid; too_many "
    "in one request. And one for each request that was malformed, too_large, too_slow, "
    "unauthorized or of an unsupported kind; gRPC itself rejects, uncounted, what is more than "
    "1 MiB over max_request_bytes.",
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
    "Spans that arrived again, and counted once.",
    labels=(),
)
SPANS_LATE: Final = MetricDefinition(
    "tidegauge_receiver_late_spans_total",
    "counter",
    "spans",
    "Spans that arrived after the end of their run, and count nowhere.",
    labels=(),
)
SPANS_FORWARDED: Final = MetricDefinition(
    "tidegauge_receiver_forwarded_spans_total",
    "counter",
    "spans",
    "Spans passed on to the endpoint behind the receiver.",
    labels=(),
)
SPANS_NOT_FORWARDED: Final = MetricDefinition(
    "tidegauge_receiver_forward_dropped_spans_total",
    "counter",
    "spans",
    "Spans that were to be passed on and were dropped: queue_full, refused by the endpoint, "
    "unreachable for too long, shutdown.",
    labels=("reason",),
    values=("queue_full", "refused", "shutdown", "unreachable"),
)
SPANS_QUEUED: Final = MetricDefinition(
    "tidegauge_receiver_queued_spans",
    "gauge",
    "spans",
    "Spans that were taken and wait to be assembled.",
    labels=(),
)
REQUESTS_TO_FORWARD: Final = MetricDefinition(
    "tidegauge_receiver_forward_queued_requests",
    "gauge",
    "requests",
    "Requests that wait to be passed on.",
    labels=(),
)
TRACES_OPEN: Final = MetricDefinition(
    "tidegauge_receiver_open_traces",
    "gauge",
    "traces",
    "Traces whose spans are being put together.",
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
    "Messages that the gateway gave up, with the spans in them: no_topic (any more), refused by "
    "the brokers, shutdown before they were delivered, timed_out where a limit was set, "
    "too_large, unauthorized.",
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
    "Lines of step events written to the recording, where runs are recorded.",
    labels=(),
)
DROPPED_LINES: Final = MetricDefinition(
    "tidegauge_dropped_lines_total",
    "counter",
    "lines",
    "Lines that the recording has lost: the disk was too slow for the queue, a write failed, or "
    "they came after it was closed.",
    labels=("reason",),
    values=("queue_full", "write_failed", "closed"),
)
RECORDING: Final = (RECORDED_LINES, DROPPED_LINES)
"""Measured where runs are recorded."""

FAILED_JUDGEMENTS: Final = MetricDefinition(
    "tidegauge_failed_judgements_total",
    "counter",
    "judgements",
    "Competencies of ended runs that judges were to score and could not, by reason: no answer "
    "(time_out, rate_limited, model_error, refused), one of no use (invalid_answer), or a run with "
    "nothing to judge (no_steps, no_task, no_contents).",
    labels=("reason",),
)
DROPPED_JUDGEMENTS: Final = MetricDefinition(
    "tidegauge_dropped_judgements_total",
    "counter",
    "runs",
    "Ended runs that were to be judged and were not: too many waited (queue_full), too many went "
    "on at a time for their transcripts to be kept (too_many_runs), or the process ended (closed).",
    labels=("reason",),
    values=("queue_full", "too_many_runs", "closed"),
)

POLICY_LABELS: Final = (*GROUP_LABELS, "score")
POLICY_RUNS: Final = MetricDefinition(
    "tidegauge_policy_runs_total",
    "counter",
    "runs",
    "Finished runs that a calibrated line was drawn for, by how they ended. Agent or task group is "
    "empty where the line is for all of them.",
    labels=(*POLICY_LABELS, "outcome"),
    values=("success", "failure", "unknown", "stopped", "error"),
)
POLICY_CROSSED_RUNS: Final = MetricDefinition(
    "tidegauge_policy_crossed_runs_total",
    "counter",
    "runs",
    "Those of them whose score was above the line. Of the runs that ended in success, this must "
    "be at most the share alpha.",
    labels=(*POLICY_LABELS, "outcome"),
    values=("success", "failure", "unknown", "stopped", "error"),
)
POLICY_ALPHA: Final = MetricDefinition(
    "tidegauge_policy_alpha",
    "gauge",
    "1",
    "The share of good runs that a calibrated line promises to let cross it, at most.",
    labels=POLICY_LABELS,
)
POLICY_CALIBRATED: Final = MetricDefinition(
    "tidegauge_policy_calibrated_timestamp_seconds",
    "gauge",
    "seconds",
    "When a line was calibrated, in seconds since the epoch.",
    labels=POLICY_LABELS,
)
POLICY: Final = (POLICY_RUNS, POLICY_CROSSED_RUNS, POLICY_ALPHA, POLICY_CALIBRATED)
"""Measured where a policy has calibrated lines."""

# Gauges of groups.

RUNS_ACTIVE: Final = MetricDefinition(
    "tidegauge_runs_active",
    "gauge",
    "runs",
    "Runs going on now.",
)
RUNS_LOOPING: Final = MetricDefinition(
    "tidegauge_runs_looping",
    "gauge",
    "runs",
    "Active runs that are in a loop now: the last cycle has been repeated at least once.",
)
RUNS_STALE: Final = MetricDefinition(
    "tidegauge_runs_stale",
    "gauge",
    "runs",
    "Active runs that go over their own tracks: their stale score has reached the setting "
    "stale_at.",
)
RUNS_UNGUARDED: Final = MetricDefinition(
    "tidegauge_runs_unguarded",
    "gauge",
    "runs",
    "Active runs whose policy was switched off after an internal error: they are still measured, "
    "but no longer nudged, blocked or stopped.",
)
FRONTIER_PLACES: Final = MetricDefinition(
    "tidegauge_frontier_places",
    "gauge",
    "places",
    "Places that active runs have seen and not visited, added up.",
)
PENDING_TASKS: Final = MetricDefinition(
    "tidegauge_pending_tasks",
    "gauge",
    "tasks",
    "Tasks of active runs that are ready and not achieved, added up.",
)
STALE_SCORE: Final = MetricDefinition(
    "tidegauge_stale_score",
    "gauge",
    "score",
    "How much active runs go over their own tracks since their last progress: mean and max.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
AUV: Final = MetricDefinition(
    "tidegauge_auv",
    "gauge",
    "ratio",
    "Area under success over turns of this process's finished runs, 0 to 1. Over several "
    "processes divide the counters.",
    labels=(*GROUP_LABELS, "memory"),
)
AUV_LOWER: Final = MetricDefinition(
    "tidegauge_auv_lower",
    "gauge",
    "ratio",
    "AUV if no active run is ever solved.",
)
AUV_UPPER: Final = MetricDefinition(
    "tidegauge_auv_upper",
    "gauge",
    "ratio",
    "AUV if every active run is solved at its next turn.",
)
MEMORY_INDEX: Final = MetricDefinition(
    "tidegauge_memory_index",
    "gauge",
    "ratio",
    "AUV of the arm on minus AUV of the arm off in this process, -1 to 1: what memory is worth.",
)
SUCCESS_RATE: Final = MetricDefinition(
    "tidegauge_success_rate",
    "gauge",
    "ratio",
    "Solved runs over finished runs whose success is known, in this process, 0 to 1.",
)

# Gauges of single runs: the most troubled active ones, gone when the run ends.

RUN_LOOP_REPEATS: Final = MetricDefinition(
    "tidegauge_run_loop_repeats",
    "gauge",
    "repeats",
    "Complete repetitions in the loop that the run is in; 0 outside of loops. Only for the "
    "most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_STEPS: Final = MetricDefinition(
    "tidegauge_run_steps",
    "gauge",
    "steps",
    "Steps the run has taken. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_PROGRESS: Final = MetricDefinition(
    "tidegauge_run_progress",
    "gauge",
    "ratio",
    "Best progress the run has reported, 0 to 1. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)

RUN_STALE_SCORE: Final = MetricDefinition(
    "tidegauge_run_stale_score",
    "gauge",
    "score",
    "How much the run goes over its own tracks since its last progress. Only for the most "
    "troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_FRONTIER_PLACES: Final = MetricDefinition(
    "tidegauge_run_frontier_places",
    "gauge",
    "places",
    "Places the run has seen and not visited. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_PENDING_TASKS: Final = MetricDefinition(
    "tidegauge_run_pending_tasks",
    "gauge",
    "tasks",
    "Tasks of the run that are ready and not achieved. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)

RUN_PLACE: Final = MetricDefinition(
    "tidegauge_run_place",
    "gauge",
    "1",
    "Where the run stands: always 1. The place is a keyed digest, unless contents are asked for. "
    "Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run", "place"),
)

# Histograms.

SUCCESS_TURN: Final = MetricDefinition(
    "tidegauge_success_turn",
    "histogram",
    "turns",
    "Turn at which solved runs were solved. Over runs whose success is known its buckets are the "
    "curve of success over turns.",
)
FINISHED_RUN_STEPS: Final = MetricDefinition(
    "tidegauge_finished_run_steps",
    "histogram",
    "steps",
    "Steps of finished runs.",
)
STALE_SCORE_MAX: Final = MetricDefinition(
    "tidegauge_stale_score_max",
    "histogram",
    "score",
    "Highest stale score of finished runs.",
)
LEAD_AGE: Final = MetricDefinition(
    "tidegauge_lead_age_steps",
    "histogram",
    "steps",
    "Steps from a place being seen to its visit.",
)
RECALL_LAG: Final = MetricDefinition(
    "tidegauge_recall_lag_steps",
    "histogram",
    "steps",
    "Steps since an action's entities were last seen, where runs tell entities.",
)
STEP_DURATION: Final = MetricDefinition(
    "tidegauge_step_duration_seconds",
    "histogram",
    "seconds",
    "Seconds from a step's action to its outcome.",
)

JUDGED_SCORE: Final = MetricDefinition(
    "tidegauge_judged_score",
    "histogram",
    "score",
    "Scores from 1 to 4 that judges gave ended runs, by competency, where runs are judged.",
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
    "Records of decisions that were read and taken, those that came twice included.",
    labels=(),
)
DECISIONS_SKIPPED: Final = MetricDefinition(
    "tidegauge_decisions_skipped_total",
    "counter",
    "records",
    "Records of the topic of decisions that were skipped: malformed ones, those of another "
    "version, under a key that is not their run, or with a value that is invalid.",
    labels=("reason",),
    values=("malformed", "version", "key", "invalid"),
)
DECISIONS_RUNS: Final = MetricDefinition(
    "tidegauge_decisions_runs",
    "gauge",
    "runs",
    "Runs of which a decision is known, or that they ended a while ago.",
    labels=(),
)
DECISIONS_DROPPED_RUNS: Final = MetricDefinition(
    "tidegauge_decisions_dropped_runs_total",
    "counter",
    "runs",
    "Runs that were forgotten because there were too many: a stop may have been among them.",
    labels=(),
)
DECISIONS_REQUESTS: Final = MetricDefinition(
    "tidegauge_decisions_requests_total",
    "counter",
    "requests",
    "Requests for decisions, by how they were answered: unchanged, nothing new while they waited; "
    "not_ready, the topic is still being read; busy, too many connections.",
    labels=("answer",),
    values=("told", "unchanged", "not_ready", "unauthorized", "refused", "busy"),
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
    "Partitions of the topic that the worker holds.",
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
    "Messages of its partitions that the worker has not taken yet.",
    labels=(),
)
WORKER_MESSAGES: Final = MetricDefinition(
    "tidegauge_worker_messages_total",
    "counter",
    "messages",
    "Messages that the worker took.",
    labels=(),
)
WORKER_DUPLICATES: Final = MetricDefinition(
    "tidegauge_worker_duplicates_total",
    "counter",
    "records",
    "Spans and step events that came again, and counted once.",
    labels=(),
)
WORKER_LATE: Final = MetricDefinition(
    "tidegauge_worker_late_total",
    "counter",
    "records",
    "Spans and step events that came after the end of their run, and count nowhere.",
    labels=(),
)
WORKER_GIVEN_UP: Final = MetricDefinition(
    "tidegauge_worker_given_up_total",
    "counter",
    "runs",
    "Runs, and traces that were none yet, that were ended because too much was kept of them.",
    labels=(),
)
WORKER_DEAD_LETTERS: Final = MetricDefinition(
    "tidegauge_worker_dead_letters_total",
    "counter",
    "messages",
    "Messages that went to the topic of dead letters: malformed ones, those of another version, "
    "under a key that is not their run, or with content that is invalid.",
    labels=("reason",),
    values=("malformed", "version", "key", "invalid"),
)
WORKER_TOLD: Final = MetricDefinition(
    "tidegauge_worker_told_total",
    "counter",
    "records",
    "Summaries and decisions that the worker wrote.",
    labels=("kind",),
    values=("summary", "decision"),
)
WORKER_KEPT_BYTES: Final = MetricDefinition(
    "tidegauge_worker_kept_bytes",
    "gauge",
    "bytes",
    "What is kept of live runs, so that another worker can continue them.",
    labels=(),
)
WORKER_RESTORED_RUNS: Final = MetricDefinition(
    "tidegauge_worker_restored_runs_total",
    "counter",
    "runs",
    "Live runs, and traces that are none yet, that came to the worker with a partition.",
    labels=(),
)
WORKER_RESTORE_SECONDS: Final = MetricDefinition(
    "tidegauge_worker_restore_seconds",
    "gauge",
    "seconds",
    "How long it took the last time until the worker knew the past of its partitions.",
    labels=(),
)
WORKER: Final = (
    WORKER_PARTITIONS,
    WORKER_RUNS,
    WORKER_LAG,
    WORKER_MESSAGES,
    WORKER_DUPLICATES,
    WORKER_LATE,
    WORKER_GIVEN_UP,
    WORKER_DEAD_LETTERS,
    WORKER_TOLD,
    WORKER_KEPT_BYTES,
    WORKER_RESTORED_RUNS,
    WORKER_RESTORE_SECONDS,
)
"""What only ``tidegauge worker`` shows."""

METRICS: Final = (
    RUNS_STARTED,
    RUNS_FINISHED,
    STEPS,
    LOOP_STEPS,
    CYCLE_STEPS,
    LOOPS,
    LOOP_TOKENS,
    LOOP_SECONDS,
    AUV_SUM,
    AUV_RUNS,
    BEHAVIOR_ERRORS,
    BEHAVIOR_REQUIRED_STEPS,
    PREMATURE_HALTS,
    HORIZON_RUNS,
    HORIZON_SOLVED_RUNS,
    BACKTRACKS,
    DISPLACED_LEADS,
    INTERVENTIONS,
    SAVED_STEPS,
    SAVED_TOKENS,
    SAVED_SECONDS,
    RUNS_ACTIVE,
    RUNS_LOOPING,
    RUNS_STALE,
    RUNS_UNGUARDED,
    FRONTIER_PLACES,
    PENDING_TASKS,
    STALE_SCORE,
    AUV,
    AUV_LOWER,
    AUV_UPPER,
    MEMORY_INDEX,
    SUCCESS_RATE,
    RUN_LOOP_REPEATS,
    RUN_STEPS,
    RUN_PROGRESS,
    RUN_STALE_SCORE,
    RUN_FRONTIER_PLACES,
    RUN_PENDING_TASKS,
    RUN_PLACE,
    SUCCESS_TURN,
    FINISHED_RUN_STEPS,
    STALE_SCORE_MAX,
    LEAD_AGE,
    RECALL_LAG,
    STEP_DURATION,
    NOT_COMPARABLE,
    INTERNAL_ERRORS,
    EVICTED_RUNS,
    DROPPED_EVENTS,
    *POLICY,
    *JUDGING,
    *RECORDING,
    *SPAN_FAULTS,
    *RECEIVER,
    *DECISIONS,
    *WORKER,
)
"""All of them, in the order in which they are shown."""


def metrics_table() -> str:
    """The catalogue as the Markdown table of ``docs/prometheus.md``.

    >>> print(metrics_table().splitlines()[2][:52])
    | `tidegauge_runs_started_total` | counter of runs |
    """
    rows = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        if metric.values:
            labels += ": " + ", ".join(metric.values)
        rows.append(
            f"| `{metric.name}` | {metric.kind} of {metric.unit} | {labels} | {metric.help} |"
        )
    return "\n".join(rows) + "\n"
