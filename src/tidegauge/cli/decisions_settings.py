"""The settings of ``tidegauge decisions``."""

from __future__ import annotations

from typing import Final

from tidegauge.cli.settings_table import Setting, SettingsTable
from tidegauge.cli.shared_settings import KAFKA_CONFIG, LISTENING, TLS

__all__ = ["SETTINGS"]

SETTINGS: Final = SettingsTable(
    "TIDEGAUGE_DECISIONS_",
    (
        Setting("kafka", "text", None, "Brokers: HOST:PORT, separated by commas."),
        Setting(
            "topic",
            "text",
            None,
            "The topic of the fleet; decisions are read from TOPIC.decisions.",
        ),
        KAFKA_CONFIG,
        *LISTENING,
        Setting("port", "port", 9465, "/v1/decisions, /metrics, /healthz and /readyz."),
        Setting("token_file", "file", None, "Agents must send the bearer token in this file."),
        *TLS,
        Setting(
            "max_connections", "count", 1_000, "Connections at a time; each waiting agent is one."
        ),
        Setting(
            "max_runs", "count", 100_000, "Runs remembered; beyond this the oldest are evicted."
        ),
        Setting("ended_seconds", "seconds", 3_600.0, "How long to remember that a run has ended."),
    ),
)
"""All of them."""
