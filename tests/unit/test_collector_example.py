"""The collector's configuration in the examples: its pipelines use what is defined, all of it."""

from __future__ import annotations

from pathlib import Path

import yaml

from tidegauge.tracer.conventions import TROUBLED

CONFIG = Path(__file__).parents[2] / "examples" / "otel-collector" / "config.yaml"


def test_pipelines_take_every_signal_and_use_what_is_defined() -> None:
    config = yaml.safe_load(CONFIG.read_text())
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"traces", "logs", "metrics"}
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in pipelines.values() for name in pipeline[kind]}
        assert used == set(config[kind])
    assert all(pipeline["processors"][0] == "memory_limiter" for pipeline in pipelines.values())


def test_metrics_go_to_prometheus_under_the_catalogue_s_names() -> None:
    config = yaml.safe_load(CONFIG.read_text())
    assert config["service"]["pipelines"]["metrics"]["exporters"] == ["prometheus"]
    assert config["exporters"]["prometheus"]["add_metric_suffixes"] is True
    protocols = config["receivers"]["otlp"]["protocols"]
    assert [protocols[name]["endpoint"] for name in ("grpc", "http")] == [
        "127.0.0.1:4317",
        "127.0.0.1:4318",
    ]


def test_tail_sampling_uses_the_attributes_of_runs() -> None:
    config = yaml.safe_load(CONFIG.with_name("tail-sampling.yaml").read_text())
    [pipeline] = config["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(config[kind])
    policies = config["processors"]["tail_sampling"]["policies"]
    assert all(set(policy) == {"name", "type", policy["type"]} for policy in policies)
    assert policies[0]["boolean_attribute"] == {"key": TROUBLED, "value": True}
