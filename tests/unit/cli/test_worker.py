"""``tidegauge worker``: settings, and errors in one line."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator

import pytest

from support.commands import options_of
from tidegauge.cli import worker as command
from tidegauge.fleet.partition_worker import WorkerSettings
from tidegauge.policies import Budget, parse_rules
from tidegauge.policies.prices import ModelPrice

PLACE = ("--kafka", "127.0.0.1:1", "--topic", "t")


@pytest.fixture(autouse=True)
def _logs_stay_as_they_are() -> Iterator[None]:
    """The command writes warnings to standard error, which here is a test's."""
    loggers = [logging.getLogger(name) for name in ("quixstreams", "tidegauge")]
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers


@pytest.fixture
def started(monkeypatch):
    """What a worker would be made from: it is not started."""
    made: list[WorkerSettings] = []

    class Stopped(OSError):
        pass

    def check(settings: WorkerSettings) -> None:
        made.append(settings)
        raise Stopped("stopped here")

    monkeypatch.setattr(command, "_check", check)
    return made


def test_the_help_teaches(tidegauge) -> None:
    ran = tidegauge("worker", "--help")
    assert ran.code == 0
    assert "tidegauge worker --kafka broker:9092 --topic agents" in ran.out
    for option in options_of("worker").values():
        assert option.opts[0] in ran.out


def test_the_defaults(tidegauge, started) -> None:
    ran = tidegauge("worker", *PLACE)
    assert (ran.code, ran.faults) == (1, ["tidegauge: stopped here"])
    [settings] = started
    assert (settings.brokers, settings.topic, settings.group) == ("127.0.0.1:1", "t", "tidegauge")
    assert settings.limits.allowed_lateness == 0.5
    assert settings.limits.runs == 10_000
    assert (settings.exactly_once, settings.page, settings.digest_key) == (False, True, None)
    assert {rule.action for rule in settings.policy.rules} == {"observe"}
    assert dict(settings.config) == {}


def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    tidegauge, started, monkeypatch, tmp_path
) -> None:
    path = tmp_path / "worker.toml"
    path.write_text(
        'kafka = "file:1"\ntopic = "file"\ngroup = "file"\nidle_seconds = 7\nexactly_once = true\n'
        "page = false\nmax_runs = 5\n"
    )
    monkeypatch.setenv("TIDEGAUGE_WORKER_TOPIC", "environment")
    monkeypatch.setenv("TIDEGAUGE_WORKER_GROUP", "environment")
    monkeypatch.setenv("TIDEGAUGE_WORKER_CONFIG", str(path))
    tidegauge("worker", "--group", "flag", "--allowed-lateness", "2", "--task-group", "g")
    [settings] = started
    names = (settings.brokers, settings.topic, settings.group)
    assert names == ("file:1", "environment", "flag")
    assert settings.limits.allowed_lateness == 2.0
    assert (settings.limits.idle_seconds, settings.limits.runs) == (7.0, 5)
    assert (settings.exactly_once, settings.page) == (True, False)
    assert settings.defaults is not None
    assert settings.defaults.task_group == "g"


def test_a_policy_is_a_line_of_rules_or_a_file(tidegauge, started, tmp_path) -> None:
    tidegauge("worker", *PLACE, "--policy", "loop_repeats=3,steps=50:nudge")
    path = tmp_path / "policy.toml"
    path.write_text(
        'format = 2\n[[rule]]\nsignal = "loop_repeats"\nthreshold = 3\naction = "stop"\n'
    )
    ran = tidegauge("worker", *PLACE, "--policy", str(path))
    assert "stopped here" in ran.err, ran.err
    line, file = started
    for settings, rules in ((line, "loop_repeats=3,steps=50:nudge"), (file, "loop_repeats=3")):
        assert set(parse_rules(rules)) <= set(settings.policy.rules)


