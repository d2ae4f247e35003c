"""What a fleet's workers write, through Kafka Connect and ``tidegauge export``, into a database."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from support.fleet import LATENESS, create_topics, deal, gateway, packed, records, working
from support.kafka import connecting, running_kafka
from support.postgres import postgres, program
from support.processes import PATIENCE
from support.prometheus import free_port
from support.recorded_otlp import RecordedRun, requests
from tidegauge.cli.main import cli

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "examples"
CONNECT = EXAMPLES / "fleet" / "connect"
TABLES = EXAMPLES / "tables"
SOME = 40
POLICY = "--policy=loop_repeats=2"


def wait_for_lines(path: Path, count: int) -> None:
    """Wait until a file has so many lines."""
    until = time.monotonic() + 4 * PATIENCE
    while not path.exists() or len(path.read_bytes().splitlines()) < count:
        assert time.monotonic() < until, path
        time.sleep(0.2)


def test_from_the_topics_into_postgres(
    otlp_runs: list[RecordedRun], replayed_runs: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    some = sorted(otlp_runs, key=lambda run: -len(replayed_runs[run.id]["loops"]))[:SOME]
    with running_kafka(tmp_path / "kafka") as kafka:
        topic = create_topics(kafka, "agents")
        with (
            gateway(tmp_path, kafka, topic) as server,
            working(tmp_path, kafka, topic, LATENESS, POLICY),
        ):
            deal([server], packed(requests(some)))
            summaries = records(kafka, f"{topic}.summaries", SOME)
            decisions = records(kafka, f"{topic}.decisions", 1)
        changes = {
            "kafka:9092": kafka.address,
            "/opt/kafka/libs": str(tmp_path),
            "/var/lib/tidegauge": str(tmp_path),
            ":8083": f":{free_port()}",
        }
        names = ("summaries", "decisions")
        with connecting(
            tmp_path,
            CONNECT / "standalone.properties",
            *(CONNECT / f"{name}.properties" for name in names),
            changes=changes,
        ):
            wait_for_lines(tmp_path / "summaries.jsonl", sum(map(len, summaries.values())))
            wait_for_lines(tmp_path / "decisions.jsonl", sum(map(len, decisions.values())))
    files = [str(tmp_path / f"{name}.jsonl") for name in names]
    flags = ["--records", "--format=csv", "--strict", "-o", str(tmp_path / "tables")]
    ran = CliRunner().invoke(cli, ["export", *files, *flags])
    assert ran.exit_code == 0, ran.output

    with postgres() as server:
        url = server.create()
        for script in ("postgres.sql", "postgres-load.sql", "postgres-load.sql"):
            command = [program("psql"), "--set=ON_ERROR_STOP=1", f"--file={TABLES / script}", url]
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        with psycopg.connect(url) as connection:
            stored = {
                run: rest
                for run, *rest in connection.execute(
                    "SELECT run, agent, steps, loop_steps, stopped_step, stopped_reason FROM runs"
                )
            }
            loops = connection.execute("SELECT run, first_step, period, repeats FROM loops")
            found = set(loops.fetchall())
            counted = connection.execute("SELECT run, step, action, reason, time FROM decisions")
            decided = counted.fetchall()
    assert len(stored) == SOME
    for run, [summary, *_] in summaries.items():
        stopped = summary["stopped"] or {"step": None, "reason": None}
        wanted = [summary["agent"], summary["steps"], summary["loop_steps"], *stopped.values()]
        assert stored[run] == wanted
    assert found == {
        (run, loop["first_step"], loop["period"], loop["repeats"])
        for run, [summary, *_] in summaries.items()
        for loop in summary["loops"]
    }
    assert len(found) > SOME / 2
    assert sorted(
        (run, step, action, reason, f"{at.timestamp():.3f}")
        for run, step, action, reason, at in decided
    ) == sorted(
        (one["run"], one["step"], one["action"], one["reason"], f"{one['time']:.3f}")
        for of_run in decisions.values()
        for one in of_run
    )
    assert {one[2] for one in decided} >= {"stop"}
