"""``tidegauge demo`` as people run it: a process of its own, real agents, real numbers."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import pytest

from support.servers import SharedPrometheus

TIDEGAUGE = [sys.executable, "-c", "from tidegauge.cli.main import main; main()"]
DEMO = [*TIDEGAUGE, "demo", "--fast", "--port", "0"]
LIMIT = 60


class DemoOutput(NamedTuple):
    out: str
    document: dict[str, Any]
    record: Path

    def row(self, agent: str, task: str) -> dict[str, Any]:
        runs = self.document["runs"]
        return next(run for run in runs if (run["agent"], run["task"]) == (agent, task))


def run_demo(folder: Path, *arguments: str) -> DemoOutput:
    """The demo from its start to its end, without a terminal."""
    document, record = folder / "demo.json", folder / "demo.jsonl"
    written = ["--json", str(document), "--record", str(record)]
    ended = subprocess.run(
        [*DEMO, *written, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return DemoOutput(ended.stdout, orjson.loads(document.read_bytes()), record)


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory: pytest.TempPathFactory) -> DemoOutput:
    return run_demo(tmp_path_factory.mktemp("demo"), "--seed", "1")


@contextlib.contextmanager
def running(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo at work, and the address of its metrics."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            page, metrics = (process.stdout.readline().split() for _ in range(2))
            assert (page[:2], metrics[0]) == (["live", "page:"], "metrics:")
            assert f"{page[2]}metrics" == metrics[1]
            yield process, metrics[1]
        finally:
            process.kill()


def scrape(url: str) -> dict[str, float]:
    """Samples of ``/metrics`` by name, summed over their labels."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples: dict[str, float] = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            samples[name] = samples.get(name, 0.0) + float(value)
    return samples


def replayed(record: Path, *options: str) -> dict[str, Any]:
    command = [*TIDEGAUGE, "replay", "--json", str(record), *options]
    answer = subprocess.run(command, capture_output=True, timeout=LIMIT, check=True)
    return orjson.loads(answer.stdout)


def loop_ratio(runs: list[dict[str, Any]]) -> float:
    return sum(run["loop_steps"] for run in runs) / sum(run["steps"] for run in runs)


class TestWhatItPrints:
    def test_each_agents_way(self, demo_output: DemoOutput) -> None:
        lines = demo_output.out.splitlines()
        assert re.fullmatch(r"live page: http://127\.0\.0\.1:\d+/", lines[0])
        assert re.fullmatch(r"metrics: http://127\.0\.0\.1:\d+/metrics", lines[1])
        for line in (
            "solver / merrow-datum: solved after 3 steps",
            "solver / skerrin-checked: solved after 4 steps",
            "solver / fenholm-founded: solved after 5 steps",
            "looper / skerrin-checked: loops since step 4: 3 steps, repeated once",
            "looper / skerrin-checked: stopped at step 6: 3 steps, repeated once, since step 4",
            "looper-twin / skerrin-checked: loops since step 4: 3 steps, repeated once",
            "looper-twin / skerrin-checked: would have been stopped at step 9 by loop evidence",
            "looper-twin / skerrin-checked: failed after 24 steps",
            "retrier / skerrin-checked: would have been stopped at step 4 by stuck streak",
            "retrier / skerrin-checked: solved after 12 steps",
            "wanderer / skerrin-checked: failed after 24 steps",
        ):
            assert lines.count(line) == 1, line
        alarm = next(line for line in lines if "a false alarm" in line)
        assert alarm.startswith("retrier would have been stopped at step 4 by stuck streak")
        own = [
            f'Rule("{signal}", 9, agent="retrier")'
            for signal in ("stuck_streak", "failed_rounds", "result_streak")
        ]
        assert f"  tidegauge.configure(rules=[*DEFAULT_RULES, {', '.join(own)}])" in lines
        next_lines = lines[lines.index("Next steps") + 1 :]
        assert len(next_lines) == 3

    def test_the_advised_thresholds_stop_the_retrier_no_more(self, demo_output: DemoOutput) -> None:
        def success(threshold: int) -> bool | None:
            signals = ("stuck_streak", "failed_rounds", "result_streak")
            policy = ",".join(f"{signal}={threshold}" for signal in signals)
            runs = replayed(demo_output.record, "--policy", policy)["runs"]
            return next(run["success"] for run in runs if run["agent"] == "retrier")

        assert success(8) is False
        assert success(9) is True

    @pytest.mark.parametrize(
        ("agent", "row", "below"),
        [
            # steps, loop, result streak, failed rounds, novelty
            ("looper", "7 3 steps, 1 0 0.50", "repeated"),
            ("looper-twin", "24 3 steps, 1 0 0.00", "repeated"),
            ("retrier", "12 8 8 0.42", "wanderer"),
        ],
    )
    def test_its_table_has_what_the_engine_measured(
        self, demo_output: DemoOutput, agent: str, row: str, below: str
    ) -> None:
        rows = [" ".join(line.split()) for line in demo_output.out.splitlines()]
        run = demo_output.row(agent, "skerrin-checked")
        spent = f"{run['tokens']:,.0f} {run['seconds']:.1f} {run['state']}"
        place = rows.index(f"{agent} skerrin-checked {row} {spent}")
        assert rows[place + 1].startswith(below)

    def test_the_saving_is_the_difference_of_the_two_runs(self, demo_output: DemoOutput) -> None:
        stopped = demo_output.row("looper", "skerrin-checked")
        twin = demo_output.row("looper-twin", "skerrin-checked")
        saved = demo_output.document["saved"]
        assert stopped["stopped"] == {"step": 6, "reason": "loop_repeats"}
        assert twin["stopped"] is None
        assert saved["steps"] == twin["steps"] - stopped["stopped"]["step"] == 18
        assert saved["tokens"] == twin["tokens"] - stopped["tokens"] > 0
        assert saved["seconds"] == pytest.approx(twin["seconds"] - stopped["seconds"])
        # and the engine said so of the twin, which nobody stopped
        assert twin["lost_in_loops"]["steps"] == saved["steps"] + 2
        assert (
            f"the stop saved {saved['steps']} steps, {saved['tokens']:,.0f} tokens, "
            f"{saved['seconds']:.1f} s" in demo_output.out
        )

    def test_success_is_the_worlds_word(self, demo_output: DemoOutput) -> None:
        assert {(run["agent"], run["success"]) for run in demo_output.document["runs"]} == {
            ("solver", True),
            ("looper", False),
            ("looper-twin", False),
            ("retrier", True),
            ("wanderer", False),
        }
        (solver,) = (
            group for group in demo_output.document["groups"] if group["agent"] == "solver"
        )
        # solved at turns 3, 4 and 5 of 20
        assert solver["auv"] == pytest.approx((17.5 + 16.5 + 15.5) / 20 / 3)


