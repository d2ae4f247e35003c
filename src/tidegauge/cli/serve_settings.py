"""The settings of ``tidegauge serve``."""

from __future__ import annotations

from typing import Final

from tidegauge.cli.settings_table import Setting, SettingsTable

__all__ = ["SETTINGS"]

SETTINGS: Final = SettingsTable(
    "TIDEGAUGE_SERVE_",
    (
        Setting("host", "text", "127.0.0.1", "Address to listen on, for all three ports."),
        Setting(
            "allowed_hosts",
            "text",
            None,
            "Host names to answer under, with commas between, beside loopback names and the "
            "address; off, any name, unless the address is loopback.",
        ),
        Setting("grpc_port", "port", 4317, "OTLP over gRPC; off, not at all."),
        Setting("http_port", "port", 4318, "OTLP over HTTP; off, not at all."),
        Setting(
            "metrics_port", "port", 9464, "/metrics, /healthz and /readyz; / is the live page."
        ),
        Setting("page", "switch", True, "The live page at /; off, the metrics are there, too."),
        Setting("page_contents", "switch", False, "Let the page show arguments and results."),
        Setting("task_group", "text", None, "Task group of runs that name none."),
        Setting("t_max", "count", None, "Turns within which success counts towards AUV."),
        Setting(
            "policy",
            "text",
            None,
            "Rules whose crossing is counted as an intervention that would have stopped the run, "
            "as in loop_repeats=3,steps=50, or the file of a policy (.toml); TIDEGAUGE_POLICY can "
            "name it, too. Nothing is stopped: the agents are elsewhere.",
        ),
        Setting("record_to", "file", None, "Record the runs as step events here, to be replayed."),
        Setting("token_file", "file", None, "Senders are to show the bearer token in this file."),
        Setting("tls_certificate", "file", None, "Speak TLS on all ports, with this certificate."),
        Setting("tls_key", "file", None, "Its private key."),
        Setting("tls_client_ca", "file", None, "Answer only clients with a certificate by these."),
        Setting(
            "forward_to",
            "text",
            None,
            "Pass the requests on to this OTLP endpoint: http://HOST:4318 or grpc://HOST:4317.",
        ),
        Setting("forward_token_file", "file", None, "Bearer token to show to that endpoint."),
        Setting("forward_ca", "file", None, "Trust that endpoint's certificate by these alone."),
        Setting(
            "forward_queue_bytes", "count", 64 * 1024 * 1024, "Bytes that wait for it at most."
        ),
        Setting("forward_timeout", "seconds", 10.0, "Time for one attempt."),
        Setting("forward_give_up_after", "seconds", 60.0, "After so long a request is dropped."),
        Setting(
            "kafka",
            "text",
            None,
            "Be a gateway of a fleet: send the spans to these brokers, HOST:PORT with commas "
            "between, to be measured by tidegauge worker; nothing is measured here.",
        ),
        Setting("topic", "text", None, "The topic that takes them; it must be there."),
        Setting(
            "kafka_contents",
            "switch",
            False,
            "Send arguments, results and tasks as they are; off, digests of them.",
        ),
        Setting(
            "kafka_digest_key_file",
            "file",
            None,
            "Key those digests with what is in this file, the same for all gateways; without a key "
            "short contents can be guessed.",
        ),
        Setting(
            "kafka_config", "file", None, "TOML of librdkafka's properties: SASL, TLS, limits."
        ),
        Setting(
            "kafka_queue_bytes",
            "count",
            64 * 1024 * 1024,
            "Bytes that wait for the brokers at most; then senders are told to wait.",
        ),
        Setting(
            "settle_seconds", "seconds", 0.5, "How long later spans may overtake earlier ones."
        ),
        Setting("idle_seconds", "seconds", 600.0, "A run without a span for so long is ended."),
        Setting("max_request_bytes", "count", 16 * 1024 * 1024, "Of a request, also decompressed."),
        Setting("max_request_spans", "count", 100_000, "Spans read of one request."),
        Setting("max_attributes", "count", 2_000, "Attributes read of one span."),
        Setting("max_attribute_length", "count", 1_048_576, "Characters read of one attribute."),
        Setting("max_connections", "count", 64, "Connections (HTTP), requests (gRPC) at a time."),
        Setting("max_queued_spans", "count", 100_000, "Spans that wait; then senders are told to."),
        Setting("max_traces", "count", 10_000, "Open traces held."),
        Setting("max_runs", "count", 10_000, "Open runs held."),
        Setting("max_remembered_spans", "count", 500_000, "Spans remembered, to know them again."),
        Setting("shutdown_seconds", "seconds", 5.0, "Time for each step of the shutdown."),
    ),
)
