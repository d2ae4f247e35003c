"""Budgets on spans: `serve` counts what agents elsewhere spend, workers decide on it."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from support.receiving import served

pytestmark = pytest.mark.system

PRICES = """
"m" = { input = 3, output = 15, cache_read = 0.3 }
"flat" = 0.1
"""
POLICY = """
format = 2

[[budget]]
kind = "usd"
limit = 1000000
per = "agent"

[[budget]]
kind = "tokens"
limit = 50000
"""


def talk(tracer: Tracer, agent: str, calls: list[tuple[str, int, int]]) -> None:
    """A run whose model only talks, by the GenAI conventions."""
    with tracer.start_as_current_span(
        f"invoke_agent {agent}",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent},
    ):
        for model, read, written in calls:
            attributes: dict[str, str | int] = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": model,
                "gen_ai.usage.input_tokens": read,
                "gen_ai.usage.output_tokens": written,
                "gen_ai.usage.cache_read.input_tokens": read // 3,
            }
            with tracer.start_as_current_span(f"chat {model}", attributes=attributes):
                pass


def test_a_run_whose_model_only_talks_would_be_stopped(tmp_path: Path) -> None:
    compare(tmp_path, runs=20)


def compare(tmp_path: Path, runs: int) -> None:
    """Random runs in threads, against sums of fractions that are counted apart."""
    policy, prices = tmp_path / "policy.toml", tmp_path / "prices.toml"
    policy.write_text(POLICY)
    prices.write_text(PRICES)
    draw = random.Random(runs)
    scripts = [
        (
            f"agent{draw.randrange(5)}",
            [
                (draw.choice(["m", "flat"]), draw.randrange(10_000), draw.randrange(1_000))
                for _ in range(draw.randrange(1, 12))
            ],
        )
        for _ in range(runs)
    ]
    with served("--policy", str(policy), "--prices", str(prices)) as server:
        provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{server.http}/v1/traces")
        provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000))
        tracer = provider.get_tracer("some.instrumentation")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: talk(tracer, *one), scripts))
        provider.shutdown()
        tokens: Counter[str] = Counter()
        dollars, over = Fraction(), 0
        for _, calls in scripts:
            for model, read, written in calls:
                tokens["input"] += read
                tokens["output"] += written
                tokens["cache_read"] += read // 3
                parts = [(read + written, "0.1")]
                if model == "m":
                    parts = [(read - read // 3, "3"), (read // 3, "0.3"), (written, "15")]
                dollars += sum([n * Fraction(price) for n, price in parts], Fraction()) / 10**6
            over += sum(read + written for _, read, written in calls) >= 50_000
        assert over > 0
        for kind, count in tokens.items():
            server.wait_for("tidegauge_model_tokens_total", kind, value=count)
        samples = server.samples()
        assert samples["tidegauge_model_cost_usd_total", ()] == float(dollars)
        would = [
            value
            for (name, labels), value in samples.items()
            if name == "tidegauge_interventions_total"
            and labels[2:] == ("would_stop", "budget_tokens")
        ]
        assert sum(would) == over