@pytest.mark.slow
def test_another_seed_is_another_archive_and_a_taken_port_no_obstacle(
    demo_output: DemoOutput, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = run_demo(tmp_path, "--seed", "2", "--port", str(port))
    first, second, third = other.out.splitlines()[:3]
    assert re.fullmatch(rf"port {port}: .+; using a free port", first)
    assert second.startswith("live page: http://127.0.0.1:")
    assert third.startswith("metrics: http://127.0.0.1:")
    assert str(port) not in second + third
    tokens = [
        sorted((run["agent"], run["task"], run["tokens"]) for run in each.document["runs"])
        for each in (demo_output, other)
    ]
    assert tokens[0] != tokens[1]


@pytest.mark.system
def test_live_replay_and_prometheus_agree(
    demo_output: DemoOutput, prometheus: SharedPrometheus, tmp_path: Path
) -> None:
    """One loop ratio, wherever one looks; and the same seed gives the same runs."""
    document, record = tmp_path / "demo.json", tmp_path / "demo.jsonl"
    command = [*DEMO, "--seed", "1", "--serve", "--json", str(document), "--record", str(record)]
    command += ["--port", str(prometheus.port)]
    with running(*command) as (process, url):
        assert "tidegauge_dropped_events_total" in scrape(url), "served from the start"
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("serving "):
                break
        # written before it began to wait
        live = orjson.loads(document.read_bytes())
        totals = live["totals"]
        samples = scrape(url)
        assert samples["tidegauge_steps_total"] == totals["steps"]
        assert samples["tidegauge_loop_steps_total"] == totals["loop_steps"]
        all_steps = "sum(tidegauge_steps_total)"
        prometheus.wait_for(
            all_steps, lambda found: [total.value for total in found] == [totals["steps"]]
        )
        ratio = prometheus.value(f"sum(tidegauge_loop_steps_total) / {all_steps}")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
        assert (process.returncode, err) == (0, "")
    assert 0 < totals["loop_ratio"] == loop_ratio(live["runs"])
    assert ratio == totals["loop_ratio"] == loop_ratio(replayed(record)["runs"])
    assert (
        f"Loop ratio {ratio:.1%}: {totals['loop_steps']} of {totals['steps']} steps"
        in demo_output.out
    )
    measured = ("agent", "task", "state", "steps", "loops", "tokens", "novelty", "stopped")
    again = [
        sorted(str([run[name] for name in measured]) for run in each["runs"])
        for each in (demo_output.document, live)
    ]
    assert again[0] == again[1]


def test_a_replay_gives_every_run_the_live_numbers(demo_output: DemoOutput) -> None:
    replay = replayed(demo_output.record)
    assert replay["skipped_lines"] == 0
    runs = {run["run"]: run for run in replay["runs"]}
    assert len(runs) == len(demo_output.document["runs"]) == 7
    for live in demo_output.document["runs"]:
        again = runs[live["run"]]
        # a recording has no word for a stop: it ends there, unsolved
        for name in again.keys() - {"stopped"}:
            assert again[name] == live[name], (live["agent"], name)
    spent: dict[str, float] = {}
    for line in demo_output.record.read_bytes().splitlines():
        event = orjson.loads(line)
        spent[event["run"]] = spent.get(event["run"], 0) + event.get("tokens", 0)
    # of the stopped run, also those of the action that was chosen and not run
    assert spent == {run["run"]: run["tokens"] for run in demo_output.document["runs"]}
    groups = {group["agent"]: group for group in replay["groups"]}
    for group in demo_output.document["groups"]:
        assert groups[group["agent"]] == group


@pytest.mark.slow
def test_ctrl_c_ends_it_in_the_middle(tmp_path: Path) -> None:
    """The agents leave with their next turn, and what there is by then is printed."""
    document = tmp_path / "demo.json"
    command = [*TIDEGAUGE, "demo", "--port", "0", "--serve", "--json", str(document)]
    with running(*command) as (process, url):
        until = time.monotonic() + LIMIT
        while not scrape(url).get("tidegauge_steps_total") and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err.strip()) == (130, "")
    assert "Next steps" in out
    runs = orjson.loads(document.read_bytes())["runs"]
    assert runs
    assert {run["finished"] for run in runs} == {True}
    assert "ended" in {run["state"] for run in runs}


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What a terminal of 80 columns shows of the demo, without colours."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    environment |= {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color", **variables}
    command = [*DEMO, *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown: list[bytes] = []
        reader = threading.Thread(target=read_all, args=(os.fdopen(ours, "rb"), shown))
        reader.start()
        assert process.wait(LIMIT) == 0
        reader.join(LIMIT)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(shown).decode())


