"""The file of ``--kafka-config``: names with dots, and nothing of what they hold in errors."""

from __future__ import annotations

import pytest

from tidegauge.cli.kafka_config import read_kafka_config
from tidegauge.errors import ConfigurationError


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
        ('sasl.password = ["hidden"]', "sasl.password is to be a text, .* not list"),
        ("sasl.password = hidden", "it is no TOML: at line 1, column 17"),
        ('sasl.password = "hidden', "it is no TOML: at "),
        ('bootstrap.servers = "hidden:9092"', "bootstrap.servers is what --kafka says"),
    ],
)
def test_what_cannot_work_is_told_without_what_it_holds(config, text, message) -> None:
    with pytest.raises(ConfigurationError, match=message) as told:
        read_kafka_config(config(text))
    assert "hidden" not in str(told.value)


def test_what_is_no_text_is_told(tmp_path) -> None:
    path = tmp_path / "kafka.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="no UTF-8"):
        read_kafka_config(str(path))
    with pytest.raises(OSError, match=r"nowhere\.toml"):
        read_kafka_config(str(tmp_path / "nowhere.toml"))
