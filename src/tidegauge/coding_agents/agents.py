"""The coding agents and formats that are known, and whose session a file is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tidegauge.coding_agents.atif import ATIF
from tidegauge.coding_agents.claude import CLAUDE
from tidegauge.coding_agents.codex import CODEX
from tidegauge.coding_agents.copilot import COPILOT
from tidegauge.coding_agents.gemini import GEMINI
from tidegauge.coding_agents.inspect_logs import INSPECT
from tidegauge.coding_agents.known_agent import (
    Hook,
    HookAnswer,
    HookEvent,
    HookSettings,
    KnownAgent,
    Payload,
    Sessions,
)
from tidegauge.coding_agents.mini_swe_agent import MINI_SWE_AGENT
from tidegauge.coding_agents.opencode import OPENCODE
from tidegauge.coding_agents.openhands import OPENHANDS
from tidegauge.coding_agents.qwen import QWEN
from tidegauge.coding_agents.session_files import first_records, read_object
from tidegauge.coding_agents.session_transcript import text_in
from tidegauge.events import ABSENT, CallResult

_KINDS: Final = ("prompt", "call", "result", "end")


def _read(payload: Payload) -> HookEvent | None:
    """The event of any other agent, in a form that is ours; ``docs/watch.md`` documents it."""
    session, kind = text_in(payload, "session"), payload.get("event")
    if session is None or kind not in _KINDS:
        return None
    error: Any = payload.get("error")
    return HookEvent(
        kind,
        session,
        tool=text_in(payload, "tool") or "",
        arguments=payload.get("arguments"),
        call_id=text_in(payload, "call_id"),
        result=CallResult(payload.get("result", ABSENT), error if type(error) is bool else None),
        prompt=text_in(payload, "prompt"),
        model=text_in(payload, "model"),
        inner=text_in(payload, "sub_agent"),
        agent=text_in(payload, "agent"),
        reason=text_in(payload, "reason"),
    )


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if payload.get("event") not in ("call", "result"):
        return None
    return {"action": answer.action, "message": answer.text}


GENERIC: Final = KnownAgent("generic", "other agents", hook=Hook(_read, _write, stops=True))

AGENTS: Final[Mapping[str, KnownAgent]] = MappingProxyType(
    {
        agent.name: agent
        for agent in (
            CODEX,
            CLAUDE,
            GEMINI,
            QWEN,
            COPILOT,
            OPENCODE,
            OPENHANDS,
            MINI_SWE_AGENT,
            ATIF,
            INSPECT,
            GENERIC,
        )
    }
)
"""Each by its name. A record that several agents may have written is the first one's."""

SESSIONS: Final[Mapping[str, Sessions]] = MappingProxyType(
    {name: agent.sessions for name, agent in AGENTS.items() if agent.sessions is not None}
)
"""The sessions of those that keep any."""

SETTINGS: Final[Mapping[str, HookSettings]] = MappingProxyType(
    {name: agent.settings for name, agent in AGENTS.items() if agent.settings is not None}
)
"""The settings of those whose hooks can be installed."""

_LOOKED_AT: Final = 20
"""Lines of a file that show whose it is."""


def titles(names: Iterable[str]) -> str:
    """What people call these agents.

    >>> titles(["codex", "qwen", "claude"])
    'Codex CLI, Qwen Code and Claude Code'
    """
    *some, last = [AGENTS[name].title for name in names]
    return f"{', '.join(some)} and {last}"


def find_sessions(path: Path, agent: str) -> list[Path]:
    """The files, or for OpenHands the folders, of an agent's sessions in a folder, by their names.

    A path that is a session, or is no folder, is returned as it is; ``auto`` finds those of any
    agent.
    """
    if not path.is_dir() or _owner_of(path) is not None:
        return [path]
    kinds = SESSIONS.values() if agent == "auto" else [SESSIONS[agent]]
    found = {one for kind in kinds for pattern in kind.files for one in path.rglob(pattern)}
    return sorted(one for one in found if not one.is_dir() or _owner_of(one) is not None)


def _owner_of(folder: Path) -> str | None:
    """The agent of which a folder is one session."""
    return next((name for name, kind in SESSIONS.items() if kind.is_session(folder)), None)


def guess_agent(path: Path) -> str | None:
    """The agent whose session a file is, by its content; ``None``, it is none that is known.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_dir():
        return _owner_of(path)
    with open(path, "rb") as file:
        begins = file.read(16)
    for name, kind in SESSIONS.items():
        if kind.begins and begins.startswith(kind.begins):
            return name
    for record in first_records(path, _LOOKED_AT):
        for name, kind in SESSIONS.items():
            if kind.transcript.recognizes(record):
                return name
    whole = read_object(path) if path.suffix == ".json" else None
    for name, kind in SESSIONS.items():
        if whole is not None and kind.whole and kind.transcript.recognizes(whole):
            return name
    return None