def test_budgets_have_prices_and_are_of_single_runs(tidegauge, started, tmp_path) -> None:
    (tmp_path / "prices.toml").write_text('"m" = 2\n')
    path = tmp_path / "policy.toml"
    path.write_text('format = 2\n[[budget]]\nkind = "usd"\nlimit = 2\n')
    tidegauge("worker", *PLACE, "--policy", str(path), "--prices", "prices.toml")
    [settings] = started
    assert settings.policy.budgets == (Budget("usd", 2),)
    assert settings.policy.prices == {"m": ModelPrice(2)}
    for table, what in (
        ('[[budget]]\nkind = "usd"\nlimit = 2\nper = "agent"\n', "a budget per agent"),
        ("[[breaker]]\n", "a breaker"),
    ):
        path.write_text(f"format = 2\n{table}")
        ran = tidegauge("worker", *PLACE, "--policy", str(path))
        assert f"{what} counts the runs of one process" in ran.err
        assert len(started) == 1


def test_secrets_are_not_shown(tidegauge, started, tmp_path) -> None:
    (tmp_path / "kafka.toml").write_text('"sasl.password" = "hush"\n')
    (tmp_path / "key").write_text("whisper\n")
    files = ("--kafka-config", "kafka.toml", "--digest-key-file", "key")
    ran = tidegauge("worker", *PLACE, *files)
    [settings] = started
    assert (settings.config["sasl.password"], settings.digest_key) == ("hush", b"whisper")
    assert "hush" not in repr(settings) + ran.err
    assert "whisper" not in repr(settings) + ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "kafka is not set; use --kafka, TIDEGAUGE_WORKER_KAFKA or the --config"),
        (
            ("--kafka", "127.0.0.1:1"),
            "topic is not set; use --topic",
        ),
        (
            (*PLACE, "--metrics-port", "off"),
            "--metrics-port: 'off' is not a whole",
        ),
        ((*PLACE, "--policy", "loops=3"), "--policy: unknown signal 'loops'"),
        ((*PLACE, "--policy", "loop_repeats"), "use SIGNAL=NUMBER"),
        ((*PLACE, "--max-runs", "0"), "--max-runs: 0 is out of range; use 1 or more"),
        (
            (*PLACE, "--exactly-once", "perhaps"),
            "'perhaps' is not a switch; use on or off",
        ),
        (
            (*PLACE, "--commit-seconds", "-1"),
            "--commit-seconds: -1 is out of range",
        ),
    ],
)
def test_wrong_usage_is_reported_in_a_line(tidegauge, arguments, said) -> None:
    ran = tidegauge("worker", *arguments)
    assert ran.code == 2
    assert said in ran.faults[-1]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("flag", ["--policy", "--kafka-config", "--digest-key-file", "--config"])
def test_a_file_that_is_not_there(tidegauge, flag) -> None:
    ran = tidegauge("worker", *PLACE, flag, "nowhere.toml")
    assert ran.code in (1, 2)
    assert "nowhere.toml" in ran.faults[-1]
    assert "Traceback" not in ran.err


def test_brokers_that_cannot_be_reached(tidegauge, monkeypatch) -> None:
    monkeypatch.setattr(command, "_BROKER_TIMEOUT", 0.5)
    ran = tidegauge("worker", *PLACE)
    assert ran.code == 1
    [line] = ran.faults
    assert "127.0.0.1:1" in line


@pytest.mark.system
def test_a_topic_that_is_not_there(tidegauge, kafka, topic) -> None:
    ran = tidegauge("worker", "--kafka", kafka.address, "--topic", topic)
    assert ran.code in (1, 2)
    [line] = ran.faults
    assert topic in line


@pytest.mark.system
def test_a_state_folder_that_is_a_file(tidegauge, kafka, topic, tmp_path) -> None:
    kafka.create(topic)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "tidegauge").write_text("")
    place = ("--kafka", kafka.address, "--topic", topic, "--metrics-port", "0")
    ran = tidegauge("worker", *place, "--state-dir", "state")
    assert ran.code == 1
    assert "not a directory" in ran.faults[-1]
    assert "Traceback" not in ran.err


def test_without_quix_streams(tidegauge, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        command, "find_spec", lambda name: None if name == "quixstreams" else find(name)
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "quixstreams"]:
        monkeypatch.setitem(sys.modules, name, None)
    ran = tidegauge("worker", *PLACE)
    assert ran.code == 2
    said = "tidegauge: quixstreams is not installed: pip install '.[worker]' in a clone"
    assert ran.faults == [said]