def test_a_terminal_of_80_columns_is_enough() -> None:
    """The tables of the end: nothing cut off, nothing wrapped."""
    text = on_a_terminal(DISPLAY="", WAYLAND_DISPLAY="")
    assert "…" not in text
    assert re.search(r"looper +skerrin-checked +7 +3 steps, +1 +0 +0.50 +stopped", text)
    assert "tokens  seconds" not in text, "no room for what it costs"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("display", "switch", "opens"),
    [(":7", (), True), (":7", ("--no-browser",), False), ("", (), False)],
)
def test_the_live_page_is_opened_where_somebody_sits(
    display: str, switch: tuple[str, ...], opens: bool, tmp_path: Path
) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(
        f'#!/bin/sh\necho NOISE >&2\necho "$1" >{opened}.new\nmv {opened}.new {opened}\n'
    )
    browser.chmod(0o755)
    variables = {"DISPLAY": display, "WAYLAND_DISPLAY": "", "BROWSER": str(browser)}
    text = on_a_terminal(*switch, **variables)
    assert "NOISE" not in text
    until = time.monotonic() + (LIMIT if opens else 0)
    while not opened.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert opened.exists() == opens
    if opens:
        assert f"live page: {opened.read_text().strip()}\r\n" in text


def test_without_a_terminal_no_browser_is_opened(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f"#!/bin/sh\ntouch {opened}\n")
    browser.chmod(0o755)
    environment = {**os.environ, "DISPLAY": ":7", "BROWSER": str(browser)}
    environment.pop("SSH_CONNECTION", None)
    subprocess.run(DEMO, capture_output=True, env=environment, timeout=LIMIT, check=True)
    assert not opened.exists()


def read_all(stream: IO[bytes], into: list[bytes]) -> None:
    with stream, contextlib.suppress(OSError):  # Linux: the other end is closed
        while block := stream.read1():  # type: ignore[attr-defined]
            into.append(block)


def test_without_langchain_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['langchain'] = None; " + TIDEGAUGE[-1]
    ended = subprocess.run(
        [sys.executable, "-c", code, "demo"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        ended.stderr == "tidegauge: langchain is not installed: pip install '.[demo]' in a clone\n"
    )
