"""``tidegauge decisions``: settings, and errors in one line."""

from __future__ import annotations

import socket

import pytest

from support.commands import options_of
from tidegauge.cli.server_settings import read_token
from tidegauge.errors import ConfigurationError

PLACE = ("--kafka", "127.0.0.1:1", "--topic", "t")


def test_the_help_teaches(tidegauge) -> None:
    ran = tidegauge("decisions", "--help")
    assert ran.code == 0
    for said in ("tidegauge decisions --kafka broker:9092 --topic agents", "--follow", "--run ID"):
        assert said in ran.out
    for option in options_of("decisions").values():
        assert option.opts[0] in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "kafka is not set; use --kafka, TIDEGAUGE_DECISIONS_KAFKA or the --config file"),
        (("--kafka", "127.0.0.1:1"), "topic is not set; use --topic"),
        ((*PLACE, "--port", "off"), "--port: 'off' is not a whole number; use 0 to 65535"),
        ((*PLACE, "--port", "many"), "--port: 'many' is not a whole number; use 0 to 65535"),
        ((*PLACE, "--tls-key", "k.pem"), "set both tls_certificate and tls_key"),
        ((*PLACE, "--follow", "--run", "r1"), "--follow and --run cannot be combined"),
    ],
)
def test_wrong_usage_is_reported_in_a_line(tidegauge, signals, arguments, said) -> None:
    ran = tidegauge("decisions", *arguments)
    assert ran.code == 2
    assert said in ran.faults[-1]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"no.such.property" = 1', 'Kafka: No such configuration property: "no.such.property"'),
        ('"security.protocol" = "sasl_plaintext"\n"sasl.password" = "hush"', "Kafka: "),
    ],
)
def test_properties_that_cannot_work(tidegauge, signals, tmp_path, text, said) -> None:
    path = tmp_path / "kafka.toml"
    path.write_text(text)
    ran = tidegauge("decisions", *PLACE, "--kafka-config", str(path))
    assert ran.code == 2
    assert said in ran.faults[-1]
    assert "hush" not in ran.err


def test_a_port_that_is_taken(tidegauge, signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = tidegauge("decisions", *PLACE, "--port", str(port))
    assert ran.code == 1
    assert f"cannot listen on 127.0.0.1:{port} for decisions" in ran.faults[-1]


def test_files_that_cannot_be_read(tidegauge, signals, tmp_path) -> None:
    missing = str(tmp_path / "missing")
    for flag in ("--config", "--kafka-config", "--token-file", "--tls-certificate"):
        more = ("--tls-key", missing) if flag == "--tls-certificate" else ()
        ran = tidegauge("decisions", *PLACE, flag, missing, *more)
        assert ran.code in (1, 2), flag
        assert "tidegauge: " in ran.faults[-1]


def test_a_token_is_in_a_file_or_in_the_environment(tmp_path, monkeypatch) -> None:
    path = tmp_path / "token"
    path.write_text("from-file\n")
    assert read_token(None, "A_TOKEN") is None
    monkeypatch.setenv("A_TOKEN", "from-environment")
    assert read_token(None, "A_TOKEN") == "from-environment"
    assert read_token(str(path), "A_TOKEN") == "from-file"
    for empty in ("", " \n"):
        monkeypatch.setenv("A_TOKEN", empty)
        with pytest.raises(ConfigurationError, match="A_TOKEN is empty"):
            read_token(None, "A_TOKEN")
    path.write_text(" \n")
    with pytest.raises(ConfigurationError, match="the file is empty; put the token in it"):
        read_token(str(path), "A_TOKEN")


@pytest.fixture
def signals():
    """The command takes signals over: given back."""
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
