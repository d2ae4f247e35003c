"""Files of secrets: errors name the file or the variable, and never show the secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.cli.server_settings import read_kafka_config, read_secret, read_token
from tidegauge.errors import ConfigurationError

VARIABLE = "TIDEGAUGE_SERVE_TOKEN"


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"secret\xff")
    with pytest.raises(ConfigurationError, match="token: the file is not UTF-8; write the key as"):
        read_secret(str(path), "key")


def test_a_variable_that_is_not_utf_8_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "secret\udcff")
    with pytest.raises(ConfigurationError, match=f"^{VARIABLE} is not UTF-8; set a token in UTF-8"):
        read_token(None, VARIABLE)


@pytest.mark.parametrize(
    "token", ["se\ncret", "s\u00e9cret", "\N{SNOWMAN}", "se\x00cret", "se\x7f"]
)
def test_a_token_that_is_sent_is_one_that_a_header_can_carry(tmp_path: Path, token: str) -> None:
    path = tmp_path / "token"
    path.write_text(token, encoding="utf-8")
    assert read_token(str(path), VARIABLE) == token
    with pytest.raises(ConfigurationError, match="token: the token has a character") as caught:
        read_token(str(path), VARIABLE, sent=True)
    assert token not in str(caught.value)


def test_a_token_loses_the_white_space_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, " secret\n")
    assert read_token(None, VARIABLE, sent=True) == "secret"
    monkeypatch.delenv(VARIABLE)
    assert read_token(None, VARIABLE, sent=True) is None


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "kafka.toml"
        path.write_text(text)
        return str(path)

    return write


def test_names_may_be_quoted_dotted_or_tables(config) -> None:
    path = config(
        '"security.protocol" = "SASL_SSL"\nsasl.username = "a"\nlinger.ms = 7\n'
        "[enable]\nidempotence = true\n"
    )
    assert read_kafka_config(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "a",
        "linger.ms": 7,
        "enable.idempotence": True,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'sasl.password = ["hidden"]',
            "sasl.password has the type list; use text, a number",
        ),
        ("sasl.password = hidden", "is not valid TOML: at line 1, column 17"),
        ('sasl.password = "hidden', "is not valid TOML: at "),
        (
            'bootstrap.servers = "hidden:9092"',
            "remove bootstrap.servers; set the brokers with",
        ),
    ],
)
def test_errors_do_not_show_values(config, text, message) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        read_kafka_config(config(text))
    assert "hidden" not in str(error.value)


def test_a_file_that_is_not_utf_8(tmp_path) -> None:
    path = tmp_path / "kafka.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is not UTF-8; write it as UTF-8 text"):
        read_kafka_config(str(path))
    with pytest.raises(OSError, match=r"nowhere\.toml"):
        read_kafka_config(str(tmp_path / "nowhere.toml"))
