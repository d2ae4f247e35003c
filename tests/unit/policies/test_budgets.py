"""Budgets: what is counted is exact, and what happens when they are used up is decided once."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import ConfigurationError, RunStopped
from tidegauge.events import Call, Decision, ModelUsage, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import EngineSink, configure
from tidegauge.policies import Budget, Policy, Rule
from tidegauge.policies.budget import LiveBudgets, amounts_of
from tidegauge.policies.live_policy import RunPolicy
from tidegauge.policies.prices import DOLLAR, ModelPrice, default_prices, price_of
from tidegauge.run_stores.sql_stores import SqliteRunStore
from tidegauge.runs.context import run as open_run
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start

PRICES = {"m": ModelPrice(3, 15, 0.3, 3.75), "flat": ModelPrice(0.1)}


class Runs:
    """Runs under budgets, with a clock that the test sets."""

    def __init__(self, *budgets: Budget, rules: Any = (), prices: Any = None) -> None:
        self.now = 1_000.0
        policy = Policy(rules, budgets=budgets, prices=PRICES if prices is None else prices)
        self.sink = EngineSink(Engine(clock=None), policy, clock=lambda: self.now)
        assert self.sink.limits is not None
        self.budgets = self.sink.limits.budgets

    def start(self, run: str = "r", **labels: Any) -> str:
        self.sink.run_started(RunStarted(run=run, **labels))
        return run

    def spend(self, run: str = "r", tokens: int | None = None, **usage: Any) -> Decision:
        return self.sink.model_called(run, ModelUsage(tokens, **usage))

    def call(self, *tools: str, run: str = "r", blockable: bool = True) -> Decision:
        calls = tuple(Call(tool, number) for number, tool in enumerate(tools))
        return self.sink.step_issued(Step(run, calls, blockable=blockable))

    def reports(self, run: str = "r") -> Any:
        measured = self.sink.engine.get(run)
        assert measured is not None
        return dict(measured.totals.interventions)


def test_a_run_whose_model_only_talks_is_stopped_after_the_call_that_uses_the_budget_up() -> None:
    runs = Runs(Budget("tokens", 50_000, nudge_at=0))
    runs.start()
    decisions = [runs.spend(tokens=8_000).action for _ in range(8)]
    assert decisions == ["go_on"] * 6 + ["stop", "go_on"]
    assert runs.call("look").stop  # what is decided once stays so
    assert runs.reports() == {("stop", "budget_tokens"): 1}


def test_the_model_is_informed_once_of_what_is_left() -> None:
    runs = Runs(Budget("usd", 2.0))
    runs.start(model="m")
    cheap = [runs.spend(input_tokens=read, output_tokens=0) for read in [100_000] * 6 + [1]]
    assert [one.action for one in cheap] == ["go_on"] * 5 + ["nudge", "go_on"]
    assert cheap[5].advice == (
        "The budget of $2.00 for this run is nearly used up: $0.20 left. Finish with what you have."
    )
    assert cheap[5].message is not None
    assert "$0.20 left" in cheap[5].message


def test_a_nudge_at_the_end_of_a_budget_is_given_once_and_the_run_goes_on() -> None:
    runs = Runs(Budget("tokens", 100, action="nudge"))
    runs.start()
    actions = [runs.spend(tokens=45).action for _ in range(5)]
    assert actions == ["go_on", "nudge", "nudge", "go_on", "go_on"]


def test_a_budget_that_only_observes_counts_what_it_would_have_stopped() -> None:
    runs = Runs(Budget("tokens", 100, action="observe"))
    runs.start()
    assert {runs.spend(tokens=60).action for _ in range(3)} == {"go_on"}
    assert runs.reports() == {("would_stop", "budget_tokens"): 1}
    runs = Runs(Budget("tokens", 100), Budget("calls", 1))
    runs.start(observe_only=True)
    assert {runs.spend(tokens=60).action for _ in range(3)} == {"go_on"}
    assert {runs.call("look").action for _ in range(3)} == {"go_on"}
    assert set(runs.reports()) == {("would_stop", "budget_tokens"), ("would_stop", "budget_calls")}


def test_a_budget_of_calls_is_not_exceeded() -> None:
    runs = Runs(Budget("calls", 3, tool="search", action="block", nudge_at=0))
    runs.start()
    actions = [runs.call(*tools).action for tools in (["search"], ["search", "look"], ["look"])]
    assert actions == ["go_on", "go_on", "go_on"]
    refused = runs.call("search", "search")  # of two calls, one would be too many
    assert (refused.action, refused.reason) == ("block", "budget_calls")
    assert refused.advice is not None
    assert refused.advice.startswith(
        "This call was not run: the budget of 3 calls of search for this run is used up."
    )
    assert runs.call("search").action == "go_on"  # the refused ones are not counted
    assert runs.call("search").block
    assert runs.call("search", blockable=False).action == "go_on"  # nobody can answer it
    assert runs.call("look").action == "go_on"


def test_calls_that_a_rule_blocks_are_given_back() -> None:
    runs = Runs(Budget("calls", 5, action="block"), rules=[Rule("loop_repeats", 1, "block")])
    runs.start()
    for step in range(9):
        decision = runs.call("look")
        if not decision.block:
            runs.sink.step_observed(Outcome("r", (), step))
    state: Any = runs.sink.engine.get("r").policy
    ran = 9 - sum(count for (action, _), count in runs.reports().items() if action == "block")
    assert list(state.spent.values()) == [ran]


def test_a_run_inside_another_spends_from_both_and_stops_when_either_has_nothing_left() -> None:
    runs = Runs(Budget("tokens", 100, nudge_at=0))
    runs.start("outer")
    runs.start("inner", parent="outer")
    assert runs.spend("outer", 60).action == "go_on"
    assert runs.spend("inner", 50).stop
    assert runs.sink.model_called("outer", None).stop  # before its next model call
    runs.start("other")
    assert runs.spend("other", 50).action == "go_on"


def test_runs_of_a_conversation_and_of_an_agent_share_their_budgets() -> None:
    runs = Runs(
        Budget("tokens", 100, per="conversation", nudge_at=0),
        Budget("tokens", 150, per="agent", agent="a", nudge_at=0),
    )
    for run, agent, conversation in [
        ("1", "a", "x"),
        ("2", "b", "x"),
        ("3", "a", None),
        ("4", "a", "y"),
    ]:
        runs.start(run, agent=agent, conversation=conversation)
    assert runs.spend("1", 60).action == "go_on"
    assert runs.spend("2", 60).message == (
        "the budget of 100 tokens for this conversation is used up: 120 tokens"
    )
    assert runs.spend("3", 60).action == "go_on"
    assert runs.spend("4", 60).message == (
        "the budget of 150 tokens for this agent is used up: 180 tokens"
    )


def test_a_window_forgets_what_was_spent_before_it() -> None:
    runs = Runs(Budget("tokens", 100, per="agent", window="1h", action="nudge", nudge_at=0))
    runs.start(agent="a")
    assert runs.spend(tokens=99).action == "go_on"
    runs.now += 3_600 + 61
    assert runs.spend(tokens=99).action == "go_on"
    runs.now += 3_500
    assert runs.spend(tokens=1).nudge


def test_a_window_is_exact_to_a_sixtieth_and_never_counts_too_little() -> None:
    draw = random.Random(1)
    budget = Budget("tokens", 10**9, window=60)
    runs = Runs(budget)
    runs.start()
    spent: list[tuple[float, int]] = []
    for _ in range(300):
        runs.now += draw.uniform(0, 3)
        tokens = draw.randrange(100)
        runs.spend(tokens=tokens)
        spent.append((runs.now, tokens))
        state: Any = runs.sink.engine.get("r").policy
        [count] = state.spent.values()
        assert len(count) <= 61
        [counted] = [meter.total(count, runs.now) for meter in runs.budgets._meters]
        assert sum(n for t, n in spent if t > runs.now - 60) <= counted
        assert counted <= sum(n for t, n in spent if t > runs.now - 61)


def test_seconds_are_those_in_which_the_run_works() -> None:
    runs = Runs(Budget("seconds", 600, nudge_at=0.5))
    runs.start()
    runs.now += 200
    runs.sink.run_waits("r", True)
    runs.now += 10_000  # a person thinks about it
    runs.sink.run_waits("r", False)
    assert runs.call("look").action == "go_on"
    runs.now += 100
    nudge = runs.call("look")
    assert (nudge.action, nudge.message) == (
        "nudge",
        "the budget of 600 seconds for this run is nearly used up: 300 seconds left",
    )
    runs.now += 300
    assert runs.sink.model_called("r", None).stop


def test_seconds_of_spans_are_those_of_their_clock() -> None:
    runs = Runs(Budget("seconds", 60, nudge_at=0))
    runs.start()
    assert runs.spend(tokens=1, began=900.0, ended=950.0).action == "go_on"
    assert runs.spend(tokens=1, began=950.0, ended=960.0).stop


def test_what_runs_share_counts_their_seconds_once() -> None:
    runs = Runs(Budget("seconds", 100, per="agent", agent="a", nudge_at=0))
    runs.start("outer", agent="a")
    runs.start("inner", agent="b", parent="outer")
    runs.now += 60
    assert runs.call("look", run="inner").action == "go_on"
    assert runs.call("look", run="outer").action == "go_on"
    runs.now += 39
    assert runs.call("look", run="outer").action == "go_on"
    runs.now += 1
    assert runs.call("look", run="outer").stop


def test_tokens_are_counted_apart() -> None:
    usage = ModelUsage(None, 1_000, 50, 900, 40, 20)
    assert amounts_of(usage, None) == {
        "tokens": 1_050,
        "input_tokens": 1_000,
        "output_tokens": 50,
        "cache_read_tokens": 900,
        "cache_write_tokens": 40,
        "reasoning_tokens": 20,
    }
    runs = Runs(Budget("reasoning_tokens", 50, nudge_at=0))
    runs.start()
    assert runs.sink.model_called("r", usage).action == "go_on"
    assert runs.spend(tokens=10**6).action == "go_on"  # of which it is not known
    assert runs.sink.model_called("r", usage._replace(reasoning_tokens=30)).stop


def test_numbers_that_no_model_can_report_are_left_out() -> None:
    assert amounts_of(ModelUsage(None, -5, 3, cache_read_tokens=10**40), -7) == {"output_tokens": 3}


def test_a_price_has_its_parts() -> None:
    usage = ModelUsage(None, 1_000, 50, 900, 40)
    expected = Fraction("60") * 3 + 900 * Fraction("0.3") + 40 * Fraction("3.75") + 50 * 15
    assert Fraction(PRICES["m"].cost(usage) or 0, DOLLAR) == expected / 10**6
    assert ModelPrice(2).cost(ModelUsage(1_000)) == 2 * DOLLAR // 1_000
    assert ModelPrice(2, 8).cost(ModelUsage(1_000)) is None
    assert price_of(default_prices(), "gpt-4o-2024-08-06") == price_of(default_prices(), "gpt-4o")
    assert price_of(default_prices(), "no-such-model", None) is None


def test_a_model_without_a_price_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    runs = Runs(Budget("usd", 1e-9))
    runs.start()
    for _ in range(3):
        assert runs.spend(input_tokens=5, output_tokens=5, model="odd").action == "go_on"
    assert runs.spend(tokens=5, model="m").action == "go_on"
    assert [record.message.split("; ")[0] for record in caplog.records] == [
        "tidegauge: a budget in $ does not count the calls of odd, because its price is not known",
        "tidegauge: a budget in $ does not count the calls of m, because its tokens are reported "
        "together, and have several prices",
    ]
    assert runs.spend(usd=0.5, model="odd").stop  # the provider says what it cost


def test_dollars_and_tokens_of_many_runs_in_threads_are_exact() -> None:
    """1,000 such runs were compared once; here are fewer."""
    compare(runs=60)


def compare(runs: int) -> None:
    """Random runs in threads, against sums of fractions that are counted apart."""
    pipeline = configure(
        serve_metrics=False,
        budgets=[
            Budget("usd", 10**6, per="agent"),
            Budget("tokens", 10**12, per="conversation"),
        ],
        prices=PRICES,
    )
    draw = random.Random(runs)
    scripts = [
        (
            f"agent{draw.randrange(5)}",
            f"talk{draw.randrange(7)}",
            [
                (draw.choice(["m", "flat"]), draw.randrange(10**5), draw.randrange(10**4))
                for _ in range(draw.randrange(1, 12))
            ],
        )
        for _ in range(runs)
    ]

    def work(script: tuple[str, str, list[tuple[str, int, int]]]) -> None:
        agent, conversation, calls = script
        with open_run(agent=agent, conversation=conversation) as run:
            for number, (model, read, written) in enumerate(calls):
                run.spend(
                    input_tokens=read,
                    output_tokens=written,
                    cache_read_tokens=read // 3,
                    model=model,
                )
                run.act("look", {"at": number})
                run.observe(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, scripts))
    dollars: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for agent, conversation, calls in scripts:
        for model, read, written in calls:
            parts = [(read, "0.1"), (written, "0.1")]
            if model == "m":
                parts = [(read - read // 3, "3"), (read // 3, "0.3"), (written, "15")]
            for count, price in parts:
                dollars[agent] += count * Fraction(price) / 10**6  # type: ignore[assignment]
            tokens[conversation] += read + written
    limits = pipeline._sink.limits
    assert limits is not None
    counted: dict[str, dict[str, Any]] = {"usd": {}, "tokens": {}}
    for meter, scope, count in limits.budgets.state():
        counted[meter.split("|")[0]][scope] = count
    assert {name: Fraction(one, DOLLAR) for name, one in counted["usd"].items()} == dict(dollars)
    assert counted["tokens"] == dict(tokens)
    shown = {metric.name: values for metric, values in limits.metrics().items()}
    assert sum(shown["tidegauge_model_tokens_total"][(one,)] for one in ("input", "output")) == (
        tokens.total()
    )
    pipeline.shutdown()


def test_a_shared_budget_is_exceeded_by_the_calls_under_way_at_most() -> None:
    threads, tokens = 8, 100
    pipeline = configure(
        serve_metrics=False, budgets=[Budget("tokens", 10_000, per="agent", nudge_at=0)]
    )
    spent: list[int] = []

    def work(number: int) -> None:
        with open_run(agent="a") as run:
            while True:
                run.act("look", {"by": number})
                spent.append(tokens)  # the model is called: nothing can stop that any more
                run.spend(tokens)

    def stopped(number: int) -> bool:
        try:
            work(number)
        except RunStopped:
            return True
        return False

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(stopped, range(threads)))
    assert 10_000 <= sum(spent) <= 10_000 + (threads - 1) * tokens
    pipeline.shutdown()


def test_what_a_run_has_spent_is_saved_with_it() -> None:
    runs = Runs(Budget("tokens", 100, nudge_at=0))
    runs.start()
    runs.spend(tokens=60)
    measured = runs.sink.engine.get("r")
    assert measured is not None
    with measured.lock:
        saved = save_run(measured)
    other = Runs(Budget("tokens", 100, nudge_at=0))
    other.sink.engine.run_started(saved_start(saved))
    loaded = other.sink.engine.get("r")
    assert loaded is not None
    with loaded.lock:
        load_run(loaded, saved)
    other.sink.run_restored(loaded)
    assert other.spend(tokens=50).stop


def test_a_state_without_budgets_is_read() -> None:
    runs = Runs(Budget("tokens", 100, nudge_at=0), rules=[Rule("steps", 9, "nudge")])
    runs.start()
    runs.call("look")
    measured = runs.sink.engine.get("r")
    assert measured is not None
    with measured.lock:
        saved = save_run(measured)
        load_run(measured, {**saved, "policy": RunPolicy().state()})  # as before there were any
    assert runs.spend(tokens=60).action == "go_on"
    assert runs.spend(tokens=60).stop


def test_what_runs_share_survives_a_restart_where_a_run_store_is_set(tmp_path: Path) -> None:
    def spend(tokens: int, *, saves: bool = True) -> str:
        """One process, which ends in order, or is killed a second later."""
        pipeline = configure(
            serve_metrics=False,
            run_store=tmp_path / "runs.db",
            budgets=[
                Budget("tokens", 100, per="conversation", nudge_at=0),
                Budget("tokens", 1_000, per="agent", window="1d", nudge_at=0),
            ],
        )
        try:
            with open_run(agent="a", conversation="c") as run:
                run.spend(tokens)
            return "goes on"
        except RunStopped as stop:
            return stop.reason
        finally:
            if saves:
                pipeline.shutdown()
            else:
                pipeline.force_flush()

    assert [spend(40), spend(40, saves=False), spend(19), spend(1)] == [
        *("goes on", "goes on", "goes on", "budget_tokens")
    ]
    configure(serve_metrics=False).shutdown()
    store = SqliteRunStore(tmp_path / "runs.db")
    assert store.take_expired(1e12) != []  # one state, which is kept for a year
    assert store.take_expired(1e12) == []


def test_a_rule_reads_how_many_tokens_a_run_spends_in_a_minute() -> None:
    rule = Rule("tokens_per_minute", 100, "stop")
    now = 0.0
    engine = Engine(clock=lambda: now, token_rate=Policy([rule]).reads_token_rate)
    sink = EngineSink(engine, Policy([rule]))
    sink.run_started(RunStarted(run="r"))
    actions = []
    for now, tokens in [(0.0, 90), (61.0, None), (62.0, 60), (90.0, 39), (100.0, 1)]:
        actions.append(sink.step_issued(Step("r", (Call("look", now),), tokens=tokens)))
    assert [one.action for one in actions] == ["go_on"] * 4 + ["stop"]
    assert actions[-1].message == "100 tokens were spent in a minute"
    plain = Engine()
    plain.run_started(RunStarted(run="r"))
    measured = plain.get("r")
    assert measured is not None
    assert measured.signals().tokens_per_minute is None


def test_what_runs_share_is_bounded() -> None:
    budgets = LiveBudgets([Budget("tokens", 10, per="conversation")])
    policy = Policy(budgets=[Budget("tokens", 10, per="conversation")])
    sink = EngineSink(Engine(clock=None), policy, clock=lambda: 1.0)
    assert sink.limits is not None
    budgets = sink.limits.budgets
    for number in range(10_050):
        run = f"r{number}"
        sink.run_started(RunStarted(run=run, conversation=run))
        sink.model_called(run, ModelUsage(1))
        sink.run_ended(RunEnded(run=run))
    state = budgets.state()
    assert len(state) == 10_000
    assert state[-1][1:] == ["r10049", 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "euro"}, "the kind of a budget is 'euro'; use one of usd, tokens"),
        ({"per": "day"}, "the per of a budget is 'day'; use one of run, conversation, agent"),
        ({"action": "pause"}, "the action of a budget is 'pause'; use one of observe"),
        ({"limit": 0}, "a budget of usd is 0; use a number above 0"),
        ({"limit": float("nan")}, "a budget of usd is nan; use a number above 0"),
        ({"kind": "tokens", "limit": 1.5}, "a budget of tokens is 1.5; use a whole number above 0"),
        ({"tool": "search"}, "a budget of usd has a tool; only a budget of calls has one"),
        ({"nudge_at": 1}, "nudge_at of a budget is 1; use 0 or more, but less than 1"),
        ({"window": "1 week"}, "the window of a budget is '1 week'; use a time such as 30s"),
        ({"window": "0s"}, "the window of a budget is '0s'; use a time such as 30s"),
        ({"kind": "seconds", "window": "1h"}, "a budget of seconds of one run has a window"),
    ],
)
def test_what_is_no_budget_is_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Budget(**{"kind": "usd", "limit": 1, **given})
