"""Polls without a declaration: which calls wait, look or start something, and what a run does."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.polling_allowance import POLL_STEPS
from tidegauge.streaming_metrics.polls import ANYTHING, Polling, polling_of
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start

WAITS = """
sleep 5
sleep 5 && cat build.log
sleep 5; curl -s http://localhost:3000/health
cat build.log; sleep 3
cd /x && sleep 10 && tail -n 5 out/build.log | grep -c done
while ! curl -s localhost:8080; do sleep 1; done
until [ "$(docker inspect -f '{{.State}}' db)" = healthy ]; do sleep 2; done
for i in $(seq 10); do cat x.log; sleep 1; done
for i in {1..5}; do sleep 1; tail ${LOG}; done
[ -f done ] || sleep 3
(sleep 5; cat x)
sleep 2; cat x 2>&1 | head
sleep 5; grep -q "done" build.log && echo yes || echo no
sleep 30; gh run list --limit 1 2>/dev/null
sleep 3; docker compose -f a.yml ps
sleep 60 && nvidia-smi && squeue -u me
wait
wait $PID
tail -f build.log
timeout 60 tail -f build.log
watch -n1 cat build.log
inotifywait build
docker logs -f web
docker wait web
journalctl -u web -f
kubectl wait --for=condition=ready pod/web
kubectl rollout status deploy/web
kubectl get pods -w
gh run watch 123
gh pr checks 7 --watch
aws cloudformation wait stack-create-complete; sleep 5
Start-Sleep 5; Get-Content build.log
sleep 1 \\
  && cat build.log
