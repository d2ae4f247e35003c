"""The agents whose hooks are known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegauge.coding_agents.claude import CLAUDE
from tidegauge.coding_agents.codex import CODEX
from tidegauge.coding_agents.copilot import COPILOT
from tidegauge.coding_agents.gemini import GEMINI
from tidegauge.coding_agents.generic import GENERIC
from tidegauge.coding_agents.hook_events import HookAgent
from tidegauge.coding_agents.opencode import OPENCODE
from tidegauge.coding_agents.qwen import QWEN

AGENTS: Final[Mapping[str, HookAgent]] = MappingProxyType(
    {agent.name: agent for agent in (CODEX, GEMINI, QWEN, OPENCODE, COPILOT, CLAUDE, GENERIC)}
)
"""Each by its name."""
