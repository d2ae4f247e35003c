"""Target 6: one scrape with 200 label pairs and 1,000 active runs, every metric measured."""

from __future__ import annotations

import urllib.request

from benchmarks.measure import Line, medians
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.exporters.prometheus import MetricsServer
from tidegauge.exporters.reading import Reader
from tidegauge.streaming_metrics import Engine

PAIRS = 200
ACTIVE_RUNS = 1_000
STEPS = 12
MARK_MILLISECONDS = 50.0


def _engine() -> Engine:
    """Each pair with one solved run and several active ones, which loop over three actions."""
    engine = Engine(max_groups=PAIRS)
    for number in range(PAIRS + ACTIVE_RUNS):
        pair, run = number % PAIRS, f"run-{number}"
        engine.run_started(
            RunStarted(run=run, agent=f"agent-{pair}", task_group=f"task-{pair}", t_max=50)
        )
        for t in range(STEPS):
            engine.step_issued(Step(run=run, calls=(Call(f"action-{t % 3}"),), state=t % 3))
            engine.step_observed(
                Outcome(run=run, results=(CallResult(t % 3, False),), progress=t / STEPS)
            )
        engine.intervened(run, "would_stop", "loop_repeats", STEPS)
        if number < PAIRS:
            engine.run_ended(RunEnded(run=run, success=True))
    return engine


def measure() -> list[Line]:
    """Milliseconds from the request to the last byte, and of the snapshot alone."""
    engine = _engine()
    server = MetricsServer(port=0)
    server.start(Reader(engine))

    def scrape() -> bytes:
        with urllib.request.urlopen(server.url, timeout=30) as response:
            body: bytes = response.read()
            return body

    try:
        series = sum(not line.startswith(b"#") for line in scrape().splitlines())
        taken = medians({"scrape": scrape, "snapshot": engine.snapshot})
    finally:
        server.close()
    what = f"scrape of {PAIRS} label pairs, {ACTIVE_RUNS:,} active runs, {series:,} series"
    return [
        Line(what, taken["scrape"] * 1e3, "ms", MARK_MILLISECONDS),
        Line("of which the engine's snapshot", taken["snapshot"] * 1e3, "ms"),
    ]


def main() -> None:
    """Print each median beside its mark."""
    for line in measure():
        mark = "" if line.limit is None else f" (mark: under {line.limit:g} {line.unit})"
        print(f"{line.name}: {line.value:.1f} {line.unit}{mark}")


if __name__ == "__main__":
    main()
