"""The alerts over recorded runs of real agents: how many an hour, and how soon.

Twenty runs at a time take their steps on a clock of their own, on the engine of live runs. What
``/metrics`` says at each scrape becomes the history of a real Prometheus, which then evaluates the
expressions of the rules over it, as often as their groups do. What Prometheus' rules do with the
results (``for``, ``keep_firing_for``) is done here, and compared with promtool's.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dashboards.alerts import ALERTS
from support.history import knowing
from support.prometheus import Prometheus, find_binary
from support.recorded_fleet import Fleet, RecordedRun, Trouble, recorded
from tidegauge.dashboards import rule_files

pytestmark = [pytest.mark.system, pytest.mark.slow]

DOCS = Path(__file__).parents[2] / "docs" / "alerts.md"
AT_ONCE = 20
SCRAPES = 15.0
"""Seconds between two scrapes, and between two evaluations of groups without an interval."""

SHUFFLES = 10
SOON = 30.0
MEASURED = ["TidegaugeLoopOnset", "TidegaugeFailedRounds", "TidegaugeRunsStale"]
"""The alerts that these recordings can raise. Two others compare with the day before; the recorded
runs report no tokens, and no policy acts on them."""

INFORMING = {alert.name for alert in ALERTS if alert.severity == "info"}
"""Those that ask for nobody at once."""

GROUPS = yaml.safe_load(rule_files()["tidegauge-alerts.yaml"])["groups"]
NAMES = set(re.findall(r"tidegauge_\w+", " ".join(alert.value for alert in ALERTS)))
THRESHOLDS = {
    "TidegaugeLoopOnset": ("loop_repeats", (2, 8)),
    "TidegaugeFailedRounds": ("failed_rounds", (7, 14)),
}
"""From which value a run raises an alert if a tenth of the active runs are in trouble, and from
which one it does so alone."""


class Firing(NamedTuple):
    """An alert that fires: labels without its name, and since when until when."""

    labels: Mapping[str, str]
    since: float
    until: float


class Replay(NamedTuple):
    """What was replayed, and what fired."""

    hours: float
    pages: list[str]
    begin: float
    troubles: list[Trouble]
    fired: dict[str, list[Firing]]

    def delays(self, alert: str, threshold: int) -> list[float | None]:
        """Seconds from each trouble to its alert; ``None``: none fired within a minute."""
        explaining = {"TidegaugeLoopOnset", alert}  # a loop explains why its calls fail
        return [
            min(
                (
                    max(0.0, firing.since - trouble.at)
                    for name in explaining
                    for firing in self.fired[name]
                    if (firing.labels.get("agent", ""), firing.labels.get("task_group", ""))
                    == trouble.labels
                    and firing.until >= trouble.at
                    and firing.since <= trouble.at + 2 * SOON
                ),
                default=None,
            )
            for trouble in self.troubles
            if (trouble.alert, trouble.value) == (alert, threshold)
        ]

    @property
    def began(self) -> list[float]:
        """When each alert began to fire that asks for somebody."""
        return sorted(
            firing.since
            for name, fired in self.fired.items()
            if name not in INFORMING
            for firing in fired
        )


def seconds(duration: str) -> float:
    """Seconds of a duration in a rule file."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|s|m|h)", duration))


def active(
    prometheus: Prometheus, expression: str, moments: Sequence[float]
) -> dict[frozenset[tuple[str, str]], set[int]]:
    """At which of some equidistant moments an expression has a series, by the series' labels."""
    found: dict[frozenset[tuple[str, str]], set[int]] = {}
    step = moments[1] - moments[0]
    for first in range(0, len(moments), 10_000):  # as many as Prometheus answers
        part = moments[first : first + 10_000]
        answer = prometheus.get(
            "/api/v1/query_range",
            query=expression,
            start=f"{part[0]:.3f}",
            end=f"{part[-1]:.3f}",
            step=f"{step:.3f}",
        )
        for series in answer["result"]:
            at = found.setdefault(frozenset(series["metric"].items()), set())
            at.update(round((float(moment) - moments[0]) / step) for moment, _ in series["values"])
    return found


