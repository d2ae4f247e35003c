"""``tidegauge export``: tables have what ``replay`` says of runs, and the DDL has their columns."""

from __future__ import annotations

import csv
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet
import pytest

from support.processes import import_error
from support.wire_runs import WireRun
from tidegauge.cli.export import DECISIONS, LOOPS, RUNS, STEPS, Table

DDL = Path(__file__).parents[3] / "examples" / "tables"
FLAT = {
    "lost_tokens": ("lost_in_loops", "tokens"),
    "lost_seconds": ("lost_in_loops", "seconds"),
    "exploration_required": ("required", "exploration"),
    "exploration_errors": ("errors", "exploration"),
    "exploitation_required": ("required", "exploitation"),
    "exploitation_errors": ("errors", "exploitation"),
}


def rows(name: str) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(Path("tables") / name).to_pylist()


@pytest.fixture
def recorded(write) -> str:
    return write(*(event for number in range(12) for event in WireRun(number).events()))


def test_runs_loops_and_steps_of_recordings(tidegauge, recorded) -> None:
    ran = tidegauge("export", recorded, "-o", "tables", "--policy", "steps=7")
    document = tidegauge(
        "replay", "--json", "--steps-out", "s.jsonl", recorded, "--policy", "steps=7"
    ).document
    runs = rows("runs.parquet")
    assert ran.out.splitlines()[0] == f"tables/runs.parquet: {len(runs)} rows"
    assert [row["run"] for row in runs] == [entry["run"] for entry in document["runs"]]
    stopped = 0
    for row, entry in zip(runs, document["runs"], strict=True):
        same = row.keys() & entry.keys()
        assert {name: row[name] for name in same} == {name: entry[name] for name in same}
        assert len(same) > 20
        assert {name: row[name] for name in FLAT} == {
            name: entry[outer][inner] for name, (outer, inner) in FLAT.items()
        }
        stop = entry["stopped"] or {"step": None, "reason": None}
        assert (row["stopped_step"], row["stopped_reason"]) == tuple(stop.values())
        stopped += entry["stopped"] is not None
    assert stopped
    assert {row["outcome"] for row in runs} == {"unknown", "stopped"}
    loops = [{"run": one["run"], **loop} for one in document["runs"] for loop in one["loops"]]
    assert rows("loops.parquet") == loops != []
    measured = [orjson.loads(line) for line in Path("s.jsonl").read_bytes().splitlines()]
    assert rows("steps.parquet") == measured
    assert any(step["loop"] for step in measured)


def test_the_newest_summary_of_each_run_and_every_decision_once(tidegauge, write) -> None:
    def summary(run: str, steps: int, **fields: Any) -> dict[str, Any]:
        return {"type": "summary", "version": 1, "run": run, "steps": steps, **fields}

    loop = {"first_step": 3, "period": 2, "repeats": 1, "steps": 2}
    stop = {
        "type": "decision", "version": 1, "run": "a", "trace_id": None, "step": 4,
        "action": "stop", "reason": "loop_repeats", "message": "again", "time": 1_790_000_000.25,
    }  # fmt: skip
    file = write(
        summary("a", 1, loops=[loop, loop]),
        summary("b", 2),
        summary("a", 9, loops=[loop], stopped={"step": 4, "reason": "loop_repeats"}),
        stop,
        stop,
        {**stop, "action": "ended", "step": 9},
    )
    assert tidegauge("export", "--records", "--strict", file, "-o", "tables").code == 0
    found = [(row["run"], row["steps"], row["stopped_step"]) for row in rows("runs.parquet")]
    assert found == [("b", 2, None), ("a", 9, 4)]
    assert rows("loops.parquet") == [{"run": "a", **loop}]
    decisions = rows("decisions.parquet")
    assert [row["action"] for row in decisions] == ["stop", "ended"]
    assert decisions[0]["time"] == datetime.fromtimestamp(1_790_000_000.25, UTC)


def test_csv_distinguishes_null_from_empty(tidegauge, write) -> None:
    """As Postgres reads it: only what is not in quotes may be null."""
    write({"type": "summary", "version": 1, "run": 'a, "b"', "agent": "", "success": True})
    assert tidegauge("export", "--records", "runs.jsonl", "-o", "t", "--format=csv").code == 0
    text = Path("t/runs.csv").read_text()
    [row] = csv.DictReader(text.splitlines())
    assert (row["run"], row["success"], row["steps"]) == ('a, "b"', "true", "")
    assert text.splitlines()[1].startswith('"a, ""b""",,,"",,')


