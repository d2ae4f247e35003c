"""A calibrated policy in use: live runs that cross, files that cannot be used, recordings."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

import tidegauge
from support.langchain_agents import graph_agent, nothing_is_left
from support.receiving import COMMAND, export_two_steps, served
from support.scripted_model import ScriptedChatModel, chooses, turns
from tidegauge.cli.main import cli
from tidegauge.errors import ConfigurationError, RunStopped
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step, StepSink
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, TidegaugeMiddleware
from tidegauge.pipeline import Settings
from tidegauge.policies import (
    PolicyFile,
    Rule,
    RunTrace,
    Threshold,
    TraceSink,
    read_policy,
    write_policy,
)
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.testing import capture

LINE = Threshold("stagnation", 9.5, "stop", runs=60, alpha=0.05)


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    """Write a policy of this line, or of that text."""

    def write(line: Threshold | str = LINE, name: str = "policy.toml", **fields: Any) -> Path:
        text = (
            line
            if isinstance(line, str)
            else write_policy(PolicyFile(thresholds=(line,), **fields))
        )
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def retrying(times: int = 20) -> int:
    """An agent that asks for one thing in ever new words; how many steps it took."""
    taken = 0
    with tidegauge.run(agent="searcher", task_group="shop") as run:
        for attempt in range(times):
            run.act("search", {"query": f"red shoes, kind {attempt}"})
            taken += 1
            run.observe(f"nothing found of kind {attempt}", error=False)
    return taken


def would_stop(seen: Any) -> dict[tuple[str, str], int]:
    [group] = seen.pipeline.engine.snapshot().groups
    return dict(group.totals.interventions)


class TestOpenRun:
    def test_a_run_that_crosses_is_stopped(self, policy) -> None:
        with capture(policy=policy()), pytest.raises(RunStopped) as stopped:
            retrying()
        assert stopped.value.reason == "stagnation"
        assert 3 < stopped.value.step < 9  # step count alone would have let it go on to the 10th
        assert " is above 9.5, the threshold of 60 successful runs (" in stopped.value.message
        assert "similarity of the last action" in stopped.value.message

    def test_a_good_run_goes_on(self, policy) -> None:
        with capture(policy=policy()):
            assert retrying(4) == 4

    def test_it_is_observed_and_counted(self, policy) -> None:
        with capture(policy=policy(Threshold("stagnation", 9.5))) as seen:
            assert retrying() == 20
            assert would_stop(seen) == {("would_stop", "stagnation"): 1}

    def test_it_is_nudged(self, policy) -> None:
        with (
            capture(policy=policy(Threshold("stagnation", 9.5, "nudge"))),
            tidegauge.run() as run,
        ):
            nudges = []
            for attempt in range(20):
                run.act("search", f"red shoes, kind {attempt}")
                run.observe("nothing", error=False)
                nudges.append(run.nudge())
        reported = [one for one in nudges if one]
        assert reported
        assert "stagnation" in reported[0]

    def test_a_run_that_is_held_out_is_only_observed(self, policy) -> None:
        with capture(policy=policy(holdout=1.0)) as seen:
            assert retrying() == 20
            assert would_stop(seen) == {("would_stop", "stagnation"): 1}

    def test_a_line_of_others_is_none_of_its(self, policy) -> None:
        with capture(policy=policy(Threshold("stagnation", 9.5, "stop", agent="another"))):
            assert retrying() == 20

    def test_nobody_is_stopped_where_it_is_only_to_be_observed(self, policy) -> None:
        with capture(policy=policy(), observe_only=True, stop_on_steps=7) as seen:
            assert retrying() == 20
            assert would_stop(seen) == {
                ("would_stop", "stagnation"): 1,
                ("would_stop", "steps"): 1,
            }


class TestBesideSettings:
    FILE = PolicyFile(
        (Rule("loop_repeats", 6, "stop"), Rule("result_streak", 2)), (Threshold("steps", 99),)
    )

    def rules(self, tmp_path: Path, **settings: Any) -> set[Rule]:
        path = tmp_path / "policy.toml"
        path.write_text(write_policy(self.FILE))
        decided = Settings(policy=path, **settings).decides()
        assert [line.threshold for line in decided.thresholds] == [99]
        return set(decided.rules)

    OBSERVED = (
        *(Rule("loop_evidence", 1), Rule("stuck_streak", 5), Rule("failed_rounds", 7)),
        Rule("near_streak", 5),
        Rule("turn_loop_evidence", 1),
        Rule("duplicate_calls", 20),
    )

    def test_the_rules_of_the_file_go_before_those_that_are_given(self, tmp_path: Path) -> None:
        # Of what is observed unless set otherwise: the file stops loops, and has another streak.
        assert self.rules(tmp_path) == {
            *self.FILE.rules,
            *self.OBSERVED,
        }
        assert self.rules(tmp_path, stop_on_loop=3, nudge_on_loop=2, stop_on_steps=9) == {
            *self.FILE.rules,
            Rule("loop_repeats", 2, "nudge"),
            Rule("turn_loop_repeats", 2, "nudge"),
            Rule("turn_loop_repeats", 3, "stop"),
            Rule("steps", 9, "stop"),
            *self.OBSERVED,
        }

    def test_where_no_rules_are_given_the_file_has_them_all(self, tmp_path: Path) -> None:
        assert self.rules(tmp_path, rules=()) == set(self.FILE.rules)

    def test_where_it_is_only_to_be_observed_so_are_those_of_the_file(self, tmp_path: Path) -> None:
        assert {rule.action for rule in self.rules(tmp_path, observe_only=True)} == {"observe"}


BROKEN = {
    "missing": None,
    "no TOML": "format =",
    "format": "format = 3",
    "outdated": (
        "format = 2\n[[threshold]]\nscore = 'stagnation'\nscore_version = 0\nthreshold = 3\n"
    ),
    "unknown score": "format = 2\n[[threshold]]\nscore = 'luck'\nthreshold = 3\n",
}


class TestFilesThatCannotBeUsed:
    @pytest.mark.parametrize("kind", sorted(BROKEN))
    def test_configure_says_so_in_one_line(self, policy, tmp_path: Path, kind: str) -> None:
        text = BROKEN[kind]
        path = tmp_path / "none.toml" if text is None else policy(text)
        with pytest.raises(ConfigurationError) as caught:
            tidegauge.configure(policy=path, serve_metrics=False)
        message = str(caught.value)
        assert message.startswith(f"policy {path}: ")
        assert "\n" not in message


class TestEnvironment:
    def test_the_variable_names_the_file(self, policy, monkeypatch) -> None:
        monkeypatch.setenv("TIDEGAUGE_POLICY", str(policy()))
        with capture(), pytest.raises(RunStopped):
            retrying()

    def test_the_setting_goes_before_it(self, policy, monkeypatch) -> None:
        monkeypatch.setenv("TIDEGAUGE_POLICY", str(policy(name="another.toml")))
        with (
            capture(policy=policy(Threshold("steps", 12, "stop"))),
            pytest.raises(RunStopped) as it,
        ):
            retrying()
        assert (it.value.reason, it.value.step) == ("steps", 12)

    def test_an_empty_one_names_none(self, monkeypatch) -> None:
        monkeypatch.setenv("TIDEGAUGE_POLICY", "")
        with capture():
            assert retrying() == 20

    def test_a_broken_one_is_an_error_too(self, policy, monkeypatch) -> None:
        monkeypatch.setenv("TIDEGAUGE_POLICY", str(policy("format = 3")))
        with pytest.raises(ConfigurationError, match="format 3 is not supported"):
            tidegauge.configure(serve_metrics=False)

    def test_it_is_heeded_where_nothing_is_configured(self, policy) -> None:
        code = """
