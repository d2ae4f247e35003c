"""Target 7: what importing tidegauge adds to importing the OpenTelemetry SDK."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import Line, medians


def _process(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def measure() -> list[Line]:
    """Milliseconds, each import in a separate process."""
    taken = medians(
        {
            "sdk": lambda: _process("import opentelemetry.sdk.trace"),
            "tidegauge": lambda: _process("import opentelemetry.sdk.trace, tidegauge"),
        },
        rounds=11,
    )
    added = (taken["tidegauge"] - taken["sdk"]) * 1e3
    return [
        Line("import opentelemetry.sdk.trace", taken["sdk"] * 1e3, "ms"),
        Line("import tidegauge, added", added, "ms", 60),
    ]
