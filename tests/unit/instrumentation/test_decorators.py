"""``@tidegauge.agent`` and ``@tidegauge.tool``."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
from contextlib import suppress

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace

import tidegauge
from support.span_story import story
from tidegauge import ConfigurationError, RunStopped
from tidegauge.runs.open_run import current_run
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import SuccessRate
from tidegauge.testing import capture


@tidegauge.tool
def add(left, right=0, *rest, **named):
    return left + right + sum(rest) + sum(named.values())


@tidegauge.tool
def fail(error):
    raise error


@tidegauge.tool(name="slow add")
async def slow_add(left, right=0):
    await asyncio.sleep(0)
    return left + right


@tidegauge.tool
async def slow_fail(error):
    await asyncio.sleep(0)
    raise error


def group(seen):
    return seen.pipeline.engine.snapshot().groups[0]


def arguments(seen):
    return [span.attributes.get("gen_ai.tool.call.arguments") for span in seen.spans[:-1]]


def test_the_whole_story_of_a_sync_agent():
    @tidegauge.agent(name="adder", task_group="sums", t_max=5, model="m", memory="off")
    def agent(numbers, task):
        with suppress(ValueError):
            fail(ValueError("no"))
        return add(*numbers)

    with capture(repetition=False) as seen:
        assert agent([1, 2], "add them") == 3
    (name, kind, status, attributes, children) = story(seen)[0]
    assert (name, kind, status) == ("invoke_agent adder", "INTERNAL", "")
    assert attributes.pop("tidegauge.run.id")
    assert attributes == {
        "gen_ai.agent.name": "adder",
        "gen_ai.request.model": "m",
        "tidegauge.task_group": "sums",
        "tidegauge.memory": "off",
        "tidegauge.t_max": 5,
        "tidegauge.steps": 2,
        "tidegauge.outcome": "unknown",
        "tidegauge.loop.ratio": 0.0,
        "tidegauge.stale_score.max": 0,
        "tidegauge.loop.steps": 0,
        "tidegauge.novelty": 1.0,
        "tidegauge.recurrence.max": 0,
        "tidegauge.troubled": False,
    }
    assert children == [
        (
            "execute_tool fail",
            "INTERNAL",
            "ERROR",
            {
                "gen_ai.tool.name": "fail",
                "tidegauge.step.index": 0,
                "tidegauge.action.digest": "#0",
                "tidegauge.state.digest": "#1",
                "error.type": "builtins.ValueError",
            },
            [],
        ),
        (
            "execute_tool add",
            "INTERNAL",
            "",
            {
                "gen_ai.tool.name": "add",
                "tidegauge.step.index": 1,
                "tidegauge.action.digest": "#2",
                "tidegauge.state.digest": "#3",
            },
            [],
        ),
    ]


async def test_an_async_agent_with_async_and_sync_tools():
    @tidegauge.agent
    async def agent(task):
        with suppress(ValueError):
            await slow_fail(ValueError("no"))
        return await slow_add(add(1, 2), 3)

    with capture() as seen:
        assert inspect.iscoroutinefunction(agent)
        assert await agent("task") == 6
    assert seen.tree() == [
        "invoke_agent agent",
        "  execute_tool slow_fail",
        "  execute_tool add",
        "  execute_tool slow add",
    ]
    assert [child[2] for child in story(seen)[0][4]] == ["ERROR", "", ""]


class TestNesting:
    def test_a_tool_outside_of_a_run_is_a_plain_function(self):
        with capture() as seen:
            assert add(1, 2) == 3
            with pytest.raises(ValueError, match="no"):
                fail(ValueError("no"))
        assert seen.spans == []

    async def test_a_tool_inside_a_tool_is_no_step(self):
        @tidegauge.tool
        def outer():
            return add(add(1, 2), 3)

        @tidegauge.tool
        async def slow_outer():
            return await slow_add(add(1, 2), 3)

        with capture() as seen, tidegauge.run():
            assert outer() == 6
            assert await slow_outer() == 6
            assert add(1) == 1
        assert seen.tree() == [
            "invoke_agent",
            "  execute_tool outer",
            "  execute_tool slow_outer",
            "  execute_tool add",
        ]
        assert group(seen).totals.steps == 3

    def test_an_agent_inside_a_tool_is_a_run_of_its_own(self):
        @tidegauge.agent
        def helper(task):
            return add(1, 2)

        @tidegauge.tool
        def delegate(task):
            return helper(task)

        @tidegauge.agent
        def chief(task):
            return delegate(task) + add(3)

        with capture() as seen:
            assert chief("all of it") == 6
        assert seen.tree() == [
            "invoke_agent chief",
            "  execute_tool delegate",
            "    invoke_agent helper",
            "      execute_tool add",
            "  execute_tool add",
        ]
        spans = {span.name: span.attributes for span in seen.spans}
        inner, outer = spans["invoke_agent helper"], spans["invoke_agent chief"]
        assert inner["tidegauge.run.parent"] == outer["tidegauge.run.id"]
        assert (inner["tidegauge.steps"], outer["tidegauge.steps"]) == (1, 2)

    def test_what_a_tool_opens_hangs_on_its_span(self):
        with capture() as seen:
            tracer = seen.pipeline.settings.tracer_provider.get_tracer("app")

            @tidegauge.tool
            def query():
                with tracer.start_as_current_span("SELECT"):
                    return trace.get_current_span().name  # type: ignore[attr-defined]

            with tidegauge.run():
                assert query() == "SELECT"
        assert seen.tree() == ["invoke_agent", "  execute_tool query", "    SELECT"]

    def test_an_agent_calls_itself(self):
        @tidegauge.agent
        def agent(depth):
            return add(1) + (agent(depth - 1) if depth else 0)

        with capture() as seen:
            assert agent(2) == 3
        assert seen.tree() == [
            "invoke_agent agent",
            "  execute_tool add",
            "  invoke_agent agent",
            "    execute_tool add",
            "    invoke_agent agent",
            "      execute_tool add",
        ]

    async def test_tools_at_once_are_steps_of_their_own(self):
        with capture(capture_content=True) as seen, tidegauge.run():
            assert await asyncio.gather(*(slow_add(n) for n in range(20))) == [*range(20)]
        assert seen.tree() == ["invoke_agent", *["  execute_tool slow add"] * 20]
        for span in seen.spans[:-1]:
            reported = span.attributes
            assert (
                reported["gen_ai.tool.call.arguments"]
                == f'{{"left":{reported["tidegauge.step.index"]!s}}}'
            )
            assert reported["gen_ai.tool.call.result"] == str(reported["tidegauge.step.index"])

    async def test_a_tool_in_a_thread_that_has_the_context_is_a_step(self):
        with capture() as seen, tidegauge.run():
            assert await asyncio.to_thread(add, 1, 2) == 3
        assert seen.tree() == ["invoke_agent", "  execute_tool add"]


class TestArguments:
    def test_they_are_named_however_they_are_given(self):
        class Toolbox:
            @tidegauge.tool
            def method(self, left, right=0):
                return left + right

            @classmethod
            @tidegauge.tool
            def of_class(cls, left):
                return left

            @staticmethod
            @tidegauge.tool
            def static(left):
                return left

        with capture(capture_content=True) as seen, tidegauge.run():
            add(1, 2)
            add(left=1, right=2)
            add(1, 2, 3, 4, five=5)
            Toolbox().method(1, right=2)
            Toolbox().of_class(1)
            Toolbox.static(1)
        assert arguments(seen) == [
            '{"left":1,"right":2}',
            '{"left":1,"right":2}',
            '{"*":[3,4],"five":5,"left":1,"right":2}',
            '{"left":1,"right":2}',
            '{"left":1}',
            '{"left":1}',
        ]

    def test_the_same_call_of_another_object_repeats(self):
        class Toolbox:
            @tidegauge.tool
            def look(self):
                return "nothing"

        with capture() as seen, tidegauge.run():
            for _ in range(4):
                Toolbox().look()
        assert group(seen).totals.loop_steps == {"look": 2}

    def test_only_a_method_has_an_object_of_its_own(self):
        @tidegauge.tool
        def instances_of(cls):
            return "none"

        @tidegauge.tool
        def bound(self, left):
            return "none"

        class Toolbox:
            @tidegauge.tool
            @classmethod
            def of_class(kind, left):
                return "none"

            def compare(self, cls):
                return "none"

        with capture(capture_content=True) as seen, tidegauge.run():
            instances_of("Dog")
            bound(1, 2)
            Toolbox.of_class(1)
            tidegauge.tool(Toolbox().compare)("Cat")
        assert arguments(seen) == [
            '{"cls":"Dog"}',
            '{"left":2,"self":1}',
            '{"left":1}',
            '{"cls":"Cat"}',
        ]

    def test_a_keyword_does_not_replace_what_is_given_by_position(self):
        @tidegauge.tool
        def lookup(key, /, **extra):
            return "none"

        with capture(capture_content=True) as seen, tidegauge.run():
            lookup("Dog", key=1)
            lookup("Cat", other=1)
        assert arguments(seen) == ['{"**":{"key":1},"key":"Dog"}', '{"key":"Cat","other":1}']

    def test_the_task_is_the_first_argument_that_is_text(self):
        @tidegauge.agent
        def agent(number, *, task):
            return add(1)

        with capture(capture_content=True) as seen:
            agent(7, task="find it")
        assert seen.spans[-1].attributes["tidegauge.task"] == "find it"

    def test_functions_without_a_signature_or_a_name_are_tools(self):
        class Adder:
            def __call__(self, left, right):
                return left + right

        with capture() as seen, tidegauge.run():
            assert tidegauge.tool(max)(1, 2) == 2
            assert tidegauge.tool(functools.partial(max, 3))(1, 2) == 3
            assert tidegauge.tool(Adder())(1, 2) == 3
        assert seen.tree() == [
            "invoke_agent",
            "  execute_tool max",
            "  execute_tool max",
            "  execute_tool Adder",
        ]

    def test_a_decorated_function_keeps_its_name_and_its_signature(self):
        assert add.__name__ == "add"
        assert [*inspect.signature(add).parameters] == ["left", "right", "rest", "named"]

    @pytest.mark.parametrize("decorate", [tidegauge.agent, tidegauge.tool])
    def test_a_class_is_refused_where_it_is_decorated(self, decorate):
        class Toolbox:
            pass

        with pytest.raises(ConfigurationError, match="Toolbox is a class; decorate its methods"):
            decorate(Toolbox)

    @pytest.mark.parametrize("decorate", [tidegauge.agent, tidegauge.tool])
    @pytest.mark.parametrize(
        "thing",
        [
            property(len),
            functools.cached_property(len),
            functools.partialmethod(len),
            functools.singledispatchmethod(len),
            classmethod(property(len)),  # type: ignore[arg-type]
            5,
        ],
    )
    def test_so_is_what_cannot_be_called(self, decorate, thing):
        with pytest.raises(ConfigurationError, match=r"^\w+ is not a function; decorate"):
            decorate(thing)


class TestFailures:
    def test_an_exception_of_a_tool_goes_on_to_the_caller(self):
        error = ValueError("mine")
        with capture() as seen, tidegauge.run():
            with pytest.raises(ValueError, match="mine") as caught:
                fail(error)
            assert current_run.get().in_tool is False
        assert caught.value is error
        assert story(seen)[0][2] == ""

    def test_an_exception_of_an_agent_ends_its_run_as_error(self):
        @tidegauge.agent(success=lambda answer: True)
        def agent():
            fail(ValueError("mine"))

        with capture() as seen, pytest.raises(ValueError, match="mine"):
            agent()
        _, _, status, attributes, children = story(seen)[0]
        assert (status, attributes["error.type"]) == ("ERROR", "builtins.ValueError")
        assert attributes["tidegauge.outcome"] == "error"
        assert children[0][2] == "ERROR"
        assert group(seen).finished.of(SuccessRate).value == 0

    async def test_a_tool_that_is_cancelled_closes_its_span_and_is_no_outcome(self):
        @tidegauge.tool
        async def hang():
            await asyncio.sleep(60)

        with capture() as seen, tidegauge.run():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(hang(), 0.01)
            assert [span.name for span in seen.spans] == ["execute_tool hang"]
            assert add(1) == 1
            report = seen.pipeline.engine.snapshot().active[0]
        assert story(seen)[0][4][0][2] == ""
        assert (report.steps, report.result_streak, report.failed_rounds) == (2, 1, 0)

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2), GeneratorExit()])
    def test_an_interrupt_is_never_replaced_by_a_stop(self, error):
        with capture(stop_on_failed_rounds=1) as seen, pytest.raises(type(error)), tidegauge.run():
            fail(error)
        assert seen.tree() == ["invoke_agent", "  execute_tool fail"]

    def test_success_is_decided_by_the_answer(self):
        @tidegauge.agent(success=lambda answer: answer == 4)
        def agent(left, right):
            return add(left, right)

        with capture() as seen:
            agent(2, 2)
            agent(2, 3)
        rate = group(seen).finished.of(SuccessRate)
        assert (rate.solved, rate.runs) == (1, 2)

    @pytest.mark.usefixtures("faults_are_swallowed")
    def test_a_success_that_cannot_be_decided_is_not_known(self):
        @tidegauge.agent(success=lambda answer: answer.missing)
        def agent():
            return 4

        with capture() as seen:
            assert agent() == 4
        assert internal_errors.counts() == {"agent.finish": 1}
        assert group(seen).finished.finished == {"unknown": 1}


class TestStop:
    def looping(self, bodies):
        @tidegauge.tool
        def look():
            bodies.append(1)
            return "nothing"

        @tidegauge.agent(name="looper")
        def agent():
            while True:
                look()

        return agent

    def test_the_tool_is_not_called_when_the_run_is_stopped(self):
        bodies = []
        with capture(stop_on_loop=2) as seen, pytest.raises(RunStopped) as caught:
            self.looping(bodies)()
        assert caught.value.step == 3
        assert len(bodies) == 3
        assert len(seen.tree()) == 4
        _, _, status, attributes, _ = story(seen)[0]
        assert (status, attributes["tidegauge.stopped.reason"]) == ("", "loop_repeats")

    async def test_an_async_tool_is_not_called_either(self):
        bodies = []

        @tidegauge.tool
        async def look():
            bodies.append(1)
            return "nothing"

        @tidegauge.agent
        async def agent():
            while True:
                await look()

        with capture(stop_on_loop=2), pytest.raises(RunStopped) as caught:
            await agent()
        assert (caught.value.step, len(bodies)) == (3, 3)

    def test_a_stop_that_was_caught_stays(self):
        bodies = []

        @tidegauge.tool
        def look():
            bodies.append(1)
            return "nothing"

        @tidegauge.agent
        def agent():
            stops = 0
            for _ in range(6):
                try:
                    look()
                except RunStopped:
                    stops += 1
            return stops

        with capture(stop_on_loop=1) as seen:
            assert agent() == 4
        assert len(bodies) == 2
        assert story(seen)[0][3]["tidegauge.outcome"] == "stopped"

    def test_the_stop_of_an_agent_inside_a_tool_is_a_failure_of_that_tool(self):
        inner = self.looping([])

        @tidegauge.tool
        def delegate():
            inner()

        with capture(stop_on_loop=2) as seen, pytest.raises(RunStopped), tidegauge.run():
            delegate()
        outer = story(seen)[0]
        assert outer[3]["tidegauge.outcome"] == "stopped"
        assert outer[4][0][3]["error.type"] == "tidegauge.errors.RunStopped"
        assert outer[4][0][4][0][0] == "invoke_agent looper"


@pytest.mark.usefixtures("faults_are_swallowed")
class TestFaults:
    @tidegauge.agent(name="five")
    def agent(self):
        return [add(n) for n in (7, 7, 7, 7, 7)]

    @pytest.mark.parametrize("method", ["run_started", "step_issued", "step_observed", "run_ended"])
    def test_a_broken_sink(self, monkeypatch, method):
        with capture() as seen:
            monkeypatch.setattr(type(seen.pipeline.recorder.sink), method, broken)
            assert self.agent() == [7] * 5
        assert seen.tree() == ["invoke_agent five", *["  execute_tool add"] * 5]
        assert internal_errors.counts()
        tools = seen.spans[:-1]
        assert [span.name for span in tools] == ["execute_tool add"] * 5  # each ended by itself

    def test_a_step_that_was_not_taken_does_not_get_another_s_outcome(self, monkeypatch):
        with capture() as seen, tidegauge.run():
            add(1)
            with monkeypatch.context() as patch:
                patch.setattr(seen.pipeline.engine, "issue", broken)
                add(2)
            add(3)
        assert group(seen).totals.steps == 2
        assert seen.pipeline.engine.snapshot().dropped_events == 0

    def test_a_broken_start_of_a_span(self, monkeypatch):
        with capture() as seen:
            monkeypatch.setattr(seen.pipeline.recorder.spans, "start_run", broken)
            assert self.agent() == [7] * 5
        assert seen.tree() == []
        assert group(seen).totals.steps == 5

    def test_arguments_that_cannot_be_compared(self):
        class Hostile:
            __slots__ = ("me",)  # a cycle: what it holds can't be written

            def __init__(self):
                self.me = self

            def __str__(self):
                raise RuntimeError("no")

            __repr__ = __str__

        @tidegauge.tool
        def take(thing):
            return "nothing"

        with capture() as seen, tidegauge.run():
            for _ in range(4):
                assert take(Hostile()) == "nothing"
        assert group(seen).totals.loop_steps == {}
        assert internal_errors.counts() == {}


class TestCrowd:
    """A thousand agents at once, and none has another's steps."""

    def check(self, seen, count):
        roots = story(seen)
        assert len(roots) == count
        for _, _, _, attributes, children in roots:
            number = int(attributes["gen_ai.agent.name"].removeprefix("agent-"))
            fields = [child[3]["gen_ai.tool.call.arguments"] for child in children]
            assert fields == [f'{{"left":{number},"right":{n}}}' for n in range(3)]
            results = [child[3]["gen_ai.tool.call.result"] for child in children]
            assert results == [str(number + n) for n in range(3)]

    async def test_asyncio_tasks(self):
        async def agent(number):
            @tidegauge.agent(name=f"agent-{number}")
            async def inner():
                return [await slow_add(number, n) for n in range(3)]

            return await inner()

        with capture(capture_content=True) as seen:
            await asyncio.gather(*(agent(number) for number in range(1_000)))
        self.check(seen, 1_000)

    def test_threads(self):
        def work(thread):
            for number in range(thread, 400, 8):

                @tidegauge.agent(name=f"agent-{number}")
                def inner(number=number):
                    return [add(number, n) for n in range(3)]

                inner()

        with capture(capture_content=True) as seen:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.check(seen, 400)


