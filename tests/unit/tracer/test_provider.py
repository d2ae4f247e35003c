"""Where spans go: the application's providers, else the standard variables, else nowhere."""

from __future__ import annotations

import json

import pytest

from support.processes import run_python

OPENS = """
import json, sys
from tidegauge.tracer import open_telemetry
telemetry = open_telemetry()
spans = telemetry.tracer.start_span("s")
kinds = [type(own.exporter.exporter).__module__ for own in telemetry.owned]
print(json.dumps({"recording": spans.is_recording(), "owned": kinds}))
telemetry.shutdown()
"""
HAS_ITS_OWN = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
provider = TracerProvider(shutdown_on_exit=False)
trace.set_tracer_provider(provider)
from tidegauge.tracer import open_telemetry
telemetry = open_telemetry()
span = telemetry.tracer.start_span("s")
telemetry.shutdown()
print(json.dumps({"recording": span.is_recording(), "owned": len(telemetry.owned)}))
"""
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
HTTP = ["opentelemetry.exporter.otlp.proto.http.trace_exporter"]
HTTP_LOGS = ["opentelemetry.exporter.otlp.proto.http._log_exporter"]
GRPC = ["opentelemetry.exporter.otlp.proto.grpc.trace_exporter"]
GRPC_LOGS = ["opentelemetry.exporter.otlp.proto.grpc._log_exporter"]


def opened(environ, code=OPENS):
    done = run_python(code, **environ)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("environ", "owned"),
    [
        ({}, []),
        (ENDPOINT, HTTP + HTTP_LOGS),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, GRPC + GRPC_LOGS),
        (
            {
                **ENDPOINT,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/protobuf",
            },
            GRPC + HTTP_LOGS,
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, HTTP),
        ({**ENDPOINT, "OTEL_LOGS_EXPORTER": "none"}, HTTP),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, []),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console, otlp"}, HTTP + HTTP_LOGS),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, []),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE "}, []),
        ({**ENDPOINT, "OTEL_TRACES_SAMPLER": "always_off"}, HTTP + HTTP_LOGS),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "  "}, []),
    ],
)
def test_the_standard_variables(environ, owned):
    reported = opened(environ)
    assert reported["owned"] == owned
    sampled = "OTEL_TRACES_SAMPLER" not in environ
    assert reported["recording"] is (bool(owned) and sampled)


def test_the_application_s_own_provider_wins_and_is_left_open():
    assert opened(ENDPOINT, HAS_ITS_OWN) == {"recording": True, "owned": 0}
