"""The settings of ``tidegauge serve``."""

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

_DAY: Final = 86_400
"""Highest value of what the operating system is to wait for: it cannot wait for ever so long."""

SETTINGS: Final = SettingsTable(
    "TIDEGAUGE_SERVE_",
    (
        *LISTENING,
        Setting("grpc_port", "port", 4317, "OTLP over gRPC; off disables it."),
        Setting("http_port", "port", 4318, "OTLP over HTTP; off disables it."),
        *METRICS,
        Setting("page_contents", "switch", False, "Show arguments and results on the live page."),
        *RUN_DEFAULTS,
        Setting(
            "policy",
            "text",
            None,
            "Rules that are counted when they would have stopped a run, as in "
            "loop_repeats=3,steps=50, or the file of a policy (.toml). TIDEGAUGE_POLICY can name "
            "it, too. Nothing is stopped: the agents run elsewhere.",
        ),
        Setting(
            "record_to", "file", None, "Record the runs as step events in this file, for replay."
        ),
        Setting("token_file", "file", None, "Senders must send the bearer token in this file."),
        *TLS,
        Setting(
            "forward_to",
            "text",
            None,
            "Forward the requests to this OTLP endpoint: http://HOST:4318 or grpc://HOST:4317.",
        ),
        Setting("forward_token_file", "file", None, "Bearer token for that endpoint."),
        Setting("forward_ca", "file", None, "Trust only these certificates for that endpoint."),
        Setting(
            "forward_queue_bytes",
            "count",
            64 * 1024 * 1024,
            "Bytes that may wait for that endpoint.",
        ),
        Setting("forward_timeout", "seconds", 10.0, "Time limit of one attempt to forward.", _DAY),
        Setting(
            "forward_give_up_after",
            "seconds",
            60.0,
            "Drop a request that could not be forwarded for this long.",
        ),
        Setting(
            "kafka",
            "text",
            None,
            "Run as a gateway of a fleet: send the spans to these brokers (HOST:PORT, separated by "
            "commas) for tidegauge worker to measure. Nothing is measured here.",
        ),
        Setting("topic", "text", None, "The topic to write to; it must exist."),
        Setting(
            "kafka_contents",
            "switch",
            False,
            "Send arguments, results and tasks in plain text; off, send digests of them.",
        ),
        Setting(
            "kafka_digest_key_file",
            "file",
            None,
            "File with the key of these digests, the same for all gateways. Without a key, short "
            "contents can be guessed.",
        ),
        KAFKA_CONFIG,
        Setting(
            "kafka_queue_bytes",
            "count",
            64 * 1024 * 1024,
            "Bytes that may wait for the brokers; beyond this, senders must wait.",
        ),
        SETTLE_SECONDS,
        IDLE_SECONDS,
        Setting(
            "max_request_bytes",
            "count",
            16 * 1024 * 1024,
            "Size limit of a request, also after decompression.",
            most=1024**3,
        ),
        Setting("max_request_spans", "count", 100_000, "Spans read from one request."),
        Setting("max_attributes", "count", 2_000, "Attributes read from one span."),
        Setting("max_attribute_length", "count", 1_048_576, "Characters read from one attribute."),
        Setting("max_connections", "count", 64, "Connections (HTTP) or requests (gRPC) at a time."),
        Setting(
            "max_queued_spans",
            "count",
            100_000,
            "Spans that may wait; beyond this, senders must wait.",
        ),
        Setting("max_traces", "count", 10_000, "Open traces held."),
        Setting("max_runs", "count", 10_000, "Open runs held."),
        Setting(
            "max_remembered_spans", "count", 500_000, "Spans remembered, to recognize duplicates."
        ),
        Setting(
            "shutdown_seconds", "seconds", 5.0, "Time limit of each step of the shutdown.", _DAY
        ),
    ),
)
