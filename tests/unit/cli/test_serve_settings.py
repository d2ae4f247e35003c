"""The settings of ``tidegauge serve``: flags before environment before file before defaults."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tidegauge.cli.serve_settings import SETTINGS
from tidegauge.errors import ConfigurationError

EXAMPLES = Path(__file__).parents[3] / "examples" / "serve"
DOCS = Path(__file__).parents[3] / "docs" / "serve.md"


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "serve.toml"
        path.write_text(text)
        return str(path)

    return write


def test_what_nobody_says_is_the_default() -> None:
    assert SETTINGS.read({}, None) == {setting.name: setting.default for setting in SETTINGS}


def test_a_flag_goes_before_the_environment_and_that_before_the_file(config, monkeypatch) -> None:
    path = config('grpc_port = 1\nhttp_port = 1\nmetrics_port = 1\nhost = "::1"')
    monkeypatch.setenv("TIDEGAUGE_SERVE_GRPC_PORT", "2")
    monkeypatch.setenv("TIDEGAUGE_SERVE_HTTP_PORT", "2")
    told = SETTINGS.read({"grpc_port": "3"}, path)
    ports = [told[f"{name}_port"] for name in ("grpc", "http", "metrics")]
    assert (ports, told["host"]) == ([3, 2, 1], "::1")


def test_a_port_can_be_off(config) -> None:
    assert SETTINGS.read({}, config('http_port = "off"'))["http_port"] is None
    assert SETTINGS.read({"grpc_port": "off"}, None)["grpc_port"] is None


@pytest.mark.parametrize(("text", "on"), [("true", True), ('"off"', False), ('"on"', True)])
def test_a_switch_is_on_or_off(config, text, on) -> None:
    assert SETTINGS.read({}, config(f"page_contents = {text}"))["page_contents"] is on
    assert SETTINGS.read({"page": "off"}, None)["page"] is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grpc_prt = 1", "unknown setting 'grpc_prt'"),
        ("grpc_port = 70000", "grpc_port must be a port from 0 to 65535, or off, not 70000"),
        ("grpc_port = true", "grpc_port must be"),
        ('max_runs = "many"', "max_runs must be a whole number"),
        ("max_runs = 0", "max_runs must be a whole number, 1 or more"),
        ("idle_seconds = -1", "idle_seconds must be a number of seconds"),
        ("idle_seconds = nan", "idle_seconds must be"),
        ("idle_seconds = 1" + "0" * 400, "idle_seconds must be"),
        ("max_request_bytes = 1" + "0" * 30, "1 or more, at most 1073741824, not 1000"),
        ("shutdown_seconds = 1e30", r"a number of seconds, at most 86400, not 1e\+30"),
        ("forward_timeout = 1e300", "forward_timeout must be a number of seconds, at most 86400"),
        ("page = 1", "page must be on or off"),
        ("host = 5", "host must be a text"),
        ("host = ", "serve.toml: "),
    ],
)
def test_what_cannot_work_is_told(config, text, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SETTINGS.read({}, config(text))


def test_the_example_is_read() -> None:
    told = SETTINGS.read({}, str(EXAMPLES / "serve.toml"))
    assert told["policy"] == "loop_repeats=5,result_streak=8"
    text = (EXAMPLES / "serve.toml").read_text()
    commented = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    names = {setting.name for setting in SETTINGS}
    assert set(tomllib.loads("\n".join(commented))) <= names  # those commented out too


def test_the_docs_list_every_setting_with_its_help() -> None:
    text = DOCS.read_text()
    for setting in SETTINGS:
        assert f"| `{setting.name}` | {setting.shown_default} | {setting.help} |" in text


def test_an_empty_variable_says_nothing_unless_it_names_a_file(monkeypatch) -> None:
    monkeypatch.setenv("TIDEGAUGE_SERVE_HOST", "")
    assert SETTINGS.read({}, None)["host"] == "127.0.0.1"
    monkeypatch.setenv("TIDEGAUGE_SERVE_TOKEN_FILE", "")
    with pytest.raises(ConfigurationError, match="TIDEGAUGE_SERVE_TOKEN_FILE: token_file must be"):
        SETTINGS.read({}, None)
