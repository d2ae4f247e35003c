"""What panels count, in Prometheus: exact, across failed scrapes, restarts and ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dashboards.queries import QueryScope, total
from support.prometheus import find_binary
from tidegauge.streaming_metrics.loops import LOOP_STEPS

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("values", "at", "counted"),
    [
        ("_x10 7x20", "3m", 7),  # a series begins with 7
        ("3x10 8x20", "3m", 5),
        ("3x10 8x20", "5m", 0),
        ("100x20 stale 100x20", "6m15s", 0),  # a scrape failed a minute ago
        ("100x12 stale _x2 103x20", "4m30s", 3),  # several scrapes failed
        ("100x10 103x2 stale", "3m15s", 3),  # the process has ended
        ("100 101 0 2 4 4x20", "1m", 5),  # it was restarted: as increase sees it
    ],
)
def test_a_panel_counts_each_event_once(
    tmp_path: Path, values: str, at: str, counted: float
) -> None:
    query = total(QueryScope("$w").increase(LOOP_STEPS)).replace("$w", "1m")
    story = {
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": f'{LOOP_STEPS.name}{{agent="a"}}', "values": values}],
                "promql_expr_test": [
                    {
                        "expr": f"round({query}, 0.1)",
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": counted}],
                    }
                ],
            }
        ]
    }
    (tmp_path / "story.json").write_text(json.dumps(story))
    done = subprocess.run(
        [find_binary("promtool"), "test", "rules", tmp_path / "story.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
