"""Alerts on agents: loops, failing calls, falling success, interventions, outdated thresholds."""

from __future__ import annotations

from typing import Final

from dashboards.alert import (
    COUNT,
    FLEET,
    GROUP_NAME,
    RUN_BOARD,
    Alert,
    counted,
    of_worst_run,
)
from dashboards.coding_row import sessions_looping
from dashboards.queries import GROUP, QueryScope, new_events, total
from dashboards.ratios import (
    EXCEEDED_RATIO,
    LOOP_RATIO,
    SUCCESS_RATE,
    USUAL_LOOP_RATIO,
    USUAL_SUCCESS_RATE,
    recorded,
)
from tidegauge import catalog
from tidegauge.streaming_metrics.chanting_answers import CHANTING_ANSWERS
from tidegauge.streaming_metrics.failed_rounds import (
    FAILING,
    HIGHEST_FAILED_ROUNDS,
    RUN_FAILED_ROUNDS,
    RUNS_FAILING,
)
from tidegauge.streaming_metrics.interventions import INTERVENTIONS
from tidegauge.streaming_metrics.loop_cost import LOOP_TOKENS, RUN_LOOP_TOKENS
from tidegauge.streaming_metrics.loops import (
    LASTING_LOOPS,
    LASTING_LOOPS_ACTIVE,
    RUN_LOOP_REPEATS,
)
from tidegauge.streaming_metrics.noise import NEAR_STREAK
from tidegauge.streaming_metrics.repetition import REPETITION_RECENT, RUN_REPETITION_RECENT
from tidegauge.streaming_metrics.run_counts import RUN_STEPS, RUNS_ACTIVE
from tidegauge.streaming_metrics.stale_score import RUN_STALE_SCORE, RUNS_STALE

_NOW: Final = QueryScope("")
_SHORT: Final = QueryScope("2m")
"""Window for loops that no scrape saw: two scrapes at least."""

_MOMENT: Final = QueryScope("15s")
"""How long such a loop keeps its alert active: longer than Grafana's evaluation interval."""

_MINUTE: Final = QueryScope("1m")
_EVENTS: Final = QueryScope("5m")
_HOUR: Final = QueryScope("1h")
_DAY: Final = QueryScope("1d")
_RUN: Final = (*GROUP, "run")
_SCORED: Final = (*GROUP, "score")

_SHARE: Final = 0.1
"""The share of the active runs that are in trouble, from which one in trouble raises an alert."""

_ALONE_REPEATS: Final = 8
_ALONE_FAILED_ROUNDS: Final = 14
"""From here a run raises an alert whatever the others do. No recorded run that succeeds gets so
far: they have at most 7 and 10."""

_REPEATED: Final = 8
"""Of the last 16 steps: 2 of 899 recorded runs that succeed get so far, and 271 of 1,900 others."""
_NEARLY_EQUAL: Final = 5
"""No recorded run that succeeds has 3."""

_LOOP_TOKENS: Final = 1_000_000
"""A few dollars at the prices of large models: worth a look within the day."""

_MONTH_SECONDS: Final = 30 * 86_400

_CONFIDENT: Final = 0.99
"""Of a shift: by chance, one in a hundred blocks of runs alarms."""


def _lasting_loops() -> str:
    """Loops that last now, if many or for long; else those counted between the last two scrapes.

    The last part is for loops that ended before a scrape saw them. It holds for a few seconds
    after the scrape that shows a higher count, however far apart scrapes are.
    """
    now = f"{total(_NOW.series(LASTING_LOOPS_ACTIVE), GROUP)} > 0"
    repeats = total(_NOW.series(RUN_LOOP_REPEATS), GROUP, operator="max")
    counts = _NOW.series(LASTING_LOOPS)
    same = f"{total(counts, GROUP)} == {total(f'{counts} offset {_MOMENT.window}', GROUP)}"
    # Once the process is gone, nothing has changed.
    changed = f"{total(counts, GROUP)}\n    unless ({same})"
    ended = new_events(_SHORT, LASTING_LOOPS)
    return (
        f"({now}\n  unless on () ({_few(_in_trouble())}))"
        f"\nor ({now}\n  and ({repeats} >= {_ALONE_REPEATS}))"
        f"\nor ({ended}\n  and ({changed})\n  unless ({_looped(_MOMENT)})"
        f"\n  unless on () ({_few(new_events(_SHORT, LASTING_LOOPS, by=()))}))"
    )


def _near_loops() -> str:
    """What no exact comparison sees, where successful runs hardly ever come."""
    repetition = total(_NOW.series(REPETITION_RECENT, 'stat="max"'), GROUP, operator="max")
    streak = total(_NOW.series(NEAR_STREAK, 'stat="max"'), GROUP, operator="max")
    return f"({repetition} >= {_REPEATED})\nor ({streak} >= {_NEARLY_EQUAL})"


def _in_trouble() -> str:
    """How many runs are in a loop that lasts, or fail again and again."""
    both = f"{LASTING_LOOPS_ACTIVE.name}|{RUNS_FAILING.name}"
    return total(f'{{__name__=~"{both}"}}')


