"""The documented tail sampling in a real Collector, whose program ``TIDEGAUGE_OTELCOL`` names.

It needs the ``tail_sampling`` processor, as ``otelcol-contrib`` has it.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from support.otlp_receiver import http_receiver
from support.processes import run_python, stopped_in_the_end, wait_until_ready

OTELCOL = os.environ.get("TIDEGAUGE_OTELCOL")
CONFIG = Path(__file__).parents[2] / "examples" / "otel-collector" / "tail-sampling.yaml"

AGENT = """
import tidegauge
from tidegauge.errors import RunStopped
tidegauge.configure(serve_metrics=False, stop_on_loop=3)
for number in range(100):
    looping, failing = number % 20 == 3, number % 20 == 11
    try:
        with tidegauge.run(agent="looping" if looping else "agent", run_id=f"r{number}") as run:
            for step in range(6):
                run.act("look", {"page": 0 if looping else step})
                run.observe("a page" if looping else f"page {step}")
            if failing:
                run.finish(success=False)
    except RunStopped:
        pass
"""


@pytest.mark.system
@pytest.mark.skipif(OTELCOL is None, reason="TIDEGAUGE_OTELCOL names no Collector")
def test_a_collector_keeps_the_troubled_runs(tmp_path: Path) -> None:
    assert OTELCOL is not None
    with socket.socket() as free, http_receiver() as arrived:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        changed = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": endpoint}}}},
            "processors": {"tail_sampling": {"decision_wait": "3s"}, "batch": {"timeout": "200ms"}},
            "exporters": {"otlphttp": {"endpoint": arrived.endpoint, "compression": "none"}},
            "service": {"telemetry": {"metrics": {"level": "none"}}},
        }
        configuration = yaml.safe_load(CONFIG.read_text())
        del configuration["receivers"]["otlp"]["protocols"]["grpc"]
        given, mine = tmp_path / "given.yaml", tmp_path / "changed.yaml"
        given.write_text(yaml.safe_dump(configuration))
        mine.write_text(yaml.safe_dump(changed))
        free.close()
        with (tmp_path / "log.txt").open("w") as log:
            collector = subprocess.Popen(
                [OTELCOL, "--config", given, "--config", mine], stdout=log, stderr=log
            )
        with stopped_in_the_end(collector):
            host, _, port = endpoint.partition(":")

            def listens() -> bool:
                with socket.create_connection((host, int(port)), 1):
                    return True

            wait_until_ready(collector, tmp_path / "log.txt", listens)
            run_python(AGENT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"http://{endpoint}/v1/traces")
            troubled = {f"r{number}" for number in range(100) if number % 20 in (3, 11)}

            def kept() -> set[str]:
                return {span.attributes.get("tidegauge.run.id", "") for span in arrived.spans}

            arrived.wait_until(lambda: troubled <= kept(), 60)
    drawn = kept() - troubled - {""}
    assert len(drawn) < 10  # 1 in 100 of 90
    spans = [span for span in arrived.spans if span.name.startswith("execute_tool")]
    # a looping run is stopped after four calls
    assert len(spans) == 5 * 4 + 5 * 6 + 6 * len(drawn)
