"""Settings of ``tidegauge serve``: flags before environment before file before defaults."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from support.commands import options_of, settings_of
from tidegauge.cli.serve import ServeSettings, invitation
from tidegauge.errors import ConfigurationError
from tidegauge.policies.prices import ModelPrice, read_prices

EXAMPLES = Path(__file__).parents[3] / "examples" / "serve"


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "serve.toml"
        path.write_text(text)
        return str(path)

    return write


def test_the_defaults() -> None:
    assert settings_of("serve") == ServeSettings()
    assert ServeSettings().grpc_port == 4317


def test_a_flag_goes_before_the_environment_and_that_before_the_file(config, monkeypatch) -> None:
    path = config('grpc_port = 1\nhttp_port = 1\nmetrics_port = 1\nhost = "::1"')
    monkeypatch.setenv("TIDEGAUGE_SERVE_GRPC_PORT", "2")
    monkeypatch.setenv("TIDEGAUGE_SERVE_HTTP_PORT", "2")
    settings = settings_of("serve", "--config", path, "--grpc-port", "3")
    ports = [settings.grpc_port, settings.http_port, settings.metrics_port]
    assert (ports, settings.host) == ([3, 2, 1], "::1")


def test_a_port_can_be_off(config) -> None:
    assert settings_of("serve", "--config", config('http_port = "off"')).http_port is None
    assert settings_of("serve", "--grpc-port", "off").grpc_port is None


@pytest.mark.parametrize(("text", "on"), [("true", True), ('"off"', False), ('"on"', True)])
def test_a_switch_is_on_or_off(config, text, on) -> None:
    path = config(f"page_contents = {text}")
    assert settings_of("serve", "--config", path).page_contents is on
    assert settings_of("serve", "--page", "off").page is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grpc_prt = 1", "unknown setting 'grpc_prt'"),
        ("grpc_port = 70000", "grpc_port: 70000 is out of range; use 0 to 65535, or off"),
        ("grpc_port = true", "grpc_port: True is not a whole number; use 0 to 65535, or off"),
        ('max_runs = "many"', "max_runs: 'many' is not a whole number; use 1 or more"),
        ("max_runs = 0", "max_runs: 0 is out of range; use 1 or more"),
        ("max_runs = 1.5", "max_runs: 1.5 is not a whole number; use 1 or more"),
        ("idle_seconds = -1", "idle_seconds: -1 is out of range; use 0 or more"),
        ("idle_seconds = nan", "idle_seconds: nan is out of range"),
        ("idle_seconds = 1" + "0" * 400, "is out of range; use 0 or more"),
        (
            "max_request_bytes = 1" + "0" * 30,
            "max_request_bytes: 10+ is out of range; use 1 to 1073741824",
        ),
        ("shutdown_seconds = 1e30", r"shutdown_seconds: 1e\+30 is out of range; use 0 to 86400"),
        ("forward_timeout = 1e300", "forward_timeout: .* use 0 to 86400"),
        ("page = 1", "page: 1 is not a switch; use on or off"),
        ("host = 5", "host: 5 is not text; use "),
        ("host = ", "serve.toml is not valid TOML: "),
        ("policy = 'loops=3'", "policy: unknown signal 'loops'"),
    ],
)
def test_a_wrong_value_is_reported_with_its_file_and_name(config, text, message) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        settings_of("serve", "--config", config(text))
    assert "serve.toml" in str(error.value)


def test_a_wrong_value_is_reported_with_its_flag_or_variable(monkeypatch) -> None:
    with pytest.raises(ConfigurationError, match=r"^--grpc-port: 'many' is not a whole number"):
        settings_of("serve", "--grpc-port", "many")
    monkeypatch.setenv("TIDEGAUGE_SERVE_GRPC_PORT", "70000")
    message = r"^TIDEGAUGE_SERVE_GRPC_PORT: 70000 is out of range"
    with pytest.raises(ConfigurationError, match=message):
        settings_of("serve")
    assert settings_of("serve", "--grpc-port", "1").grpc_port == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "t"], "topic has no effect without kafka"),
        (["--kafka", "b:1"], "kafka needs a topic"),
        (["--kafka", "b:1", "--topic", "t", "--t-max", "3"], "t_max cannot be combined with kafka"),
        (["--tls-key", "k.pem"], "set both tls_certificate and tls_key"),
        (["--tls-client-ca", "ca.pem"], "set both tls_certificate and tls_key"),
    ],
)
def test_settings_that_do_not_go_together(arguments, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings_of("serve", *arguments)


def test_the_example_is_read() -> None:
    settings = settings_of("serve", "--config", str(EXAMPLES / "serve.toml"))
    assert settings.policy == "loop_repeats=5,result_streak=8"
    text = (EXAMPLES / "serve.toml").read_text()
    commented = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    names = options_of("serve").keys()
    assert set(tomllib.loads("\n".join(commented))) <= names  # those commented out too


def test_an_empty_variable_is_ignored_unless_it_names_a_file(monkeypatch) -> None:
    monkeypatch.setenv("TIDEGAUGE_SERVE_HOST", "")
    assert settings_of("serve").host == "127.0.0.1"
    monkeypatch.setenv("TIDEGAUGE_SERVE_TOKEN_FILE", "")
    with pytest.raises(ConfigurationError, match=r"^TIDEGAUGE_SERVE_TOKEN_FILE is empty; set"):
        settings_of("serve")


def test_the_empty_page_says_how_spans_are_sent() -> None:
    words, lines = invitation({"grpc": "http://127.0.0.1:1", "http": "http://127.0.0.1:2"})
    assert "http://127.0.0.1:2" in words
    assert "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in lines.splitlines()
    words, lines = invitation({"grpc": "http://127.0.0.1:1"})
    assert "http://127.0.0.1:1" in words
    assert "export OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in lines.splitlines()


def test_prices_are_read_from_a_file(config) -> None:
    found = read_prices(config('"model-1.5" = 2\nother = { input = 1, output = 4.5 }'))
    assert found == {"model-1.5": ModelPrice(2), "other": ModelPrice(1, 4.5)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model-1.5 = 2", r"the price of 'model-1' is \{'5': 2\}; use \$ per million tokens, or"),
        ("m = -1", "the price of 'm' is -1; use"),
        ("m = nan", "the price of 'm' is nan; use"),
        ('m = "2"', "the price of 'm' is '2'; use"),
        ("m = true", "the price of 'm' is True; use"),
        ("m = { input = 1 }", "the price of 'm' is {'input': 1}; use"),
        ("m = { input = 1, output = -1 }", "the price of 'm' is"),
        ("m = { input = 1, output = 1, cached = 1 }", "the price of 'm' is"),
        ("m", "is not valid TOML"),
    ],
)
def test_what_is_no_price_is_one_line(config, text, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_prices(config(text))