def _few(runs: str) -> str:
    """Whether runs are so few among all active ones that they raise no alert.

    The more runs, the more of those that will succeed are in trouble for a while. In a fleet of up
    to ten, one is enough.
    """
    return f"{runs} < {_SHARE} * {total(_NOW.series(RUNS_ACTIVE))}"


def _looped(scope: QueryScope) -> str:
    """Groups of which a scrape within the window saw a lasting loop."""
    return f"{total(f'max_over_time({scope.over_window(LASTING_LOOPS_ACTIVE)})', GROUP)} > 0"


def _failed_rounds() -> str:
    """Rounds in a row that failed in a run that fails now, if no loop of its group explains it."""
    now = total(_NOW.series(HIGHEST_FAILED_ROUNDS), GROUP, operator="max")
    return (
        f"(({now}\n    unless on () ({_few(_in_trouble())}))"
        f"\n  or {now} >= {_ALONE_FAILED_ROUNDS})\nunless ({_looped(_MINUTE)})"
    )


def _session_looping() -> str:
    """Repeats of each coding agent's session that is in a loop, and took a step a while ago.

    The hooks of an agent that was killed do not say so: its run is open until it has been idle for
    long, and loops no more.
    """
    steps = total(f"changes({_EVENTS.over_window(RUN_STEPS)}) > 0", _RUN, operator="max")
    return f"{sessions_looping(_EVENTS, *GROUP)}\nand ({steps})"


def _loop_share_unusual() -> str:
    """By how much the loop ratio is above what is usual, given at least 50 steps."""
    steps = total(QueryScope(LOOP_RATIO.window).increase(LOOP_RATIO.whole.metric), GROUP)
    return f"({recorded(LOOP_RATIO)} - {USUAL_LOOP_RATIO.name})\nand ({steps} >= 50)"


def _success_falling() -> str:
    """By how much success is below what is usual, where chance alone does not explain it.

    The drop must exceed three standard deviations of as many runs as ended, at least ten.
    """
    now, usual = recorded(SUCCESS_RATE), USUAL_SUCCESS_RATE.name
    known = SUCCESS_RATE.whole
    runs = total(QueryScope(SUCCESS_RATE.window).increase(known.metric, *known.matchers), GROUP)
    return (
        f"({usual} - {now})\n"
        f"and ({usual} - {now} > 3 * sqrt({usual} * (1 - {usual}) / {runs}))\n"
        f"and ({runs} >= 10)"
    )


def _false_stops() -> str:
    """By how much more successful runs exceed a threshold than alpha allows, beyond chance.

    The excess must be greater than two standard deviations of as many successful runs as ended
    within a day, at least twenty.
    """
    exceeded, runs = (
        total(_DAY.increase(term.metric, *term.matchers), _SCORED)
        for term in (EXCEEDED_RATIO.part, EXCEEDED_RATIO.whole)
    )
    alpha = f"max by ({', '.join(_SCORED)}) ({catalog.POLICY_ALPHA.name})"
    excess = f"{exceeded} / ({runs} >= 20) - {alpha}"
    return f"({excess})\nand ({excess} > 2 * sqrt({alpha} * (1 - {alpha}) / {runs}))"


def _policy_shift() -> str:
    """The confidence that scores have changed: of n processes, the lowest p-value counts n times.

    So an alarm by chance is as rare with many processes as with one (Bonferroni).
    """
    by, chance = ", ".join(_SCORED), catalog.POLICY_SHIFT.name
    return f"1 - min by ({by}) ({chance}) * count by ({by}) ({chance})"


ONSETS: Final = (
    Alert(
        "TidegaugeLoopOnset",
        _lasting_loops(),
        threshold=0,
        severity="warning",
        pending="0s",
        keep_firing="20s",
        summary=f"{GROUP_NAME} is looping: {counted('cycle was', 'cycles were')} repeated at "
        "least twice.",
        details=of_worst_run(
            RUN_LOOP_REPEATS,
            "Run {run} has repeated its cycle {value} times",
            above=1,
            cost=RUN_LOOP_TOKENS,
        ),
        runbook="loop-onset",
        panel=(FLEET, "Most repeats now"),
    ),
    Alert(
        "TidegaugeFailedRounds",
        _failed_rounds(),
        threshold=FAILING - 1,
        severity="warning",
        pending="0s",
        keep_firing="20s",
        summary=f"Every call of a run of {GROUP_NAME} fails: {COUNT} rounds in a row have failed.",
        details=of_worst_run(RUN_FAILED_ROUNDS, "It is run {run}, at {value}", above=FAILING - 1),
        runbook="failed-rounds",
        panel=(RUN_BOARD, "Loop onsets"),
    ),
)
"""Alerts on what runs do now. They are evaluated often."""

