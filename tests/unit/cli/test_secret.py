"""Secrets: what is wrong with one is told, and never the secret itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.cli.secret import read_secret, read_token
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
