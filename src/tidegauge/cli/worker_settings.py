"""The settings of ``tidegauge worker``."""

from __future__ import annotations

from typing import Final

from tidegauge.cli.settings_table import Setting, SettingsTable

__all__ = ["SETTINGS"]

SETTINGS: Final = SettingsTable(
    "TIDEGAUGE_WORKER_",
    (
        Setting("kafka", "text", None, "Addresses of some of the brokers, as in kafka:9092."),
        Setting("topic", "text", None, "What to read: the topic that the gateways write."),
        Setting("group", "text", "tidegauge", "The workers that share the topic's partitions."),
        Setting(
            "kafka_config",
            "file",
            None,
            "A TOML file with properties of the Kafka clients: security, certificates, ...",
        ),
        Setting("state_dir", "file", "tidegauge-state", "The folder in which state is kept."),
        Setting("host", "text", "127.0.0.1", "Address to listen on."),
        Setting(
            "allowed_hosts",
            "text",
            None,
            "Host names to answer under, with commas between, beside loopback names and the "
            "address; off, any name, unless the address is loopback.",
        ),
        Setting(
            "metrics_port", "port", 9464, "/metrics, /healthz and /readyz; / is the live page."
        ),
        Setting("page", "switch", True, "The live page at /; off, the metrics are there, too."),
        Setting("tls_certificate", "file", None, "Speak TLS, with this certificate."),
        Setting("tls_key", "file", None, "Its private key."),
        Setting("tls_client_ca", "file", None, "Answer only clients with a certificate by these."),
        Setting("task_group", "text", None, "Task group of runs that name none."),
        Setting("t_max", "count", None, "Turns within which success counts towards AUV."),
        Setting(
            "policy",
            "text",
            None,
            "Rules that decide when a run is to stop, as in loop_repeats=3,steps=50, or the file "
            "of a policy (.toml). What is decided is written to the topic's .decisions.",
        ),
        Setting("digest_key_file", "file", None, "Key of the digests of places in metrics."),
        Setting(
            "settle_seconds", "seconds", 0.5, "How long later spans may overtake earlier ones."
        ),
        Setting("idle_seconds", "seconds", 600.0, "A run without a span for so long is ended."),
        Setting("max_traces", "count", 10_000, "Open traces held of a partition."),
        Setting("max_runs", "count", 10_000, "Open runs held of a partition."),
        Setting(
            "max_remembered_spans",
            "count",
            500_000,
            "Spans of a partition remembered, to know them again.",
        ),
        Setting(
            "max_kept_bytes",
            "count",
            512 * 1024 * 1024,
            "What is kept of a partition's live runs; of more, the largest run is ended.",
        ),
        Setting("commit_seconds", "seconds", 1.0, "How often what was done is made to last."),
        Setting(
            "exactly_once",
            "switch",
            False,
            "Tell each summary and decision once, also when a worker dies; they are told when "
            "what they follow from is committed, and not before.",
        ),
    ),
)
"""All of them."""