def firings(
    rule: Mapping[str, Any],
    found: Mapping[frozenset[tuple[str, str]], set[int]],
    moments: Sequence[float],
) -> list[Firing]:
    """What Prometheus makes of an alert's results: ``for`` and ``keep_firing_for``."""
    pending, keep = seconds(rule["for"]), seconds(rule.get("keep_firing_for", "0s"))
    fired: list[Firing] = []
    for labels, at in found.items():
        since: float | None = None
        firing: float | None = None
        kept: float | None = None
        for number, moment in enumerate(moments):
            if number in at:
                since, kept = moment if since is None else since, None
                if firing is None and moment - since >= pending:
                    firing = moment
                continue
            if firing is not None:
                kept = moment if kept is None else kept
                if moment - kept < keep:
                    continue
                fired.append(Firing(dict(labels), firing, moment))
            since = firing = kept = None
        if firing is not None:
            fired.append(Firing(dict(labels), firing, moments[-1]))
    return fired


def evaluated(begin: float, hours: float, interval: float) -> list[float]:
    return [begin + n * interval for n in range(round(hours * 3_600 / interval))]


def replayed(runs: Sequence[RecordedRun], folder: Path) -> Replay:
    """Replay runs, and evaluate all alerts over the time that it takes."""
    begin = time.time() // 3_600 * 3_600 - 5 * 3_600
    fleet = Fleet(runs, at_once=AT_ONCE, begin=begin, thresholds=THRESHOLDS)
    pages = [
        # The clock of the process that began to count is that of the replay.
        re.sub(r"(?m)^(tidegauge_started_timestamp_seconds) .*", rf"\1 {begin}", page)
        for page in fleet.pages(SCRAPES, NAMES)
    ]
    hours = len(pages) * SCRAPES / 3_600
    fired: dict[str, list[Firing]] = {}
    end = begin + len(pages) * SCRAPES
    with knowing(pages, folder, end=end, every=SCRAPES, gone_after=0.999) as prometheus:
        for group in GROUPS:
            interval = seconds(group.get("interval", f"{SCRAPES:.0f}s"))
            # Neither at the scrape nor at the beginning of a second.
            moments = evaluated(begin + 0.2, hours, interval)
            for rule in group["rules"]:
                found = active(prometheus, rule["expr"], moments)
                fired[rule["alert"]] = firings(rule, found, moments)
    return Replay(hours, pages, begin, fleet.troubles, fired)


@pytest.fixture(scope="module")
def runs(recorded_runs: Path) -> list[RecordedRun]:
    return list(recorded(sorted(recorded_runs.glob("*.events.jsonl"))))


