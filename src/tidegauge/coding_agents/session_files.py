"""The sessions of coding agents in files and folders."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NamedTuple

from tidegauge.coding_agents.atif_trajectories import AtifTranscript, read_trajectory
from tidegauge.coding_agents.claude_sessions import ClaudeTranscript
from tidegauge.coding_agents.codex_sessions import CodexTranscript
from tidegauge.coding_agents.copilot_sessions import CopilotTranscript
from tidegauge.coding_agents.gemini_sessions import GeminiTranscript
from tidegauge.coding_agents.inspect_logs import (
    InspectTranscript,
    SampleLines,
    read_log,
    read_zip,
)
from tidegauge.coding_agents.mini_swe_agent_sessions import MiniSweAgentTranscript
from tidegauge.coding_agents.opencode_sessions import OpencodeTranscript, read_database
from tidegauge.coding_agents.openhands_sessions import OpenHandsTranscript
from tidegauge.coding_agents.qwen_sessions import QwenTranscript
from tidegauge.coding_agents.session_transcript import SessionError, SessionTranscript
from tidegauge.recordings.line_replay import MAX_LINE_BYTES, Line, read_lines
from tidegauge.values.elements import MOST_OF_A_FILE
from tidegauge.values.exact_json import bounded_json

AGENTS: Final[Mapping[str, type[SessionTranscript]]] = MappingProxyType(
    {
        kind.agent: kind
        for kind in (
            CodexTranscript,
            ClaudeTranscript,
            GeminiTranscript,
            QwenTranscript,
            CopilotTranscript,
            OpencodeTranscript,
            OpenHandsTranscript,
            MiniSweAgentTranscript,
            AtifTranscript,
            InspectTranscript,
        )
    }
)
"""The agents and formats whose sessions are read, by their names."""

_PATTERNS: Final = {
    "codex": ["rollout-*.jsonl"],
    "claude": ["*.jsonl"],
    "gemini": ["session-*.jsonl", "chats/*/*.jsonl"],  # of sub-agents, by their sessions
    "qwen": ["chats/*.jsonl"],
    "copilot": ["events.jsonl"],
    "opencode": ["opencode*.db"],
    "openhands": ["events"],
    "mini-swe-agent": ["*.traj.json"],
    "atif": ["*trajectory*.json"],
    "inspect": ["*.eval", "[0-9]*T*_*.json"],
}
_OBJECTS: Final = (MiniSweAgentTranscript, AtifTranscript, InspectTranscript)
"""Their files are one JSON object."""
_MAX_FILE_BYTES: Final = 1 << 30
_LOOKED_AT: Final = 20
"""Lines of a file that show whose it is."""


class SessionPart(NamedTuple):
    """Lines of a recording that a part of a file completes.

    Attributes:
        lines: the lines, as objects.
        number: that of the line that was read, or of the message or event.
        size: how many bytes were read.
        error: why the part was skipped.
    """

    lines: Sequence[dict[str, Any]]
    number: int
    size: int = 0
    error: str | None = None


def find_sessions(path: Path, agent: str) -> list[Path]:
    """The files, or for OpenHands the folders, of sessions in a folder, by their names.

    A path that is a session, or is no folder, is returned as it is.

    Args:
        path: where to look.
        agent: whose sessions; ``auto``, those of any agent.
    """
    if not path.is_dir() or _is_conversation(path):
        return [path]
    kinds = _PATTERNS if agent == "auto" else [agent]
    found = {one for kind in kinds for pattern in _PATTERNS[kind] for one in path.rglob(pattern)}
    return sorted(one for one in found if not one.is_dir() or _is_conversation(one))


def _is_conversation(path: Path) -> bool:
    """Whether a folder has the events of a conversation of OpenHands."""
    return path.is_dir() and any(path.glob("event-*.json"))


def guess_agent(path: Path) -> str | None:
    """The agent whose session a file is, by its content; ``None``, it is none that is known.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_dir():
        return "openhands" if _is_conversation(path) else None
    with open(path, "rb") as file:
        begins = file.read(16)
        if begins == b"SQLite format 3\0":
            return "opencode"
        if begins.startswith(b"PK\3\4"):
            return "inspect"
        file.seek(0)
        records = [_parsed(line.content) for line in islice(_read_lines(file), _LOOKED_AT)]
    for record in filter(None, records):
        for agent, kind in AGENTS.items():
            if kind.recognizes(record):
                return agent
    whole = _whole_file(path) if path.suffix == ".json" else None
    kinds = [] if whole is None else [kind for kind in _OBJECTS if kind.recognizes(whole)]
    return kinds[0].agent if kinds else None


