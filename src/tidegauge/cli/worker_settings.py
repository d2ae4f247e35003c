"""The settings of ``tidegauge worker``."""

from __future__ import annotations

from typing import Final

from tidegauge.cli.settings_table import Setting, SettingsTable
from tidegauge.cli.shared_settings import (
    IDLE_SECONDS,
    KAFKA_CONFIG,
    LISTENING,
    METRICS,
    RUN_DEFAULTS,
    SETTLE_SECONDS,
    TLS,
)

__all__ = ["SETTINGS"]

SETTINGS: Final = SettingsTable(
    "TIDEGAUGE_WORKER_",
    (
        Setting("kafka", "text", None, "Brokers: HOST:PORT, separated by commas."),
        Setting("topic", "text", None, "The topic that the gateways write to."),
        Setting(
            "group",
            "text",
            "tidegauge",
            "The consumer group; its workers share the topic's partitions.",
        ),
        KAFKA_CONFIG,
        Setting("state_dir", "file", "tidegauge-state", "The folder that holds the state."),
        *LISTENING,
        *METRICS,
        *TLS,
        *RUN_DEFAULTS,
        Setting(
            "policy",
            "text",
            None,
            "Rules that decide when a run must stop, as in loop_repeats=3,steps=50, or the file "
            "of a policy (.toml). Decisions are written to TOPIC.decisions.",
        ),
        Setting("digest_key_file", "file", None, "Key of the digests of places in metrics."),
        SETTLE_SECONDS,
        IDLE_SECONDS,
        Setting("max_traces", "count", 10_000, "Open traces held per partition."),
        Setting("max_runs", "count", 10_000, "Open runs held per partition."),
        Setting(
            "max_remembered_spans",
            "count",
            500_000,
            "Spans remembered per partition, to recognize duplicates.",
        ),
        Setting(
            "max_kept_bytes",
            "count",
            512 * 1024 * 1024,
            "State of the live runs of one partition; beyond this the largest run is ended.",
        ),
        Setting("commit_seconds", "seconds", 1.0, "How often work is committed."),
        Setting(
            "exactly_once",
            "switch",
            False,
            "Write each summary and decision exactly once, even when a worker dies. Readers see it "
            "when its input is committed.",
        ),
    ),
)
"""All of them."""