@pytest.fixture(scope="module")
def successful(runs: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return replayed([r for r in runs if r.end.success], tmp_path_factory.mktemp("successful"))


@pytest.fixture(scope="module")
def failed(runs: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory) -> Replay:
    kept = [run for run in runs if run.end.success is False]
    return replayed(kept, tmp_path_factory.mktemp("failed"))


@pytest.fixture(scope="module")
def shuffled(runs: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory) -> list[Replay]:
    kept, replays = [run for run in runs if run.end.success], []
    for seed in range(1, SHUFFLES + 1):
        random.Random(seed).shuffle(kept)
        replays.append(replayed(kept, tmp_path_factory.mktemp(f"shuffled{seed}")))
    return replays


def cell(count: int, hours: float) -> str:
    return f"{count} in {hours:.1f} h"


def table(successful: Replay, shuffled: Sequence[Replay], failed: Replay) -> str:
    """What each alert did, as the Markdown table of the docs."""
    rows = [
        f"| alert | successful runs | shuffled, {SHUFFLES} orders | failed runs | runs in trouble "
        "| alert within 30 s | delay: median, longest |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    hours = sum(replay.hours for replay in shuffled)
    for alert in [*MEASURED, ""]:
        names = [alert] if alert else MEASURED
        counts = [
            sum(len(replay.fired[name]) for replay in replays for name in names)
            for replays in ([successful], shuffled, [failed])
        ]
        cells = list(map(cell, counts, (successful.hours, hours, failed.hours)))
        if alert in THRESHOLDS:
            delays = failed.delays(alert, THRESHOLDS[alert][1][0])
            soon = [delay for delay in delays if delay is not None and delay <= SOON]
            later = [delay for delay in soon if delay]  # 0: it was firing already
            cells += [str(len(delays)), str(len(soon))]
            cells.append(f"{statistics.median(later):.0f} s, {max(later):.0f} s")
        else:
            cells += ["", "", ""]
        rows.append(f"| {alert or 'together'} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def with_the_table(page: str, text: str) -> str:
    begin = page.index("| alert | successful runs |")
    return page[:begin] + text + page[page.index("\n\n", begin) + 1 :]


def test_the_table_in_the_docs(successful: Replay, shuffled: list[Replay], failed: Replay) -> None:
    page, text = DOCS.read_text(), table(successful, shuffled, failed)
    assert page == with_the_table(page, text), f"{DOCS} is out of date; its table is:\n{text}"


def test_successful_runs_raise_at_most_one_alert_in_any_hour(
    successful: Replay, shuffled: list[Replay]
) -> None:
    """In whatever order they come."""
    for replay in (successful, *shuffled):
        pairs = itertools.pairwise(replay.began)
        assert all(later - earlier > 3_600 for earlier, later in pairs), replay.fired
    assert sum(len(replay.began) for replay in shuffled) <= sum(replay.hours for replay in shuffled)


@pytest.mark.parametrize(
    ("alert", "threshold", "least", "share"),
    [
        # The others loop briefly, and alone among twenty.
        ("TidegaugeLoopOnset", 2, 400, 0.96),
        ("TidegaugeLoopOnset", 8, 100, 0.99),  # one ends before the next scrape
        ("TidegaugeFailedRounds", 7, 200, 0.97),
    ],
)
def test_failed_runs_in_trouble_have_their_alert_soon(
    failed: Replay, alert: str, threshold: int, least: int, share: float
) -> None:
    delays = failed.delays(alert, threshold)
    assert len(delays) > least
    assert sum(delay is not None and delay <= SOON for delay in delays) >= share * len(delays)


def test_no_other_alert_fires(successful: Replay, failed: Replay) -> None:
    for replay in (successful, failed):
        assert {name for name, fired in replay.fired.items() if fired} - INFORMING <= set(MEASURED)


def test_promtool_finds_the_same_alerts_firing(failed: Replay, tmp_path: Path) -> None:
    """The rules of Prometheus itself, at each scrape, instead of what is done here."""
    moments = [failed.begin + n * SCRAPES for n in range(len(failed.pages) + 1)]
    read = {"tidegauge_run_loop_repeats", *(n for n in NAMES if "tidegauge_run_" not in n)}
    series: dict[str, list[str]] = {}
    for number, page in enumerate(failed.pages, 1):
        for line in page.splitlines():
            name, value = line.rsplit(" ", 1)
            if not name.startswith("#") and name.startswith(tuple(read)):
                values = series.setdefault(name, ["_"] * number)
                if name == "tidegauge_started_timestamp_seconds":
                    value = "0"
                values.append(value)
        for values in series.values():
            if len(values) == number:  # gone since this scrape, or for longer
                values.append("_" if values[-1] in ("_", "stale") else "stale")
    expected: list[list[dict[str, Any]]] = [[] for _ in moments]
    with knowing(
        failed.pages, tmp_path, end=moments[-1], every=SCRAPES, gone_after=0.999
    ) as prometheus:
        for rule in (rule for group in GROUPS for rule in group["rules"]):
            found = active(prometheus, rule["expr"], moments)
            for firing in firings(rule, found, moments):
                labels = {**rule["labels"], **firing.labels, "alertname": rule["alert"]}
                shown = {"__name__": "ALERTS", **labels, "alertstate": "firing"}
                text = ",".join(f"{name}={json.dumps(value)}" for name, value in shown.items())
                for number, moment in enumerate(moments):
                    still = moment == moments[-1] == firing.until
                    if still or firing.since <= moment < firing.until:
                        expected[number].append({"labels": f"{{{text}}}", "value": 1})
    assert sum(map(len, expected)) > 100
    interval = f"{SCRAPES:.0f}s"
    story = {
        "rule_files": [str(tmp_path / "alerts.yaml")],
        "evaluation_interval": interval,
        "tests": [
            {
                "interval": interval,
                "input_series": [
                    {"series": name, "values": " ".join(values)} for name, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": 'ALERTS{alertstate="firing"}',
                        "eval_time": f"{number * SCRAPES:.0f}s",
                        "exp_samples": samples,
                    }
                    for number, samples in enumerate(expected)
                ],
            }
        ],
    }
    (tmp_path / "alerts.yaml").write_text(rule_files()["tidegauge-alerts.yaml"])
    (tmp_path / "story.json").write_text(json.dumps(story))  # YAML includes JSON
    done = subprocess.run(
        [find_binary("promtool"), "test", "rules", str(tmp_path / "story.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]
