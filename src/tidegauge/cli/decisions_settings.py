"""The settings of ``tidegauge decisions``."""

from __future__ import annotations

from typing import Final

from tidegauge.cli.settings_table import Setting, SettingsTable

__all__ = ["SETTINGS"]

SETTINGS: Final = SettingsTable(
    "TIDEGAUGE_DECISIONS_",
    (
        Setting("kafka", "text", None, "Brokers, HOST:PORT with commas between."),
        Setting("topic", "text", None, "The topic of the fleet; its .decisions is read."),
        Setting(
            "kafka_config", "file", None, "TOML of librdkafka's properties: SASL, TLS, limits."
        ),
        Setting("host", "text", "127.0.0.1", "Address to listen on."),
        Setting(
            "allowed_hosts",
            "text",
            None,
            "Host names to answer under, with commas between, beside loopback names and the "
            "address; off, any name, unless the address is loopback.",
        ),
        Setting("port", "port", 9465, "/v1/decisions, /metrics, /healthz and /readyz."),
        Setting("token_file", "file", None, "Agents are to show the bearer token in this file."),
        Setting("tls_certificate", "file", None, "Speak TLS, with this certificate."),
        Setting("tls_key", "file", None, "Its private key."),
        Setting("tls_client_ca", "file", None, "Answer only clients with a certificate by these."),
        Setting("max_connections", "count", 1_000, "Connections; an agent that waits is one."),
        Setting("max_runs", "count", 100_000, "Runs known; beyond, the oldest are forgotten."),
        Setting("ended_seconds", "seconds", 3_600.0, "How long a run is known to have ended."),
    ),
)
"""All of them."""
