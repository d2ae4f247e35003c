"""Settings: what cannot work is refused at once, in one line; every documented form is taken."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

import tidegauge
from tidegauge import ConfigurationError, ToolDeclaration
from tidegauge.instrumentation.extractors import WebPages
from tidegauge.pipeline import Pipeline, Settings
from tidegauge.pipeline.settings import KINDS
from tidegauge.policies import Rule
from tidegauge.runs.current import get_recorder
from tidegauge.settings import checked

COUNTS = [
    field.name for field in fields(Settings) if str(field.type).removesuffix(" | None") == "Count"
]
SWITCHES = [
    field.name for field in fields(Settings) if str(field.type).removesuffix(" | None") == "bool"
]


class Unreadable:
    """A value whose own code fails."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


class Provider:
    """A provider of no known class."""

    def get_tracer(self, *args, **kwargs):
        return TracerProvider(shutdown_on_exit=False).get_tracer("other")


WRONG: dict[str, Any] = {
    "rules": [5, "abc", [1], ["loop"], Rule, {"a": 1}],
    "tools": [5, "a", [1], None, {"a": 1}, {"a": None}, {1: ToolDeclaration(poll=True)}],
    "extractors": [5, "x", [1], [None], [WebPages], object(), None],
    "t_max_by_group": ["a", 5, {"g": "x"}, {"g": 0}, {"g": 1.5}, {1: 2}, [("a", 1)]],
    "idle_seconds": ["a", None, math.nan, 0, -1, True, 10**400, timedelta(hours=1)],
    "normalise": [5, "x"],
    "distance": [5],
    "metrics_host": [5, b"x", "not a host", "a..b", "a" * 64 + ".example"],
    "metrics_port": ["9464", -1, 70_000, 1.5, True, math.nan],
    "metrics_targets": [5, b"\xff", ["a"], "a\0b"],
    "metrics_allowed_hosts": ["a", 5, [5], ["a b"], None, {"a": 1}],
    "metrics_certificate": [5],
    "metrics_client_ca": [5],
    "registry": [5, "x", CollectorRegistry],
    "record_to": [5, b"\xff", ["a"], "a\0b"],
    "record_backups": ["x", -1, None, 1.5],
    "run_store": [5, b"x", "a\0b", object()],
    "judging": [5],
    "export": [5, "some", None, True],
    "sample": ["a", -0.1, 1.1, True, math.nan],
    "digest_key": ["str", b"", b"x" * 65, 5],
    "tracer_provider": [5, "x", TracerProvider, Unreadable()],
    "logger_provider": [5, Provider()],
    "meter_provider": [5, Provider()],
    "policy": [5, b"x", object(), "a\0b"],
    **dict.fromkeys(COUNTS, ("10", "x", 0, -1, 1.5, math.nan, math.inf, True, [], Unreadable())),
    **dict.fromkeys(SWITCHES, ("no", "x", 1)),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}-{at}")
        for name, values in WRONG.items()
        for at, value in enumerate(values)
    ],
)
def test_what_cannot_work_is_refused_in_one_line(name, value):
    before = get_recorder()
    with pytest.raises(ConfigurationError) as reported:
        tidegauge.configure(**{"serve_metrics": False, name: value})
    message = str(reported.value)
    assert name in message
    assert "use " in message
    assert "\n" not in message
    assert len(message) < 200
    assert reported.value.__context__ is None
    assert get_recorder() is before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_runs": "10"}, "max_runs is '10'; use a whole number of 1 or more"),
        ({"stop_on_loop": 0}, "stop_on_loop is 0; use a whole number of 1 or more"),
        ({"idle_seconds": 0}, "idle_seconds is 0; use a number of seconds, more than 0"),
        ({"metrics_port": "9464"}, "metrics_port is '9464'; use a port from 1 to 65535, or 0 for"),
        ({"serve_metrics": "no"}, "serve_metrics is 'no'; use True or False"),
        ({"rules": 5}, "rules is 5; use a list, each item a tidegauge.policies.Rule"),
        ({"rules": [1]}, r"rules\[0\] is 1; use a tidegauge.policies.Rule"),
        ({"t_max_by_group": {"g": "x"}}, r"t_max_by_group\['g'\] is 'x'; use a whole number"),
        ({"tools": {1: None}}, "a key of tools is 1; use a text"),
        ({"record_to": 5}, "record_to is 5; use the path of a file"),
        ({"tracer_provider": 5}, r"tracer_provider is 5; use a provider with get_tracer\(\)"),
        ({"meter_provider": Unreadable()}, "meter_provider is <Unreadable instance at"),
        ({"t_max": "x\ny" * 99}, r"t_max is '.{77}\.\.\.; use|t_max is '.{30,78}'; use"),
        ({"t_max": 1.5}, "t_max is 1.5; use"),
        ({"metrics_key": "k", "metrics_certificate": "/none"}, "metrics_certificate is '/none'"),
    ],
)
def test_the_line_has_the_setting_its_value_and_what_to_use(settings, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        Settings(**settings)


def test_a_secret_is_not_shown():
    with pytest.raises(ConfigurationError) as reported:
        Settings(digest_key="hunter2")  # type: ignore[arg-type]
    assert str(reported.value) == (
        'digest_key is of type str; use from 1 to 64 bytes, such as os.environ["KEY"].encode()'
    )


@pytest.mark.parametrize("field", fields(Settings), ids=lambda field: field.name)
def test_every_setting_is_checked(field):
    with pytest.raises(ConfigurationError, match=field.name):
        checked(field.name, object(), str(field.type), KINDS)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("max_runs", np.int64(7), 7),
        ("stop_on_loop", np.uint8(3), 3),
        ("t_max_by_group", {"g": np.int32(3)}, {"g": 3}),
        ("stop_on_steps", 10**400, 10**400),
        ("idle_seconds", 5, 5.0),
        ("idle_seconds", np.float32(0.5), 0.5),
        ("idle_seconds", Fraction(1, 2), 0.5),
        ("idle_seconds", math.inf, math.inf),
        ("metrics_port", 0, 0),
        ("metrics_host", "::1", "::1"),
        ("metrics_host", "", ""),
        ("metrics_allowed_hosts", {"gauge.example"}, ("gauge.example",)),
        ("record_to", Path("runs-{pid}.jsonl"), "runs-{pid}.jsonl"),
        ("record_backups", 0, 0),
        ("policy", "", ""),
        ("rules", (Rule("steps", n) for n in [3]), (Rule("steps", 3),)),
        ("rules", [], ()),
        ("digest_key", bytearray(b"k"), b"k"),
        ("page", None, None),
    ],
)
def test_what_can_work_is_taken(name, value, kept):
    found = getattr(Settings(**{name: value}), name)
    assert found == kept
    assert type(found) is type(kept)


