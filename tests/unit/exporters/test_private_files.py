"""Recordings are their owner's alone, and are where they were asked for."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.requirements import needs
from tidegauge.cli.main import cli
from tidegauge.diagnose.judges.judgement import JudgementFile
from tidegauge.errors import ConfigurationError
from tidegauge.recordings import LineWriter
from tidegauge.safety.guard import internal_errors
from tidegauge.safety.private_files import open_private, private

pytestmark = needs(hasattr(os, "geteuid"), "this platform has no owners and modes of files")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_recording_is_its_owners_alone_and_so_are_its_backups(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    writer = LineWriter(path, max_bytes=100, backups=2)
    for _ in range(9):
        writer.add(b"x" * 40)
    writer.close()
    found = sorted(tmp_path.iterdir())
    assert [each.name for each in found] == ["runs.jsonl", "runs.jsonl.1", "runs.jsonl.2"]
    assert {mode(each) for each in found} == {0o600}


@pytest.mark.parametrize("there", [True, False])
def test_a_recording_is_not_written_through_a_link(tmp_path: Path, there: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    if there:
        elsewhere.write_text("mine\n")
    (tmp_path / "runs.jsonl").symlink_to(elsewhere)
    with pytest.raises(ConfigurationError, match="symbolic link"):
        LineWriter(tmp_path / "runs.jsonl")
    assert elsewhere.exists() == there
    assert not there or elsewhere.read_text() == "mine\n"


def test_a_folder_that_is_a_link_is_the_users_business(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "disk")
    writer = LineWriter(tmp_path / "folder" / "runs.jsonl")
    writer.add(b"line")
    writer.close()
    assert (tmp_path / "disk" / "runs.jsonl").read_bytes() == b"line\n"


def test_backups_that_are_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine\n")
    for number in (1, 2, 3):
        (tmp_path / f"runs.jsonl.{number}").symlink_to(elsewhere)
    writer = LineWriter(tmp_path / "runs.jsonl", max_bytes=100, backups=3)
    for number in range(12):
        writer.add(b"%d" % number * 40)
    writer.close()
    assert elsewhere.read_text() == "mine\n"
    assert writer.written == 12
    for number in (1, 2, 3):
        assert not (tmp_path / f"runs.jsonl.{number}").is_symlink()


def test_a_link_put_in_its_place_costs_its_lines_and_they_are_counted(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "runs.jsonl", tmp_path / "elsewhere"
    writer = LineWriter(path)
    path.unlink()
    path.symlink_to(elsewhere)
    writer.add(b"line")
    writer.close()
    assert not elsewhere.exists()
    assert (writer.written, writer.dropped["write_failed"]) == (0, 1)
    assert internal_errors.counts() == {}


def test_a_link_put_in_its_place_while_it_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, elsewhere = tmp_path / "runs.jsonl", tmp_path / "elsewhere"
    writer, replace = LineWriter(path, max_bytes=10), os.replace

    def tricked(source: Path, target: Path) -> None:
        replace(source, target)
        if source == path:
            path.symlink_to(elsewhere)

    monkeypatch.setattr(os, "replace", tricked)
    writer.add(b"x" * 8)
    writer.add(b"y" * 8)
    writer.close()
    assert not elsewhere.exists()
    assert writer.written + writer.dropped["write_failed"] == 2
    assert writer.dropped["write_failed"] == 1


def test_one_that_is_there_keeps_its_mode_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"before\n")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING, logger="tidegauge"):
        writer = LineWriter(path)
        writer.add(b"after")
        writer.close()
    assert (path.read_bytes(), mode(path)) == (b"before\nafter\n", 0o644)
    assert "mode 644" in caplog.text


def test_one_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.jsonl"
    path.touch()
    if os.geteuid() == 0:
        os.chown(path, 4_321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4_321)
    with pytest.raises(ConfigurationError, match="belongs to user"):
        LineWriter(path)


def test_where_there_are_no_modes_it_is_opened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.delattr(os, "O_NOFOLLOW")
    os.close(open_private(tmp_path / "runs.jsonl"))
    assert (tmp_path / "runs.jsonl").exists()


def test_judgements_quote_runs(tmp_path: Path) -> None:
    JudgementFile(tmp_path / "judged.jsonl").close()
    assert mode(tmp_path / "judged.jsonl") == 0o600


def test_what_a_command_is_asked_to_write_goes_through_links(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "file")
    with open(tmp_path / "out", "wb", opener=private):
        pass
    assert mode(tmp_path / "file") == 0o600


def test_a_report_shows_what_agents_read(tmp_path: Path) -> None:
    recording = tmp_path / "runs.jsonl"
    recording.write_text('{"run":"r","action":"look","outcome":"nothing"}\n')
    for command in (
        ["report", str(recording), "-o", str(tmp_path / "report.html")],
        ["select", str(recording), "--where", "steps > 0", "-o", str(tmp_path / "some.jsonl")],
        ["replay", str(recording), "--steps-out", str(tmp_path / "steps.jsonl")],
    ):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        assert mode(Path(command[-1])) == 0o600