def read_session(path: Path, agent: str) -> Iterator[SessionPart]:
    """The lines of a session, part by part.

    Raises:
        SessionError: it is no session of this agent.
        OSError: it cannot be read.
    """
    match agent:
        case "opencode":
            return _from_database(path)
        case "openhands":
            return _from_folder(path)
        case "mini-swe-agent":
            return _from_object(path)
        case "atif":
            return _from_trajectory(path)
        case "inspect":
            return _from_samples(path)
        case _:
            return _from_lines(path, AGENTS[agent])


def _from_lines(path: Path, kind: type[SessionTranscript]) -> Iterator[SessionPart]:
    transcript, number, known = kind(path.stem), 0, False
    with open(path, "rb") as file:
        for line in _read_lines(file):
            number = line.number
            record, error = _parsed(line.content), None
            if record is None:
                if line.content is not None and not line.content.strip():
                    continue
                limit = MAX_LINE_BYTES >> 20
                error = f"use one JSON object of at most {limit} MiB in a line"
            known = known or (record is not None and kind.recognizes(record))
            lines = transcript.take(record) if record is not None and known else []
            yield SessionPart(lines, number, line.size, error)
    yield SessionPart(transcript.close(), number)
    if not known and number:
        raise SessionError(f"no line of it is one of {kind.agent}'s; use --from auto to find out")


def _from_folder(path: Path) -> Iterator[SessionPart]:
    transcript, number = OpenHandsTranscript(path.absolute().parent.name), 0
    for number, file in enumerate(sorted(path.glob("event-*.json")), start=1):
        record, size = _whole_file(file), os.path.getsize(file)
        if record is None:
            yield SessionPart([], number, size, f"{file.name} is no JSON object")
        else:
            yield SessionPart(transcript.take(record), number, size)
    if not number:
        raise SessionError("it has no files event-*.json; give the folder of a conversation")
    yield SessionPart(transcript.close(), number)


def _from_object(path: Path) -> Iterator[SessionPart]:
    whole = _whole_file(path)
    messages = None if whole is None else whole.get("messages")
    if whole is None or not isinstance(messages, list):
        raise SessionError("it is no trajectory: use a JSON object with messages")
    transcript = MiniSweAgentTranscript(path.name.removesuffix(".traj.json"))
    for number, message in enumerate(messages, start=1):
        if isinstance(message, dict):
            yield SessionPart(transcript.take(message), number)
        else:
            yield SessionPart([], number, 0, "the message is no JSON object")
    info = whole.get("info")
    status = info.get("exit_status") if isinstance(info, dict) else None
    transcript.end(reason=status if isinstance(status, str) and status else None)
    yield SessionPart(transcript.close(), len(messages), os.path.getsize(path))


def _from_trajectory(path: Path) -> Iterator[SessionPart]:
    whole = _whole_file(path)
    if whole is None or not AtifTranscript.recognizes(whole):
        raise SessionError("it is no trajectory in ATIF: it has no schema_version of ATIF")
    for number, lines in enumerate(read_trajectory(whole, path.stem), start=1):
        yield SessionPart(lines, number)
    yield SessionPart([], 1, os.path.getsize(path))


def _from_samples(path: Path) -> Iterator[SessionPart]:
    with open(path, "rb") as file:
        packed = file.read(4) == b"PK\3\4"
    whole = None if packed else _whole_file(path)
    if whole is not None and InspectTranscript.recognizes(whole):
        samples: Iterator[SampleLines] = read_log(whole)
    elif packed:
        samples = read_zip(path)
    else:
        raise SessionError("it is no log of Inspect: use an .eval file, or one in JSON")
    for number, sample in enumerate(samples, start=1):
        yield SessionPart(sample.lines, number, sample.size, sample.error)


def _from_database(path: Path) -> Iterator[SessionPart]:
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    for number, lines in enumerate(read_database(path), start=1):
        yield SessionPart(lines, number)


def _read_lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file, without the mark that some editors write before the first one."""
    for line in read_lines(file):
        marked = line.number == 1 and (line.content or b"").startswith(codecs.BOM_UTF8)
        yield line._replace(content=line.content[3:]) if marked and line.content else line


def _parsed(content: bytes | None) -> dict[str, Any] | None:
    if content is None:
        return None
    try:
        record = bounded_json(content, MOST_OF_A_FILE)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _whole_file(path: Path) -> dict[str, Any] | None:
    if os.path.getsize(path) > _MAX_FILE_BYTES:
        return None
    return _parsed(path.read_bytes())