"""
LOOKS = """
cat build.log
tail -1 out/build.log
grep -c done build.log 2>/dev/null
[ -s build.log ] && cat build.log
ps aux | grep make
jobs
kill -0 123
curl -s localhost:3000
curl -so /dev/null http://127.0.0.1:8/
wget -qO- http://localhost:8/
docker compose ps
docker logs web
gh pr checks 12
kubectl -n shop get pods
aws ecs describe-services
git fetch
"""
STARTS = """
make > build.log 2>&1 &
(sleep 6; echo 'build done' >> build.log) >/dev/null 2>&1 & echo started
nohup ./train.sh &
npm run dev & sleep 3 && curl localhost:3000
docker run -d --name web nginx
docker compose up -d
kubectl apply -f web.yml
git push origin main
gh workflow run ci.yml
sbatch job.sh
tmux new-session -d -s x 'make'
"""
NOTHING = """
pytest
sleep 1; pytest
sleep 5 && make test
sleep 2; ./status.sh
echo sleep 5
grep -r "sleep 5" src && make
python -c "import time; time.sleep(5)"
git commit -m "wait & see"
npm run wait
pkill x; sleep 1; npm start
sleep 1; echo x > y
sleep 1; cat x | tee y
sleep 1; rm x
sleep 5 && `foo`
sleep 5 && echo "$(make)"
sleep 5; cat 'unclosed
kill 123; sleep 1
sed -i s/a/b/ f; sleep 1
curl -X POST http://localhost:1/x
curl -d @f http://localhost:1/x
curl -O http://localhost:1/x; sleep 1
sleep 1; wget http://localhost:1/x
find . -delete; sleep 1
docker run --rm x make
cat > x <<EOF
"""


def lines(text: str) -> list[str]:
    found: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith("  "):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def of(command: str, **more: Any) -> Polling | None:
    return polling_of(Call("Bash", {"command": command, **more}))


class TestCommands:
    @pytest.mark.parametrize("command", lines(WAITS))
    def test_that_wait(self, command: str) -> None:
        found = of(command)
        assert found is not None
        assert found.waits

    @pytest.mark.parametrize("command", lines(LOOKS))
    def test_that_only_look(self, command: str) -> None:
        found = of(command)
        assert found is not None
        assert (found.waits, found.starts) == (False, None)
        assert found.looks is not None

    @pytest.mark.parametrize("command", lines(STARTS))
    def test_that_start_something(self, command: str) -> None:
        found = of(command)
        assert found is not None
        assert (found.waits, found.looks) == (False, None)
        assert ANYTHING in (found.starts or ())

    @pytest.mark.parametrize("command", lines(NOTHING))
    def test_that_do_anything_else(self, command: str) -> None:
        assert of(command) is None

    def test_what_they_look_at_and_write_has_names(self) -> None:
        found = of("make -C x 2> 'out/err.txt' | tee a.log &")
        assert found is not None
        assert found.starts == {ANYTHING, "err.txt", "a.log"}
        found = of("tail -n 3 ./out/err.txt")
        assert found is not None
        assert "err.txt" in (found.looks or ())

    def test_of_an_agent_that_runs_them_in_the_background(self) -> None:
        for more in ({"run_in_background": True}, {"is_background": True}, {"mode": "async"}):
            found = of("make", **more)
            assert found is not None
            assert found.starts == {ANYTHING}
        assert of("make", run_in_background=False) is None

    @pytest.mark.parametrize(
        "given",
        [
            "sleep 5; cat x",
            '{"cmd": "sleep 5; cat x"}',
            {"cmd": "sleep 5; cat x", "yield_time_ms": 10},
            {"command": ["bash", "-lc", "sleep 5; cat x"]},
        ],
    )
    def test_however_they_are_given(self, given: object) -> None:
        assert polling_of(Call("exec_command", given)) == Polling(True, frozenset({"x"}))

    @pytest.mark.parametrize(
        "given", [None, 5, {}, {"command": 5}, {5: 6}, "{", [], {"command": ["sleep", 5]}]
    )
    def test_other_arguments_say_nothing(self, given: object) -> None:
        assert polling_of(Call("bash", given)) is None

    @pytest.mark.parametrize("unit", ["a ", "'\"", "$(", '"$(', "\\", "{", "<", "&", "((("])
    def test_long_ones_take_no_long_time(self, unit: str) -> None:
        of(unit * (2_000 // len(unit)))  # a time that grows with the square would be minutes
        assert of(f"sleep 1; {'cat x; ' * 1_000}") is None


def test_other_marks_of_a_recording_say_nothing() -> None:
    assert polling_of(Call("bash", "sha:a1")) is None
    assert polling_of(Call("bash", "sha:a1/b2+uuids")) is None
    assert polling_of(Call("bash", "sha:a1/b2+uuids+waits")) == Polling(waits=True)


@pytest.mark.parametrize(
    ("tool", "given", "waits"),
    [
        ("write_stdin", {"session_id": 1, "chars": ""}, True),
        ("write_stdin", {"session_id": 1, "chars": "y\n"}, False),
        ("BashOutput", {"bash_id": "1"}, True),
        ("task_output", {"task_id": "1"}, True),
        ("TaskOutput", {"task_id": "1", "block": True}, True),
        ("Read", {"file_path": "/tmp/a/tasks/b1.output"}, True),
        ("Read", {"file_path": "/tmp/a/build.log"}, False),
        ("read_bash", {"shellId": "1", "delay": 5}, True),
        ("read_background_output", {"pid": 7}, True),
        ("wait_agent", {"ids": ["a"]}, True),
        ("wait", {"cell_id": "a"}, True),
        ("wait", {}, False),  # in a game, a move
        ("wait", None, False),
        ("sleep", {"seconds": 3}, True),
        ("sleep", None, True),
        ("terminal", {"command": ""}, True),
        ("bash", {"command": ""}, True),
        ("search", {"command": "sleep 5"}, False),
    ],
)
def test_tools_of_agents(tool: str, given: object, waits: bool) -> None:
    found = polling_of(Call(tool, given))
    assert (found is not None and found.waits) is waits


Played = tuple[str, object, object]


def bash(command: str, result: str = "building...") -> Played:
    return "Bash", {"command": command}, result


def play(rounds: Iterable[Played], engine: Engine | None = None, **reported: Any) -> list[int]:
    """Loop repeats at each step."""
    engine = engine or Engine(clock=None, detect_polls=True)
    if engine.get("r1") is None:
        engine.run_started(RunStarted(run="r1"))
    found = []
    for tool, arguments, result in rounds:
        issued = engine.step_issued(Step("r1", (Call(tool, arguments),)))
        engine.step_observed(Outcome("r1", (CallResult(result),), **reported))
        assert issued is not None
        found.append(issued.loop_repeats)
    return found


START = bash("make > build.log 2>&1 &", "started")


class TestInARun:
    @pytest.mark.parametrize(
        "look", [bash("sleep 5; tail -1 build.log"), ("write_stdin", {"chars": ""}, "")]
    )
    def test_waiting_is_no_loop_until_its_allowance_ends(self, look: Played) -> None:
        found = play([START, *[look] * (POLL_STEPS + 10)])
        assert found[: POLL_STEPS + 1] == [0] * (POLL_STEPS + 1)
        assert found[-1] > 3

    def test_a_sleep_for_ever_is_a_loop_in_the_end(self) -> None:
        assert play([bash("sleep 1", "")] * (POLL_STEPS + 10))[-1] > 3

    def test_looks_at_what_was_started_wait(self) -> None:
        looks = [bash("tail -1 build.log"), ("Read", {"file_path": "/x/build.log"}, "building...")]
        for look in [*looks, bash("ps aux"), bash("jobs"), bash("curl -s localhost:80")]:
            assert max(play([START, *[look] * 20])) == 0
        assert max(play([START, *looks * 20])) == 0

    def test_looks_at_something_else_do_not(self) -> None:
        assert max(play([START, *[bash("cat README.md")] * 20])) > 3
        assert max(play([START, *[bash("docker logs web")] * 20])) > 3

    def test_without_a_start_a_look_is_a_call_like_any_other(self) -> None:
        assert max(play([bash("tail -1 build.log")] * 20)) > 3

    def test_a_look_after_a_rest_waits(self) -> None:
        rounds = [bash("sleep 5", ""), bash("tail -1 build.log")] * 20
        assert max(play(rounds)) == 0
        rounds = [bash("sleep 5", ""), bash("cat a.log", "cat: a.log: No such file")] * 20
        assert max(play(rounds)) > 3, "it fails, and nothing was started"
        one = [bash("sleep 5", ""), *[bash("tail -1 build.log")] * 20]
        assert max(play(one)) > 3

    def test_between_equal_calls_it_hides_nothing(self) -> None:
        rounds = [bash("sleep 5", ""), bash("pytest", "1 failed")] * 10
        assert max(play(rounds)) >= 6

    def test_a_call_that_fails_the_same_way_is_none(self) -> None:
        engine = Engine(clock=None, detect_polls=True)
        engine.run_started(RunStarted(run="r1"))
        signals = None
        for _ in range(30):
            engine.step_issued(Step("r1", (Call("Bash", {"command": "pytest"}),)))
            signals = engine.step_observed(Outcome("r1", (CallResult("1 failed", True),)))
        assert signals is not None
        assert (signals.loop_repeats, signals.failed_rounds) == (28, 30)

    @pytest.mark.parametrize("failed", [True, None])
    def test_nor_is_one_that_waits_before(self, failed: bool | None) -> None:
        look = Call("Bash", {"command": "sleep 1; cat config.yaml"})
        engine = Engine(clock=None, detect_polls=True)
        for run, started in (("r1", False), ("r2", True)):
            engine.run_started(RunStarted(run=run))
            if started:
                engine.step_issued(Step(run, (Call("Bash", {"command": "make &"}),)))
                engine.step_observed(Outcome(run, (CallResult("started"),)))
            for _ in range(20):
                issued = engine.step_issued(Step(run, (look,)))
                result = CallResult("cat: config.yaml: No such file", failed)
                engine.step_observed(Outcome(run, (result,)))
            assert issued is not None
            assert issued.loop_repeats == (0 if started else 18)

    def test_a_file_that_is_read_while_waiting_is_no_place(self) -> None:
        engine = Engine(clock=None, detect_polls=True)
        assert max(play([START, *[bash("tail build.log")] * 20], engine, place="build.log")) == 0
        run = engine.get("r1")
        assert run is not None
        report = run.report()
        assert (report.skipped_steps, report.stuck_streak) == (20, 1)

    def test_every_call_of_a_round_must_wait(self) -> None:
        waits = Call("Bash", {"command": "sleep 5; cat build.log"})
        works = Call("Bash", {"command": "pytest"})
        for other, skipped in ((waits, 4), (works, 0)):
            engine = Engine(clock=None, detect_polls=True)
            engine.run_started(RunStarted(run="r1"))
            for _ in range(5):
                engine.step_issued(Step("r1", (waits, other)))
                engine.step_observed(
                    Outcome("r1", (CallResult("a", False), CallResult("b", False)))
                )
            run = engine.get("r1")
            assert run is not None
            assert run.report().skipped_steps == skipped

    def test_what_is_declared_decides(self) -> None:
        declared = {"Bash": ToolDeclaration(mutates=False, key=lambda given: given["command"])}
        engine = Engine(clock=None, declarations=declared, detect_polls=True)
        assert max(play([bash("sleep 5; cat build.log")] * 20, engine)) > 3

    def test_it_can_be_switched_off(self) -> None:
        engine = Engine(clock=None, detect_polls=False)
        assert max(play([bash("sleep 5; cat build.log")] * 20, engine)) > 3

    def test_new_results_of_what_was_started_begin_the_allowance_again(self) -> None:
        results = itertools.chain.from_iterable([f"{n} %"] * 50 for n in range(4))
        rounds = [bash("tail -1 build.log", result) for result in results]
        assert max(play([START, *rounds])) == 0

    def test_another_process_continues_it_and_knows_no_names(self) -> None:
        engine, other = Engine(clock=None, detect_polls=True), Engine(clock=None, detect_polls=True)
        play([START, *[bash("tail -1 build.log")] * 5], engine)
        run = engine.get("r1")
        assert run is not None
        state = save_run(run)
        assert "build.log" not in str(state)
        other.run_started(saved_start(state))
        again = other.get("r1")
        assert again is not None
        load_run(again, state)
        assert max(play([bash("tail -1 build.log")] * 20, other)) == 0

    def test_what_is_kept_of_starts_is_bounded(self) -> None:
        engine = Engine(clock=None, detect_polls=True)
        play([bash(f"make {n} > {n}.log &", "") for n in range(500)], engine)
        assert max(play([bash("cat 499.log")] * 20, engine)) == 0
        assert max(play([bash("cat 3.log")] * 20, engine)) > 3
