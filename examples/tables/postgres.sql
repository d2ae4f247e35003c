-- Tables for the files of `tidegauge export`; docs/export.md says what is in them.
CREATE TABLE IF NOT EXISTS runs (
    run text PRIMARY KEY,
    trace_id text,
    parent text,
    agent text,
    agent_name text,
    task_group text,
    memory text,
    outcome text,
    success boolean,
    finished boolean,
    steps bigint,
    refused_calls bigint,
    loop_steps bigint,
    loop_ratio double precision,
    tide_loop_steps bigint,
    tide_cycles bigint,
    tide_cycle_steps bigint,
    tide_loop_ratio double precision,
    lost_tokens double precision,
    lost_seconds double precision,
    stale_score bigint,
    stale_score_max bigint,
    frontier bigint,
    pending bigint,
    exploration_required bigint,
    exploration_errors bigint,
    exploration_error double precision,
    exploitation_required bigint,
    exploitation_errors bigint,
    exploitation_error double precision,
    failed_rounds_max bigint,
    result_streak_max bigint,
    premature_halt boolean,
    cut_short text,
    progress_auv double precision,
    recall_lag double precision,
    novelty double precision,
    stopped_step bigint,
    stopped_reason text
);
CREATE INDEX IF NOT EXISTS runs_of_agent ON runs (agent, task_group);

CREATE TABLE IF NOT EXISTS loops (
    run text NOT NULL,
    first_step bigint,
    period bigint,
    repeats bigint,
    steps bigint
);
CREATE INDEX IF NOT EXISTS loops_of_run ON loops (run);

CREATE TABLE IF NOT EXISTS steps (
    run text NOT NULL,
    t bigint,
    loop boolean,
    tide_loop boolean,
    loop_period bigint,
    loop_repeats bigint,
    "case" bigint,
    gain boolean,
    progress boolean,
    error boolean,
    exploration_error boolean,
    exploitation_error boolean,
    stale bigint,
    frontier bigint,
    pending bigint
);
CREATE INDEX IF NOT EXISTS steps_of_run ON steps (run, t);

CREATE TABLE IF NOT EXISTS decisions (
    run text NOT NULL,
    trace_id text,
    step bigint,
    action text,
    reason text,
    message text,
    time timestamptz
);
CREATE INDEX IF NOT EXISTS decisions_of_run ON decisions (run, time);