def broken(*args, **kwargs):
    raise ZeroDivisionError("a fault of ours")


class Unbound(Exception):
    @property  # type: ignore[misc]
    def __class__(self):
        raise RuntimeError("not bound")


class UnboundGroup(ExceptionGroup):
    @property
    def exceptions(self):
        raise RuntimeError("not bound")

    def subgroup(self, condition):
        raise RuntimeError("not bound")


@pytest.mark.parametrize("kind", ["alone", "in a group"])
def test_an_exception_that_cannot_be_asked_for_its_class_ends_the_run(kind):
    error = Unbound("x") if kind == "alone" else UnboundGroup("x", [Unbound("y")])
    caught = None

    @tidegauge.agent
    def agent():
        fail(error)

    with capture() as seen:
        try:
            agent()
        except BaseException as found:  # pytest asks for its class
            caught = found
        assert caught is error
        assert not seen.pipeline.engine.snapshot().active
        assert story(seen)[0][3]["tidegauge.outcome"] == "error"


def test_a_stop_is_found_in_groups_of_any_class():
    @tidegauge.agent
    def agent():
        try:
            while True:
                add(1)
        except RunStopped as stop:
            raise ExceptionGroup("x", [UnboundGroup("y", [Unbound("z"), stop])]) from stop

    with capture(stop_on_loop=2) as seen:
        with suppress(ExceptionGroup):
            agent()
        assert story(seen)[0][3]["tidegauge.outcome"] == "stopped"


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.parametrize("kind", [tidegauge.tool, tidegauge.agent])
def test_near_the_recursion_limit_a_function_runs_wherever_it_has_room(kind):
    def down(levels, function):
        return down(levels - 1, function) if levels else function()

    plain, decorated = lambda: "result", kind(lambda: "result")

    def deepest(function):
        for levels in range(sys.getrecursionlimit() - 300, sys.getrecursionlimit()):
            with tidegauge.run(agent="deep"):
                try:
                    assert down(levels, function) == "result"
                except RecursionError:
                    return levels
        raise AssertionError

    with capture():
        lost = deepest(plain) - deepest(decorated)
    traced = sys.gettrace() is not None  # what counts coverage takes a level, too
    assert lost <= 2 + traced, "the wrapper and what begins the call take a level each"


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.parametrize("error", [RuntimeError("no"), RecursionError()])
@pytest.mark.parametrize(("name", "where"), [("attach", "enter"), ("get_current", "leave")])
def test_a_tool_runs_though_nothing_can_be_made_current(monkeypatch, name, where, error):
    def broken(*args):
        raise error

    def breaks(now):
        if now == where:
            monkeypatch.setattr(otel_context, name, broken)

    @tidegauge.tool
    def look():
        breaks("leave")
        return "empty"

    with capture() as seen, tidegauge.run() as opened:
        breaks("enter")
        assert look() == "empty"
        monkeypatch.undo()
        assert tidegauge.get_current_run().id == opened.id
        assert add(3) == 3
    assert group(seen).totals.steps == 2
    assert internal_errors.counts() == {f"current.{where}": 1}
