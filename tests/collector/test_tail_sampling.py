"""The documented tail sampling: the Collector keeps the troubled runs, whole."""

from __future__ import annotations

from pathlib import Path

from support.collector import EXAMPLES, collecting
from support.otlp_receiver import http_receiver
from support.processes import run_python

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


def test_a_collector_keeps_the_troubled_runs(tmp_path: Path) -> None:
    with http_receiver() as arrived:
        changes = {
            "processors": {"tail_sampling": {"decision_wait": "3s"}, "batch": {"timeout": "200ms"}},
            "exporters": {"otlphttp": {"endpoint": arrived.endpoint}},
        }
        file = EXAMPLES / "otel-collector" / "tail-sampling.yaml"
        with collecting(tmp_path, file, changes=changes) as collector:
            run_python(AGENT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector.traces_url)
            troubled = {f"r{number}" for number in range(100) if number % 20 in (3, 11)}

            def kept() -> set[str]:
                return {span.attributes.get("tidegauge.run.id", "") for span in arrived.spans}

            arrived.wait_until(lambda: troubled <= kept(), 60)
            assert collector.stop() == 0
    drawn = kept() - troubled - {""}
    assert len(drawn) < 10  # 1 in 100 of 90
    spans = [span for span in arrived.spans if span.name.startswith("execute_tool")]
    # a looping run is stopped after four calls
    assert len(spans) == 5 * 4 + 5 * 6 + 6 * len(drawn)
