"""``examples/fleet/capacity.py``: the table of the docs is its output, and grows as it should."""

from __future__ import annotations

import doctest
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "fleet" / "capacity.py"


@pytest.fixture(scope="module")
def capacity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capacity", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def printed(*options: str) -> str:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def row(table: str, title: str) -> list[str]:
    [found] = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
    return found.strip("| ").split(" | ")[1:]


def test_the_table_of_the_docs_is_what_it_prints() -> None:
    assert printed() in (ROOT / "docs" / "fleets.md").read_text(), (
        "write the table anew: python examples/fleet/capacity.py"
    )


def test_fleets_that_ten_million_runs_are_split_into_are_those_of_the_docs() -> None:
    text = " ".join((ROOT / "docs" / "fleets.md").read_text().split())
    assert "20 fleets of 500,000 runs, each with its own Kafka (128 partitions), 21 workers" in text
    part, whole = printed("--runs", "500000"), printed("--runs", "10000000")
    assert (row(part, "workers"), row(part, "partitions of the topic")) == (["21"], ["128"])
    assert f"pauses {row(whole, 'workers')[0]} workers" in text
    assert f"takes {row(whole, 'taken by all brokers a second')[0]} a second" in text


def test_options_are_those_of_the_docs() -> None:
    text = "--runs 5000 --steps-per-minute 12 --steps-per-run 200"
    assert f"python examples/fleet/capacity.py {text}" in (ROOT / "docs/fleets.md").read_text()
    table = printed(*text.split())
    assert row(table, "runs at a time") == ["5,000"]
    assert row(table, "steps a second") == ["1,000"]
    assert row(table, "spans a second") == ["2,005"]  # 5 runs a second end


@pytest.mark.parametrize("runs", [10, 1_000, 100_000, 10_000_000])
def test_processes_run_at_no_more_than_the_load_they_are_meant_for(
    runs: int, capacity: ModuleType
) -> None:
    load = capacity.Load(runs)
    gateways, workers = capacity.gateways(load), capacity.workers(load)
    assert min(gateways, workers) >= 2
    assert load.spans / gateways <= capacity.GATEWAY_SPANS * capacity.LOAD
    assert load.spans / workers <= capacity.WORKER_SPANS * capacity.LOAD
    partitions = capacity.partitions(load)
    assert partitions & (partitions - 1) == 0
    assert partitions >= workers
    assert runs / partitions <= capacity.MAX_RUNS * capacity.LOAD
    assert capacity.cores(load) == gateways + workers
    assert capacity.replicas(load) == 3 * (4 * partitions + 1)  # dead letters have one


def test_series_are_of_groups_and_workers_and_not_of_runs(capacity: ModuleType) -> None:
    few, many = capacity.Load(1_000), capacity.Load(2_000)
    assert capacity.workers(few) == capacity.workers(many)
    assert capacity.series(few) == capacity.series(many)
    wider = capacity.series(capacity.Load(1_000, groups=20))
    assert 1.6 < wider / capacity.series(few) < 2


def test_series_of_an_engine_are_those_that_it_serves(capacity: ModuleType) -> None:
    """One pair more, one looping action more, one run more: what the page says of them."""
    count = capacity.series_of_an_engine
    of_a_group = count(3, 5, 0) - count(2, 5, 0)
    assert 110 <= of_a_group <= 130, "docs/fleets.md says how many"
    assert count(2, 6, 0) - count(2, 5, 0) == 2  # an action of each
    assert 22_000 < count(200, 5, 20) < 26_000, "docs/fleets.md says how many"
    assert count(210, 5, 20) - count(200, 5, 20) <= of_a_group  # the rest is other


def test_its_examples_hold(capacity: ModuleType) -> None:
    done = doctest.testmod(capacity)
    assert done.attempted
    assert not done.failed


def test_amounts_are_said_shortly(capacity: ModuleType) -> None:
    reported = [capacity.size(amount) for amount in (0.4, 999, 1_000, 99_400, 2.5e9, 3.6e12)]
    assert reported == ["0.4 B", "999 B", "1 kB", "99 kB", "2.5 GB", "3.6 TB"]