AGENT_ALERTS: Final = (
    Alert(
        "TidegaugeSessionLooping",
        _session_looping(),
        threshold=1,
        severity="warning",
        pending="2m",
        summary="A session of {{ $labels.agent }} has looped for two minutes: it has repeated a "
        f"cycle {COUNT} times (run {{{{ $labels.run }}}}).",
        runbook="session-looping",
        panel=(RUN_BOARD, "Loop repeats"),
    ),
    Alert(
        "TidegaugeLoopTokens",
        new_events(_HOUR, LOOP_TOKENS),
        threshold=_LOOP_TOKENS,
        severity="warning",
        pending="0s",
        summary=f"Loops of {GROUP_NAME} have cost {{{{ $value | humanize }}}} tokens within an "
        "hour.",
        details=of_worst_run(
            RUN_LOOP_TOKENS, "Run {run} is in a loop that has cost {value} tokens so far"
        ),
        runbook="loop-tokens",
        panel=(FLEET, "Tokens lost in loops"),
    ),
    Alert(
        "TidegaugeLoopShareUnusual",
        _loop_share_unusual(),
        threshold=0.1,
        severity="warning",
        pending="5m",
        keep_firing="5m",
        summary=f"{GROUP_NAME} loops more than usual: its loop ratio is "
        "{{ $value | humanizePercentage }} above the p95 of the last day.",
        runbook="loop-share-unusual",
        panel=(FLEET, "Loop ratio by agent"),
    ),
    Alert(
        "TidegaugeRunsStale",
        total(_NOW.series(RUNS_STALE), GROUP),
        threshold=0,
        severity="warning",
        pending="5m",
        summary=f"{GROUP_NAME} makes no progress: "
        f"{counted('run only revisits', 'runs only revisit')} known places and actions.",
        details=of_worst_run(RUN_STALE_SCORE, "Run {run} has the highest stale score, {value}"),
        runbook="runs-stale",
        panel=(FLEET, "Runs in trouble"),
    ),
    Alert(
        "TidegaugeNearLoop",
        _near_loops(),
        threshold=0,
        severity="info",
        pending="0s",
        keep_firing="5m",
        summary=f"{GROUP_NAME} nearly loops: a run does the same again in other words, or gets the "
        "same result but for numbers that change every time.",
        details=of_worst_run(
            RUN_REPETITION_RECENT, "Run {run} has the highest recent repetition, {value}"
        ),
        runbook="near-loop",
        panel=(FLEET, "Stagnation, repetition and recurrence of active runs"),
    ),
    Alert(
        "TidegaugeChanting",
        new_events(_EVENTS, CHANTING_ANSWERS),
        threshold=0,
        severity="warning",
        pending="0s",
        keep_firing="5m",
        summary=f"The model of {GROUP_NAME} chants: it repeated itself inside of "
        f"{counted('answer', 'answers')} within five minutes.",
        runbook="chanting",
        panel=(FLEET, "Chanting answers and duplicate calls"),
    ),
    Alert(
        "TidegaugeSuccessFalling",
        _success_falling(),
        threshold=0.1,
        severity="critical",
        pending="15m",
        keep_firing="15m",
        summary=f"{GROUP_NAME} succeeds less than usual: its success rate is "
        "{{ $value | humanizePercentage }} below that of the day before.",
        runbook="success-falling",
        panel=(FLEET, "Success rate, with its 95% interval"),
    ),
    Alert(
        "TidegaugeInterventions",
        new_events(_EVENTS, INTERVENTIONS, 'action!="would_stop"', by=(*GROUP, "action", "reason")),
        threshold=0,
        severity="info",
        pending="0s",
        keep_firing="5m",
        summary=f"A policy stepped in on {GROUP_NAME} within five minutes: {COUNT} "
        "{{ $labels.action }}{{ if ge $value 1.5 }}s{{ end }} because of {{ $labels.reason }}.",
        runbook="interventions",
        panel=(FLEET, "Interventions"),
    ),
    Alert(
        "TidegaugeFalseStopsAboveBound",
        _false_stops(),
        threshold=0,
        severity="warning",
        pending="15m",
        summary=f"Successful runs of {GROUP_NAME} exceed their threshold of "
        "{{ $labels.score }} more often than alpha allows: by "
        "{{ $value | humanizePercentage }} within a day.",
        runbook="false-stops-above-bound",
        panel=(FLEET, "Successful runs above a calibrated threshold"),
    ),
    Alert(
        "TidegaugePolicyShift",
        _policy_shift(),
        threshold=_CONFIDENT,
        severity="warning",
        pending="0s",
        summary=f"The {{{{ $labels.score }}}} of successful runs of {GROUP_NAME} is not that of "
        "the calibration any more, with a confidence of {{ $value | humanizePercentage }}: the "
        "false-stop bound may not hold.",
        runbook="policy-shift",
        panel=(FLEET, "Are the scores those of the calibration?"),
    ),
    Alert(
        "TidegaugePolicyOutdated",
        f"time() - max by ({', '.join(_SCORED)}) ({catalog.POLICY_CALIBRATED.name})",
        threshold=_MONTH_SECONDS,
        severity="info",
        pending="1h",
        summary=f"The threshold of {{{{ $labels.score }}}} for {GROUP_NAME} was calibrated "
        "{{ $value | humanizeDuration }} ago: calibrate it again from recent runs.",
        runbook="policy-outdated",
        panel=(FLEET, "Age of calibrated thresholds"),
    ),
)
"""The other alerts on agents."""
