"""The command line in this process: arguments in; exit code, output and complaints out."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from tidegauge.cli.main import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What ``--json`` printed."""
        return orjson.loads(self.out)

    @property
    def faults(self) -> list[str]:
        return self.err.splitlines()


Tidegauge = Callable[..., Ran]


@pytest.fixture
def tidegauge(
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Tidegauge:
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsysbinary.readouterr()
        return Ran(int(ended.value.code or 0), out.decode(), err.decode())

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a recording: objects become lines, bytes are taken as they are."""

    def write(*events: Any, name: str = "runs.jsonl") -> str:
        lines = [event if isinstance(event, bytes) else orjson.dumps(event) for event in events]
        (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in lines))
        return name

    return write


@pytest.fixture
def walk() -> Callable[..., list[dict[str, Any]]]:
    """The events of a run that goes through states, one letter each, always by one action."""

    def walk(
        run: str, states: str, *, success: bool | None = True, ends: bool = True, **started: Any
    ) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = [{"type": "start", "run": run, **started}]
        for state in states:
            events.append({"type": "step", "run": run, "state": state, "action": "go"})
        if ends:
            events.append({"type": "end", "run": run, "success": success})
        return events

    return walk