def test_a_provider_needs_its_methods_and_no_class():
    settings: dict[str, Any] = {"tracer_provider": Provider()}
    Pipeline(Settings(**settings), serve=False).shutdown()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "many"),
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "70000"),
        ("OTEL_EXPORTER_PROMETHEUS_PORT", "9" * 5_000),
        ("OTEL_EXPORTER_PROMETHEUS_HOST", "not a host"),
        ("OTEL_EXPORTER_PROMETHEUS_HOST", "a" * 64 + ".example"),
    ],
)
def test_the_environment_is_checked_alike_and_costs_a_line_in_the_log(
    monkeypatch, caplog, variable, value
):
    settings = Settings(metrics_port=0) if variable.endswith("HOST") else Settings()
    monkeypatch.setenv(variable, value)
    pipeline = Pipeline(settings)
    pipeline.shutdown()
    message = caplog.messages[0]
    otherwise = "127.0.0.1" if variable.endswith("HOST") else "9464"
    assert re.match(f"tidegauge: {variable} is .*; use a .*; {otherwise} is used instead$", message)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("poll", "x"),
        ("poll", -1),
        ("poll", 1.5),
        ("poll", None),
        ("key", 5),
        ("mutates", "yes"),
    ],
)
def test_a_declaration_that_cannot_work(name, value):
    with pytest.raises(ConfigurationError, match=f"^{name} is .*; use "):
        ToolDeclaration(**{name: value})


def test_a_decorator_s_declaration_is_checked():
    with pytest.raises(ConfigurationError, match="poll is 'x'; use True, a number of steps or a"):
        tidegauge.tool(poll="x")
    with pytest.raises(ConfigurationError, match="key is 5; use a function"):
        tidegauge.tool(key=5)


def test_declarations_that_work():
    steps: Any = np.int64(3)
    assert ToolDeclaration(poll=steps).poll == 3
    assert ToolDeclaration(poll=0, key=str, mutates=True).poll == 0
    assert ToolDeclaration(poll=timedelta.max).poll == timedelta.max


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sample": 0.1}, 'sample is for export="troubled"'),
        (
            {"export": "troubled", "tracer_provider": Provider()},
            'export="troubled" is for the exporter that tidegauge makes',
        ),
    ],
)
def test_sampling_needs_an_exporter_of_ours(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Settings(**settings)
