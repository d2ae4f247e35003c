-- Tables for the files of `tidegauge export`; docs/export.md says what is in them. A run that is loaded
-- again replaces itself: query runs FINAL.
CREATE TABLE IF NOT EXISTS runs (
    run String,
    trace_id Nullable(String),
    parent Nullable(String),
    agent LowCardinality(Nullable(String)),
    agent_name LowCardinality(Nullable(String)),
    task_group LowCardinality(Nullable(String)),
    memory LowCardinality(Nullable(String)),
    outcome LowCardinality(Nullable(String)),
    success Nullable(Bool),
    finished Nullable(Bool),
    steps Nullable(Int64),
    refused_calls Nullable(Int64),
    loop_steps Nullable(Int64),
    loop_ratio Nullable(Float64),
    tide_loop_steps Nullable(Int64),
    tide_cycles Nullable(Int64),
    tide_cycle_steps Nullable(Int64),
    tide_loop_ratio Nullable(Float64),
    lost_tokens Nullable(Float64),
    lost_seconds Nullable(Float64),
    stale_score Nullable(Int64),
    stale_score_max Nullable(Int64),
    frontier Nullable(Int64),
    pending Nullable(Int64),
    exploration_required Nullable(Int64),
    exploration_errors Nullable(Int64),
    exploration_error Nullable(Float64),
    exploitation_required Nullable(Int64),
    exploitation_errors Nullable(Int64),
    exploitation_error Nullable(Float64),
    failed_rounds_max Nullable(Int64),
    result_streak_max Nullable(Int64),
    premature_halt Nullable(Bool),
    cut_short LowCardinality(Nullable(String)),
    progress_auv Nullable(Float64),
    recall_lag Nullable(Float64),
    novelty Nullable(Float64),
    stopped_step Nullable(Int64),
    stopped_reason LowCardinality(Nullable(String))
) ENGINE = ReplacingMergeTree ORDER BY run;

CREATE TABLE IF NOT EXISTS loops (
    run String,
    first_step Int64,
    period Int64,
    repeats Nullable(Int64),
    steps Nullable(Int64)
) ENGINE = ReplacingMergeTree ORDER BY (run, first_step, period);

CREATE TABLE IF NOT EXISTS steps (
    run String,
    t Int64,
    loop Bool,
    tide_loop Bool,
    loop_period Nullable(Int64),
    loop_repeats Nullable(Int64),
    case Nullable(Int64),
    gain Nullable(Bool),
    progress Nullable(Bool),
    error Nullable(Bool),
    exploration_error Nullable(Bool),
    exploitation_error Nullable(Bool),
    stale Nullable(Int64),
    frontier Nullable(Int64),
    pending Nullable(Int64)
) ENGINE = ReplacingMergeTree ORDER BY (run, t);

CREATE TABLE IF NOT EXISTS decisions (
    run String,
    trace_id Nullable(String),
    step Nullable(Int64),
    action LowCardinality(String),
    reason LowCardinality(Nullable(String)),
    message Nullable(String),
    time Nullable(DateTime64(6, 'UTC'))
) ENGINE = ReplacingMergeTree ORDER BY (run, time, action) SETTINGS allow_nullable_key = 1;