FORMULAS = ['=HYPERLINK("http://evil.example")', "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]


@pytest.mark.parametrize("text", [*FORMULAS, "\uff1d1+1", "'quoted", "''=1"])
def test_csv_has_no_cell_that_a_spreadsheet_runs(tidegauge, write, text: str) -> None:
    write(
        {
            **{"type": "summary", "version": 1, "run": text, "agent": text, "task_group": text},
            **{"memory": text, "parent": text, "cut_short": text, "stopped": {"reason": text}},
            **{"novelty": -0.5, "loops": [{"first_step": 1}]},
        },
        {"type": "decision", "version": 1, "run": text, "message": text, "action": "stop"},
    )
    assert tidegauge("export", "--records", "runs.jsonl", "-o", "t", "--format=csv").code == 0
    assert tidegauge("export", "--records", "runs.jsonl", "-o", "tables").code == 0
    for name in ("runs", "loops", "decisions"):
        with Path(f"t/{name}.csv").open(newline="") as file:
            [cells] = csv.DictReader(file)
        [exact] = rows(f"{name}.parquet")
        for column, cell in cells.items():
            if isinstance(exact[column], str):
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"))
                assert cell.removeprefix("'") == exact[column]
                assert (cell == exact[column]) == (exact[column] == "stop")
    with Path("t/runs.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["novelty"] == "-0.5"  # a number is no formula


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "malformed"),
        (b"[]", "malformed"),
        ({"type": "summary", "version": 2, "run": "a"}, "version"),
        ({"type": "summary", "version": 1}, "run"),
        ({"type": "step", "version": 1, "run": "a"}, "neither a summary nor a decision"),
        ({"type": "summary", "version": 1, "run": "a", "steps": "many"}, "steps"),
        ({"type": "summary", "version": 1, "run": "a", "steps": True}, "steps"),
        ({"type": "summary", "version": 1, "run": "a", "steps": 2**63}, "steps"),
        ({"type": "summary", "version": 1, "run": "a", "loops": [1]}, "loops"),
        ({"type": "decision", "version": 1, "run": "a", "time": "now"}, "time"),
        ({"type": "decision", "version": 1, "run": "a", "time": 1e300}, "time"),
    ],
)
def test_a_faulty_record_is_reported_and_left_out(tidegauge, write, line, reason) -> None:
    file = write(line, {"type": "summary", "version": 1, "run": "b"})
    ran = tidegauge("export", "--records", file, "-o", "tables")
    assert ran.code == 0
    [fault] = ran.faults
    assert fault.startswith("runs.jsonl:1: ")
    assert reason in fault
    assert [row["run"] for row in rows("runs.parquet")] == ["b"]
    assert tidegauge("export", "--records", "--strict", file, "-o", "tables").code == 2


def test_files_that_cannot_be_read_or_written(tidegauge, recorded) -> None:
    ran = tidegauge("export", recorded, "missing.jsonl", "-o", "tables")
    assert (ran.code, ran.faults) == (1, ["missing.jsonl: No such file or directory"])
    assert len(rows("runs.parquet")) == 12
    assert stat.S_IMODE(Path("tables/runs.parquet").stat().st_mode) == 0o600
    Path("file").touch()
    ran = tidegauge("export", recorded, "-o", "file")
    assert (ran.code, len(ran.faults)) == (2, 1)
    ran = tidegauge("export", "tables/runs.parquet", "-o", "tables")
    assert (ran.code, ran.faults) == (
        2,
        ["tidegauge: --out: tables/runs.parquet is also an input; choose another file"],
    )


def test_more_rows_than_are_held(tidegauge, write, walk) -> None:
    """Row groups follow one another in a file."""
    write(*walk("r", "abc" * 7_000))
    assert tidegauge("export", "runs.jsonl", "-o", "tables").code == 0
    steps = rows("steps.parquet")
    assert [row["t"] for row in steps] == list(range(21_000))
    assert pyarrow.parquet.ParquetFile("tables/steps.parquet").num_row_groups == 3


def test_without_pyarrow_it_says_what_to_install() -> None:
    code = (
        "from tidegauge.cli.main import cli; cli(['export', '-', '-o', '.'], standalone_mode=False)"
    )
    assert import_error("pyarrow", code).endswith("pip install '.[export]' in a clone")


@pytest.mark.parametrize("name", ["postgres.sql", "clickhouse.sql"])
@pytest.mark.parametrize("table", [RUNS, LOOPS, STEPS, DECISIONS], ids=lambda table: table.name)
def test_the_ddl_has_the_columns(name: str, table: Table) -> None:
    pattern = rf"CREATE TABLE IF NOT EXISTS {table.name} \((.*?)^\)"
    [body] = re.findall(pattern, (DDL / name).read_text(), re.DOTALL | re.MULTILINE)
    columns = re.findall(r'^ {4}"?(\w+)"? ', body, re.MULTILINE)
    assert columns == [column.name for column in table.columns]