import tidegauge
try:
    with tidegauge.run() as run:
        for _ in range(20):
            run.act("search")
            run.observe("nothing")
except tidegauge.RunStopped as stopped:
    print(stopped.reason)
"""
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TIDEGAUGE_POLICY": str(policy())},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert (ran.stdout, ran.stderr) == ("stagnation\n", "")


class TestWords:
    """They are read where somebody needs them, and nowhere else."""

    @pytest.mark.parametrize(
        ("score", "settings", "read"),
        [
            (None, {}, True),
            (None, {"repetition": False}, False),
            ("steps", {"repetition": False}, False),
            ("stagnation", {"repetition": False}, True),
            ("repetition", {"repetition": False}, True),
            (None, {"repetition": False, "record_contents": False}, True),
            (None, {"repetition": False, "record_contents": True}, False),
            ("stagnation", {"repetition": False, "record_contents": True}, True),
        ],
    )
    def test_they_are_read(self, policy, tmp_path: Path, score, settings, read: bool) -> None:
        if score is not None:
            settings = {**settings, "policy": policy(Threshold(score, 99))}
        if "record_contents" in settings:
            settings = {**settings, "record_to": tmp_path / "runs.jsonl"}
        with capture(**settings) as seen, tidegauge.run() as run:
            run.act("look")
            measured = seen.pipeline.engine.get(run.id)
            assert measured is not None
            assert (measured.signals().repetition is not None) is read
            run.observe("nothing")


@tool
def search(query: str) -> str:
    """Search the shop."""
    return f"nothing found for {query}"


def asking_on(messages: Any) -> AIMessage:
    """It never gives up, and words its question anew each time."""
    return chooses(("search", {"query": f"red shoes attempt {turns(messages)}"}))


class TestLangChain:
    TASK = {"messages": [("user", "find red shoes")]}  # noqa: RUF012

    def test_an_agent_that_crosses_is_stopped(self, policy) -> None:
        agent = create_agent(ScriptedChatModel(script=asking_on), [search], name="searcher")
        with capture(policy=policy()) as seen:
            handler = TidegaugeCallbackHandler()
            with pytest.raises(RunStopped) as stopped:
                agent.invoke(self.TASK, config={"callbacks": [handler]})
            assert stopped.value.reason == "stagnation"
            assert nothing_is_left(handler, seen)
            [span] = [one for one in seen.spans if one.name == "invoke_agent searcher"]
        assert span.attributes["tidegauge.stopped.reason"] == "stagnation"

    def test_a_graph_that_swallows_errors_is_stopped_all_the_same(self, policy) -> None:
        agent = graph_agent(ScriptedChatModel(script=asking_on), [search], name="searcher")
        with capture(policy=policy()), pytest.raises(RunStopped) as stopped:
            agent.invoke(self.TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
        assert stopped.value.reason == "stagnation"

    def test_the_model_gets_the_reason_and_heeds_it(self, policy) -> None:
        shown: list[list[BaseMessage]] = []

        def heeding(messages: Sequence[BaseMessage]) -> AIMessage:
            shown.append(list(messages))
            reported = any("stagnation" in str(one.content) for one in messages)
            return AIMessage("there are none") if reported else asking_on(messages)

        agent = create_agent(
            ScriptedChatModel(script=heeding), [search], middleware=[TidegaugeMiddleware()]
        )
        with capture(policy=policy(Threshold("stagnation", 9.5, "nudge", runs=60))) as seen:
            state = agent.invoke(self.TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
            assert would_stop(seen) == {("nudge", "stagnation"): 1}
        assert state["messages"][-1].content == "there are none"
        [nudge] = [
            one
            for one in shown[-1]
            if isinstance(one, HumanMessage) and "threshold of 60" in one.content
        ]
        assert "Do something that you have not tried" in nudge.content


def shopping(sink: StepSink, seed: int, runs: int = 70) -> None:
    """Runs that search in other words now and then, and mostly succeed."""
    chance = random.Random(seed)
    for number in range(runs):
        run, agent = f"run-{number}", chance.choice("ab")
        sink.run_started(RunStarted(run=run, agent=agent, task_group="shop", task="buy"))
        topic = chance.choice(["red shoes", "blue boots", "a very green hat"])
        for step in range(chance.randrange(2, 12)):
            what = chance.choice(["search", "search", "open"])
            asked = {"query": f"{topic} {chance.randrange(3)}", "page": step % 3}
            calls = [Call(what, asked), Call("note", f"step {step}")][: chance.randrange(1, 3)]
            sink.step_issued(Step(run, tuple(calls)))
            results = [CallResult(f"answer {chance.randrange(6)}", chance.random() < 0.2)]
            sink.step_observed(Outcome(run, tuple(results * len(calls)), seconds=0.5))
        sink.run_ended(RunEnded(run=run, success=chance.random() < 0.9))


def command(*arguments: object) -> str:
    ran = CliRunner().invoke(cli, [str(one) for one in arguments])
    assert (ran.exit_code, ran.stderr) == (0, "")
    return ran.stdout


class TestRecordings:
    SCORES = ("stagnation", "repetition", "steps", "result_streak", "loop_repeats")

    @staticmethod
    def recorded(path: Path, *, contents: bool, feed: Any = shopping) -> Path:
        with capture(record_to=path, record_contents=contents) as seen:
            feed(seen.pipeline.recorder.sink, 5)
        return path

    def lines(self, recording: Path) -> list[Threshold]:
        out = recording.with_suffix(".toml")
        scores = [part for score in self.SCORES for part in ("--score", score)]
        command("calibrate", recording, *scores, "--alpha", "0.25", "--strict", "-o", out)
        found = read_policy(out)
        return [
            Threshold(
                one.score, one.threshold, agent=one.agent, task_group=one.task_group, runs=one.runs
            )
            for one in found.thresholds
        ]

    @pytest.fixture(scope="class")
    @classmethod
    def both(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("recordings")
        return (
            cls.recorded(folder / "contents.jsonl", contents=True),
            cls.recorded(folder / "digests.jsonl", contents=False),
        )

    def test_digests_calibrate_to_the_lines_of_contents(self, both) -> None:
        contents, digests = both
        reported = [json.loads(line) for line in digests.read_bytes().splitlines()]
        assert {"similarity" in line for line in reported if line["type"] == "step"} == {True}
        assert "red shoes" in contents.read_text()
        assert "red shoes" not in digests.read_text()
        expected = self.lines(contents)
        assert {line.score for line in expected} == set(self.SCORES)
        assert len(expected) == 2 * len(self.SCORES)
        assert self.lines(digests) == expected

    def test_their_replays_and_backtests_agree(self, both) -> None:
        contents, digests = both
        for asked in (("replay",), ("backtest", "--repeats", "20", "--calibration-runs", "19")):
            assert json.loads(command(*asked, "--json", digests)) == json.loads(
                command(*asked, "--json", contents)
            )

    def test_a_live_run_crosses_the_line_where_its_recording_does(self, both, tmp_path) -> None:
        """What is recorded is judged as it was lived: the counts of both are the same."""
        contents, digests = both
        command("calibrate", contents, "--alpha", "0.3", "--by", "none", "-o", tmp_path / "p.toml")
        [line] = read_policy(tmp_path / "p.toml").thresholds
        with capture(policy=tmp_path / "p.toml") as seen:
            shopping(seen.pipeline.recorder.sink, 5)
            groups = seen.pipeline.engine.snapshot().groups
            live = sum(
                group.totals.interventions.get(("would_stop", "stagnation"), 0) for group in groups
            )
        text = (tmp_path / "p.toml").read_text()
        unlearned = "\n".join(one for one in text.splitlines() if "calibrated_on" not in one)
        (tmp_path / "all.toml").write_text(unlearned)
        asked = ("backtest", digests, "--policy", tmp_path / "all.toml", "--json")
        rows = json.loads(command(*asked))["rows"]
        counted = sum(
            row["good"] * row["good_stopped"] + (row["runs"] - row["good"]) * row["bad_stopped"]
            for row in rows
        )
        assert line.threshold > 0
        assert live == pytest.approx(counted)
        assert live > 5

    def test_a_replay_shows_which_runs_are_stopped_and_where(self, both, tmp_path) -> None:
        contents, digests = both
        out = tmp_path / "p.toml"
        command("calibrate", contents, "--alpha", "0.3", "--action", "stop", "-o", out)
        threshold = {line.agent: line.threshold for line in read_policy(out).thresholds}
        traces: list[RunTrace] = []
        replay = Replay(TraceSink(["stagnation"], on_trace=traces.append))
        with digests.open("rb") as stream:
            for line in read_lines(stream):
                replay.take(line, "digests")
        expected = {
            trace.run: crossing.steps
            for trace in traces
            if (crossing := trace.crossing("stagnation", threshold[trace.agent])) is not None
        }
        for recording in both:
            runs = json.loads(command("replay", "--json", "--policy", out, recording))["runs"]
            stopped = {run["run"]: run["stopped"] for run in runs if run["stopped"]}
            assert {one["reason"] for one in stopped.values()} == {"stagnation"}
            # before the call of that index was run, or after that of the one before
            assert stopped.keys() == expected.keys()
            for run, steps in expected.items():
                assert stopped[run]["step"] in (steps - 1, steps)
        assert len(expected) > 5


class TestServe:
    @pytest.mark.parametrize(
        "given_by",
        [
            "flag",
            *[
                pytest.param(other, marks=pytest.mark.slow)
                for other in ("variable", "file", "environment")
            ],
        ],
    )
    def test_a_policy_is_watched_and_stops_nothing(self, policy, tmp_path, given_by) -> None:
        path = str(policy(Threshold("stagnation", 1, "stop", alpha=0.05)))
        config = tmp_path / "serve.toml"
        config.write_text(f"policy = {json.dumps(path)}\n")
        flags, environment = {
            "flag": (("--policy", path), {}),
            "variable": ((), {"TIDEGAUGE_SERVE_POLICY": path}),
            "file": (("--config", str(config)), {}),
            "environment": ((), {"TIDEGAUGE_POLICY": path}),
        }[given_by]
        with served(*flags, **environment) as server:
            export_two_steps(OTLPSpanExporter(endpoint=f"{server.http}/v1/traces"))
            exceeded = ("", "", "stagnation", "unknown")
            server.wait_for("tidegauge_policy_crossed_runs_total", *exceeded, value=1)
            found = server.samples()
        assert found["tidegauge_interventions_total", ("a", "", "would_stop", "stagnation")] == 1
        assert ("tidegauge_interventions_total", ("a", "", "stop", "stagnation")) not in found
        assert found["tidegauge_steps_total", ("a", "")] == 2
        assert found["tidegauge_runs_finished_total", ("a", "", "unknown")] == 1

    def test_a_broken_one_is_one_line(self, policy) -> None:
        done = subprocess.run(
            [*COMMAND, "--policy", str(policy("format = 3"))],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        [line] = [line for line in done.stderr.splitlines() if "tidegauge" in line]
        assert line.endswith("format 3 is not supported; use format 2, or calibrate again")
