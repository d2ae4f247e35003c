"""The agents whose hooks are known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegauge.receivers.hooks.claude import CLAUDE
from tidegauge.receivers.hooks.codex import CODEX
from tidegauge.receivers.hooks.copilot import COPILOT
from tidegauge.receivers.hooks.gemini import GEMINI
from tidegauge.receivers.hooks.generic import GENERIC
from tidegauge.receivers.hooks.hook_events import HookAgent
from tidegauge.receivers.hooks.opencode import OPENCODE
from tidegauge.receivers.hooks.qwen import QWEN

__all__ = ["AGENTS"]

AGENTS: Final[Mapping[str, HookAgent]] = MappingProxyType(
    {agent.name: agent for agent in (CODEX, GEMINI, QWEN, OPENCODE, COPILOT, CLAUDE, GENERIC)}
)
"""Each by its name."""
