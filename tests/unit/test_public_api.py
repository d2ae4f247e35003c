"""The public surface: a fixed list of names, and what importing it does not load."""

from __future__ import annotations

import importlib
import importlib.resources
import json
import pkgutil

import pytest

import tidegauge
from support.processes import run_python

NAMES = [
    "CallBlocked",
    "ConfigurationError",
    "Decision",
    "MissingExtraError",
    "Run",
    "RunStopped",
    "StepEventError",
    "TidegaugeError",
    "ToolDeclaration",
    "__version__",
    "agent",
    "configure",
    "flush",
    "get_current_run",
    "propagate",
    "run",
    "tool",
]
HEAVY = [
    "click",
    "google.protobuf",
    "grafana_foundation_sdk",
    "grpc",
    "langchain",
    "langchain_core",
    "langgraph",
    "multiprocessing",
    "numpy",
    "opentelemetry.exporter",
    "opentelemetry.proto",
    "opentelemetry.sdk",
    "prometheus_client",
    "pydantic",
    "rich",
]


def python(code, **environ):
    done = run_python(code, **environ)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_the_names():
    assert tidegauge.__all__ == NAMES
    assert all(hasattr(tidegauge, name) for name in NAMES)


def test_nothing_else_is_to_be_had_but_the_packages():
    public = {name for name in vars(tidegauge) if not name.startswith("_")}
    modules = {module.name for module in pkgutil.iter_modules(tidegauge.__path__)}
    assert public - modules == set(NAMES) - {"__version__"}


@pytest.mark.parametrize(
    "package",
    ["instrumentation", "policies", "streaming_metrics", "tracer", "exporters", "testing"],
)
def test_every_listed_name_of_a_package_is_there(package):
    module = importlib.import_module(f"tidegauge.{package}")
    listed = getattr(module, "__all__", [])
    assert sorted(set(listed)) == sorted(listed)
    assert [name for name in listed if not hasattr(module, name)] == []


@pytest.mark.parametrize(
    "code",
    [
        "import tidegauge",
        "import tidegauge\nwith tidegauge.run() as run: run.act('look'); run.observe('x')",
        "import tidegauge.streaming_metrics",
    ],
    ids=["import", "run", "metrics"],
)
def test_what_is_not_asked_for_is_not_loaded(code):
    loaded = python(f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))")
    heavy = [
        module
        for module in loaded
        if any(module == name or module.startswith(f"{name}.") for name in HEAVY)
    ]
    assert heavy == []
    assert "tidegauge" in loaded


def test_importing_starts_no_thread_and_opens_no_run():
    code = "import tidegauge, threading, json\nprint(json.dumps(threading.active_count()))"
    assert python(code, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1") == 1


def test_type_checkers_see_the_types():
    assert (importlib.resources.files(tidegauge) / "py.typed").is_file()
