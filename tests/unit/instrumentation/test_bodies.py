"""Decorated functions of every kind: they stay what they are, and leave nothing behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import sys
import threading
import types
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from opentelemetry import trace

import tidegauge
from support.span_story import story
from tidegauge import CallBlocked, RunStopped
from tidegauge.runs.open_run import current_run
from tidegauge.safety.guard import internal_errors
from tidegauge.testing import capture


@tidegauge.tool
def look(place="here"):
    return f"nothing {place}"


def group(seen):
    return seen.pipeline.engine.snapshot().groups[0]


def results(seen):
    """What each tool call brought back, by its span."""
    return [
        span.attributes.get("gen_ai.tool.call.result")
        for span in seen.spans
        if span.name.startswith("execute_tool")
    ]


def nothing_is_open(seen):
    return (
        not seen.pipeline.engine.snapshot().active
        and seen.pipeline.recorder.spans.open_runs == 0
        and current_run.get() is None
        and trace.get_current_span() is trace.INVALID_SPAN
    )


class Watched:
    """Agents and tools that are generators, and what their bodies have seen."""

    def __init__(self):
        self.seen = []

        @tidegauge.agent(name="streamer")
        def agent(n):
            try:
                for number in range(n):
                    look(number)
                    self.seen.append(tidegauge.get_current_run().id)
                    given = yield number
                    if given is not None:
                        self.seen.append(given)
            except ValueError as error:
                look("after an error")
                yield f"caught {error}"
            finally:
                self.seen.append(f"closed in {tidegauge.get_current_run().id or 'no run'}")
            return "answer"

        @tidegauge.agent(name="streamer")
        async def slow_agent(n):
            try:
                for number in range(n):
                    await asyncio.sleep(0)
                    look(number)
                    self.seen.append(tidegauge.get_current_run().id)
                    given = yield number
                    if given is not None:
                        self.seen.append(given)
            except ValueError as error:
                look("after an error")
                yield f"caught {error}"
            finally:
                await asyncio.sleep(0)
                self.seen.append(f"closed in {tidegauge.get_current_run().id or 'no run'}")

        self.agent, self.slow_agent = agent, slow_agent

    def check(self, seen, steps):
        """The run had so many steps, ended as unknown and was the only one its body was in."""
        (root,) = [span for span in seen.spans if span.name == "invoke_agent streamer"]
        name = root.attributes["tidegauge.run.id"]
        assert root.attributes["tidegauge.steps"] == steps
        assert root.attributes["tidegauge.outcome"] == "unknown"
        assert self.seen[-1] == f"closed in {name}"
        assert {one for one in self.seen if len(one) == 32} == {name}
        assert seen.tree() == ["invoke_agent streamer", *["  execute_tool look"] * steps]
        assert nothing_is_open(seen)


class TestGenerators:
    def test_they_stay_generators(self):
        watched = Watched()
        assert inspect.isgeneratorfunction(watched.agent)
        assert inspect.isasyncgenfunction(watched.slow_agent)
        assert watched.agent.__name__ == "agent"

    def test_between_its_items_nothing_is_current(self):
        watched = Watched()
        with capture() as seen:
            for number in watched.agent(3):
                assert current_run.get() is None
                assert trace.get_current_span() is trace.INVALID_SPAN
                assert look("of the consumer") == "nothing of the consumer"
                assert number in (0, 1, 2)
        watched.check(seen, 3)

    async def test_nor_between_those_of_an_async_one(self):
        watched = Watched()
        with capture() as seen:
            async for _ in watched.slow_agent(3):
                assert current_run.get() is None
                assert trace.get_current_span() is trace.INVALID_SPAN
                look("of the consumer")
        watched.check(seen, 3)

    def test_the_consumer_s_own_run_is_its_own(self):
        watched = Watched()
        with capture() as seen, tidegauge.run(agent="consumer") as run:
            for _ in watched.agent(2):
                assert tidegauge.get_current_run().id == run.id
                look("of the consumer")
        (consumer,) = story(seen)
        assert [child[0] for child in consumer[4]] == ["invoke_agent streamer"] + [
            "execute_tool look"
        ] * 2
        assert len(consumer[4][0][4]) == 2

    def test_two_at_once_keep_apart(self):
        first, second = Watched(), Watched()
        with capture() as seen:
            for _ in zip(first.agent(4), second.agent(4), strict=True):
                assert current_run.get() is None
        assert len({*first.seen, *second.seen}) == 4
        assert [root[3]["tidegauge.steps"] for root in story(seen)] == [4, 4]

    def test_what_is_sent_and_what_is_returned_pass_through(self):
        watched = Watched()

        def consumer():
            return (yield from watched.agent(2))

        with capture() as seen:
            steps = consumer()
            assert next(steps) == 0
            assert steps.send("hint") == 1
            with pytest.raises(StopIteration) as stop:
                next(steps)
        assert stop.value.value == "answer"
        assert "hint" in watched.seen
        watched.check(seen, 2)

    async def test_what_is_sent_to_an_async_one_passes_through(self):
        watched = Watched()
        with capture() as seen:
            steps = watched.slow_agent(2)
            assert await anext(steps) == 0
            assert await steps.asend("hint") == 1
            with pytest.raises(StopAsyncIteration):
                await anext(steps)
        assert "hint" in watched.seen
        watched.check(seen, 2)

    def test_what_is_thrown_in_is_the_body_s_to_handle(self):
        watched = Watched()
        with capture() as seen:
            steps = watched.agent(9)
            next(steps)
            assert steps.throw(ValueError("no")) == "caught no"
            assert current_run.get() is None
            assert list(steps) == []
        watched.check(seen, 2)

    async def test_also_in_an_async_one(self):
        watched = Watched()
        with capture() as seen:
            steps = watched.slow_agent(9)
            await anext(steps)
            assert await steps.athrow(ValueError("no")) == "caught no"
            assert [item async for item in steps] == []
        watched.check(seen, 2)

    def test_what_the_body_does_not_handle_ends_the_run(self):
        watched = Watched()
        with capture() as seen:
            steps = watched.agent(9)
            next(steps)
            with pytest.raises(KeyError, match="mine"):
                steps.throw(KeyError("mine"))
        (root,) = story(seen)
        assert (root[2], root[3]["tidegauge.outcome"]) == ("ERROR", "error")
        assert nothing_is_open(seen)

    def test_one_closed_early_ends_its_run(self):
        watched = Watched()
        with capture() as seen:
            steps = watched.agent(9)
            next(steps)
            steps.close()
        watched.check(seen, 1)

    async def test_an_async_one_closed_early_ends_its_run(self):
        watched = Watched()
        with capture() as seen:
            steps = watched.slow_agent(9)
            await anext(steps)
            await steps.aclose()
        watched.check(seen, 1)

    def test_one_that_nobody_wants_any_more_ends_its_run(self):
        watched = Watched()
        with capture() as seen:
            for _ in watched.agent(9):
                break
            gc.collect()
        watched.check(seen, 1)

    async def test_an_async_one_that_nobody_wants_any_more_ends_its_run(self):
        watched = Watched()
        with capture() as seen:
            async for _ in watched.slow_agent(9):
                break
            gc.collect()
            for _ in range(10):
                await asyncio.sleep(0)
        watched.check(seen, 1)

    @pytest.mark.parametrize("attempt", range(5))  # a loop closes them in any order
    def test_a_loop_that_shuts_down_closes_it(self, attempt):
        watched = Watched()
        kept = []

        async def consumer():
            kept.append(watched.slow_agent(9))
            await anext(kept[0])

        with capture() as seen:
            asyncio.run(consumer())
            assert nothing_is_open(seen)
        assert seen.tree() == ["invoke_agent streamer", "  execute_tool look"]
        assert watched.seen[-1].startswith("closed in")

    def test_one_that_was_never_iterated_is_no_run(self):
        with capture() as seen:
            Watched().agent(9)
            Watched().slow_agent(9)
            gc.collect()
            assert seen.pipeline.engine.snapshot().groups == []
        assert seen.spans == []

    def test_it_is_consumed_in_threads(self):
        """A web server takes each item in whichever thread is free."""
        watched = Watched()
        with capture() as seen, ThreadPoolExecutor(4) as executor:
            steps = watched.agent(4)
            assert [executor.submit(next, steps).result() for _ in range(4)] == [0, 1, 2, 3]
            assert executor.submit(current_run.get).result() is None
            executor.submit(steps.close).result()
        watched.check(seen, 4)

    async def test_an_async_one_is_consumed_in_tasks(self):
        watched = Watched()
        with capture() as seen:
            steps = watched.slow_agent(4)
            for number in range(4):
                assert await asyncio.create_task(anext(steps)) == number
            await asyncio.create_task(steps.aclose())
        watched.check(seen, 4)

    async def test_a_cancelled_one_ends_its_run(self):
        @tidegauge.agent(name="streamer")
        async def agent():
            look()
            yield 1
            await asyncio.sleep(60)

        async def consume():
            async for _ in agent():
                pass

        with capture() as seen:
            task = asyncio.create_task(consume())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert nothing_is_open(seen)
        assert story(seen)[0][3]["tidegauge.outcome"] == "unknown"

    def test_what_its_body_has_opened_is_there_when_it_goes_on(self):
        with capture() as seen:
            tracer = seen.pipeline.settings.tracer_provider.get_tracer("app")

            @tidegauge.agent
            def agent():
                with tracer.start_as_current_span("plan"), tidegauge.run(agent="inner") as inner:
                    yield 1
                    assert tidegauge.get_current_run().id == inner.id
                    with tracer.start_as_current_span("act"):
                        look()
                look()

            assert [current_run.get() for _ in agent()] == [None]
            assert nothing_is_open(seen)
        assert seen.tree() == [
            "invoke_agent agent",
            "  plan",
            "    invoke_agent inner",
            "      act",
            "      execute_tool look",
            "  execute_tool look",
        ]

    def test_a_stop_reaches_the_consumer(self):
        @tidegauge.agent
        def agent():
            while True:
                yield look()

        with capture(stop_on_loop=2) as seen:
            with pytest.raises(RunStopped):
                list(agent())
            assert nothing_is_open(seen)
        assert story(seen)[0][3]["tidegauge.outcome"] == "stopped"

    def test_success_is_decided_by_what_it_returns_else_by_its_items(self):
        @tidegauge.agent(success=lambda answer: answer == "done")
        def returns():
            yield "working"
            return "done"

        @tidegauge.agent(success=lambda items: items[-1] == "done")
        def yields():
            yield "working"
            yield "done"

        @tidegauge.agent(success=lambda items: items[-1] == "done")
        async def yields_later():
            yield "working"
            yield "done"

        async def consume():
            return [item async for item in yields_later()]

        with capture() as seen:
            list(returns())
            list(yields())
            asyncio.run(consume())
            groups = seen.pipeline.engine.snapshot().groups
        assert [group.finished.finished for group in groups] == [{"success": 1}] * 3


class TestGeneratorTools:
    @pytest.fixture
    def search(self):
        @tidegauge.tool
        def search(n):
            assert current_run.get().in_tool
            yield from range(n)

        return search

    def test_their_outcome_is_the_list_of_their_items(self, search):
        with capture(capture_content=True) as seen, tidegauge.run():
            assert list(search(2)) == [0, 1]
            assert list(search(0)) == []
            report = seen.pipeline.engine.snapshot().active[0]
        assert results(seen) == ["[0,1]", "[]"]
        assert (report.steps, report.result_streak) == (2, 1)

    async def test_also_of_async_ones(self):
        @tidegauge.tool
        async def search(n):
            for number in range(n):
                await asyncio.sleep(0)
                yield number

        with capture(capture_content=True) as seen, tidegauge.run():
            assert [number async for number in search(2)] == [0, 1]
        assert results(seen) == ["[0,1]"]
        with capture():
            assert [number async for number in search(2)] == [0, 1]

    def test_what_they_return_is_their_outcome_instead(self):
        @tidegauge.tool
        def work():
            yield "half"
            return "all"

        with capture(capture_content=True) as seen, tidegauge.run():
            list(work())
        assert results(seen) == ["all"]

    def test_no_more_than_a_thousand_items_are_kept(self, search):
        with capture(capture_content=True) as seen, tidegauge.run():
            assert len(list(search(1_500))) == 1_500
        assert results(seen)[0].endswith("999]")

    def test_one_closed_early_has_brought_what_its_consumer_took(self, search):
        with capture(capture_content=True, stop_on_result_streak=2) as seen:
            taken = []
            with suppress(RunStopped), tidegauge.run():
                for _ in range(3):  # the stop waits for the next step: closing can raise nothing
                    for number in search(9):
                        taken.append(number)
                        if number == 1:
                            break
            assert taken == [0, 1, 0, 1]
            assert nothing_is_open(seen)
        assert results(seen) == ["[0,1]"] * 2

    def test_an_exception_is_their_outcome(self):
        @tidegauge.tool
        def search():
            yield 1
            raise ValueError("no")

        with capture() as seen, tidegauge.run():
            with pytest.raises(ValueError, match="no"):
                list(search())
            assert seen.pipeline.engine.snapshot().active[0].failed_rounds == 1
        assert story(seen)[0][4][0][2] == "ERROR"

    def test_a_step_begins_with_the_first_item(self, search):
        with capture() as seen, tidegauge.run():
            numbers = search(1)
            assert seen.pipeline.engine.snapshot().active[0].steps == 0
            list(numbers)
            assert seen.pipeline.engine.snapshot().active[0].steps == 1
            search(1)
            gc.collect()
        assert seen.tree() == ["invoke_agent", "  execute_tool search"]

    def test_their_steps_may_overlap(self, search):
        with capture(capture_content=True) as seen, tidegauge.run():
            assert [*zip(search(2), search(2), strict=True)] == [(0, 0), (1, 1)]
        assert results(seen) == ["[0,1]"] * 2
        assert group(seen).totals.steps == 2

    def test_outside_of_a_run_they_are_what_they_were(self):
        @tidegauge.tool
        def echo():
            given = yield 1
            return given

        def consumer():
            return (yield from echo())

        steps = consumer()
        next(steps)
        with pytest.raises(StopIteration) as stop:
            steps.send("x")
        assert stop.value.value == "x"


class TestAwaitables:
    """Plain functions that return what is to be awaited, or iterated, later."""

    async def test_a_step_lasts_until_the_coroutine_is_done(self):
        async def later(value):
            assert current_run.get().in_tool
            await asyncio.sleep(0)
            look("inside a tool: no step")
            return value

        @tidegauge.tool
        def fetch(value):
            return later(value)

        with capture(capture_content=True) as seen, tidegauge.run():
            assert [*await asyncio.gather(fetch(1), fetch(2))] == [1, 2]
            assert not tidegauge.get_current_run()._open._turns
        assert results(seen) == ["1", "2"]

    async def test_a_run_lasts_until_its_coroutine_is_done(self):
        async def work():
            look()
            return "done"

        @tidegauge.agent(success=lambda answer: answer == "done")
        def agent():
            return work()

        with capture() as seen:
            answer = agent()
            assert seen.spans == []
            assert await answer == "done"
        assert seen.tree() == ["invoke_agent agent", "  execute_tool look"]
        assert group(seen).finished.finished == {"success": 1}

    async def test_a_task_stays_a_task(self):
        async def work(value):
            await asyncio.sleep(0)
            if isinstance(value, Exception):
                raise value
            return value

        @tidegauge.tool
        def fetch(value):
            return asyncio.ensure_future(work(value))

        with capture(capture_content=True) as seen, tidegauge.run():
            task = fetch(1)
            assert isinstance(task, asyncio.Task)
            assert await task == 1
            with pytest.raises(ValueError, match="no"):
                await fetch(ValueError("no"))
            cancelled = fetch(2)
            cancelled.cancel()
            await asyncio.wait([cancelled])
        assert results(seen)[:2] == ["1", None]
        assert [child[2] for child in story(seen)[0][4]] == ["", "ERROR", ""]

    def test_so_does_a_future_of_an_executor(self):
        future = Future()
        with capture(capture_content=True, stop_on_result_streak=1) as seen:
            with tidegauge.run():
                assert tidegauge.tool(lambda: future)() is future
                future.set_result(7)  # the stop is not for the caller who sets it
                with pytest.raises(RunStopped):
                    look()
            assert nothing_is_open(seen)
        assert results(seen) == ["7"]

    async def test_other_awaitables_are_given_as_they_are(self):
        class Request:
            def __await__(self):
                return iter(())

        request = Request()
        with capture() as seen, tidegauge.run():
            assert tidegauge.tool(lambda: request)() is request
            assert seen.pipeline.engine.snapshot().active[0].result_streak is None
        assert seen.tree() == ["invoke_agent", "  execute_tool <lambda>"]

    def test_what_only_resembles_a_future_is_not_called(self):
        class Button:
            def add_done_callback(self, callback):
                raise AssertionError("called")

        button = Button()
        with capture() as seen, tidegauge.run():
            assert tidegauge.tool(lambda: button)() is button
        assert seen.tree() == ["invoke_agent", "  execute_tool <lambda>"]

    def test_an_agent_whose_generator_is_thrown_away_ends(self):
        def numbers():
            yield look()

        async def later_numbers():
            yield look()

        async def work():
            look()

        for make in (numbers, later_numbers):
            with capture() as seen:
                tidegauge.agent(functools.partial(lambda make: make(), make))()
                gc.collect()
                assert nothing_is_open(seen)
            assert seen.tree() == ["invoke_agent <lambda>"]
        with capture() as seen:
            work_later = work()
            tidegauge.agent(lambda: work_later)().close()
            assert nothing_is_open(seen)
            work_later.close()

    def test_a_returned_generator_is_the_run_s_body(self):
        with capture() as seen:
            items = tidegauge.agent(lambda: (look(number) for number in range(2)))()
            assert current_run.get() is None
            assert len(list(items)) == 2
        assert seen.tree() == ["invoke_agent <lambda>", *["  execute_tool look"] * 2]

    def test_a_generator_that_a_tool_keeps_is_given_as_it_is(self):
        class Feed:
            def __init__(self):
                self.made = None

            def rows(self):
                if self.made is None:
                    self.made = iter_rows()
                return self.made

        def iter_rows():
            yield from range(4)

        rows = tidegauge.tool(Feed.rows)
        feed = Feed()
        with capture() as seen, tidegauge.run():
            assert next(rows(feed)) == 0
            gc.collect()
            assert next(rows(feed)) == 1
            assert rows(feed) is rows(feed) is feed.made
            assert list(rows(feed)) == [2, 3]
            assert not tidegauge.get_current_run()._open._turns
        assert seen.tree() == ["invoke_agent", *["  execute_tool rows"] * 5]

    async def test_one_that_has_begun_is_given_as_it_is(self):
        def add_up():
            total = 0
            while True:
                total += yield total

        async def add_up_later():
            total = 0
            while True:
                total += yield total

        @tidegauge.tool
        def adder():
            made = add_up()
            next(made)
            return made

        @tidegauge.tool
        async def slow_adder():
            made = add_up_later()
            await anext(made)
            return made

        with capture() as seen, tidegauge.run():
            assert adder().send(5) == 5
            made = await slow_adder()
            assert await made.asend(5) == 5
            await made.aclose()
        assert seen.tree() == ["invoke_agent", "  execute_tool adder", "  execute_tool slow_adder"]

    async def test_new_ones_are_followed_by_every_observer(self):
        async def later():
            yield look()

        def debug(frame, event, arg):
            frame.f_locals  # noqa: B018 -- this refers to all of them
            return debug

        @tidegauge.agent
        def agent():
            return later()

        with capture() as seen:
            before = sys.gettrace()
            sys.settrace(debug)
            try:
                items = agent()
            finally:
                sys.settrace(before)
            assert [item async for item in items] == ["nothing here"]
        assert seen.tree() == ["invoke_agent agent", "  execute_tool look"]

    async def test_a_generator_that_is_a_coroutine_stays_one(self):
        @types.coroutine
        def nap(value):
            yield
            return value

        class Napping:
            @types.coroutine
            def __call__(self):
                yield
                return 3

        with capture(capture_content=True) as seen:
            decorated = tidegauge.tool(nap)
            partly = tidegauge.tool(functools.partial(nap, 2))
            returned = tidegauge.tool(lambda: nap(None))
            called = tidegauge.tool(Napping())
            assert inspect.isgeneratorfunction(decorated)
            assert await decorated(0) == 0
            with tidegauge.run():
                assert await decorated(1) == 1
                assert await partly() == 2
                assert await returned() is None
                assert await called() == 3
        assert results(seen) == ["1", "2", "null", "3"]

    async def test_an_exception_that_nobody_asks_for_is_still_logged(self):
        async def fail():
            raise ValueError("the user's")

        @tidegauge.tool
        def start():
            return asyncio.ensure_future(fail())

        received = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: received.append(context)
        )
        with capture() as seen, tidegauge.run():
            start()
            for _ in range(5):
                await asyncio.sleep(0)
            gc.collect()
        assert [one["message"] for one in received] == ["Task exception was never retrieved"]
        assert story(seen)[0][4][0][2] == "ERROR"

    def test_the_class_of_a_result_is_not_asked_for_anything(self):
        class Kind(type):  # noqa: PLW1641 -- it has no hash
            def __eq__(cls, other):
                raise AssertionError("called")

            def __getattribute__(cls, name):
                raise AssertionError(f"asked for {name}")

        class Own(metaclass=Kind):
            pass

        own = object.__new__(Own)
        with capture() as seen, tidegauge.run():
            assert tidegauge.tool(lambda: own)() is own
        assert seen.tree() == ["invoke_agent", "  execute_tool <lambda>"]
        assert internal_errors.counts() == {}

    def test_a_future_s_own_code_is_not_called(self):
        class Own(Future):
            def refuse(self, *args):
                raise AssertionError("called")

            add_done_callback = cancelled = exception = result = refuse

        class Foreign:
            add_done_callback = cancelled = exception = result = Own.refuse

        own = Own()
        own.set_result(7)
        with capture(capture_content=True) as seen, tidegauge.run():
            for future in (own, Foreign()):
                assert tidegauge.tool(lambda future: future)(future) is future
            assert not tidegauge.get_current_run()._open._turns
        assert results(seen)[0] == "7"
        assert internal_errors.counts() == {}

    async def test_callable_objects_and_partials_of_coroutine_functions(self):
        class Fetch:
            async def __call__(self, value):
                await asyncio.sleep(0)
                return value

        async def fetch(value, other):
            await asyncio.sleep(0)
            return value + other

        with capture(capture_content=True) as seen, tidegauge.run():
            tools = tidegauge.tool(Fetch()), tidegauge.tool(functools.partial(fetch, 1))
            assert all(map(inspect.iscoroutinefunction, tools))
            assert [await one(2) for one in tools] == [2, 3]
            assert await tidegauge.tool(functools.partial(Fetch()))(4) == 4
        assert results(seen) == ["2", "3", "4"]
        assert [line.split()[-1] for line in seen.tree()[1:]] == ["Fetch", "fetch", "Fetch"]


class TestMethods:
    def test_of_every_kind_and_in_either_order_of_decorators(self):
        class Toolbox:
            @tidegauge.tool
            def method(self, left):
                return left

            @classmethod
            @tidegauge.tool
            def of_class(cls, left):
                return left, cls

            @tidegauge.tool
            @classmethod
            def of_class_too(cls, left):
                return left, cls

            @staticmethod
            @tidegauge.tool
            def static(left):
                return left

            @tidegauge.tool
            @staticmethod
            def static_too(left):
                return left

            @tidegauge.tool
            def items(self, left):
                yield left

            partial = functools.partialmethod(method, 6)

        box = Toolbox()
        with capture(capture_content=True) as seen, tidegauge.run():
            assert box.method(1) == 1
            assert box.of_class(2) == Toolbox.of_class_too(2) == (2, Toolbox)
            assert box.static(3) == Toolbox.static_too(3) == 3
            assert list(box.items(4)) == [4]
            assert tidegauge.tool(box.method)(5) == 5  # a tool that calls a tool: one step
            assert box.partial() == 6
        arguments = {
            span.name.removeprefix("execute_tool "): span.attributes["gen_ai.tool.call.arguments"]
            for span in seen.spans[:-1]
        }
        assert arguments == {
            "method": '{"left":6}',
            "of_class": '{"left":2}',
            "of_class_too": '{"left":2}',
            "static": '{"left":3}',
            "static_too": '{"left":3}',
            "items": '{"left":4}',
        }
        assert group(seen).totals.steps == 8

    async def test_an_agent_is_a_method(self):
        class Assistant:
            @tidegauge.agent(name="assistant")
            async def answer(self, question):
                return look(question)

            @tidegauge.agent(name="streamer")
            async def stream(self, question):
                yield look(question)

        with capture(capture_content=True) as seen:
            assert await Assistant().answer("where?") == "nothing where?"
            assert [text async for text in Assistant().stream("there?")] == ["nothing there?"]
        assert [root[3]["tidegauge.task"] for root in story(seen)] == ["where?", "there?"]


class TestThreads:
    def test_a_thread_of_its_own_belongs_to_no_run(self):
        with capture() as seen, tidegauge.run(), ThreadPoolExecutor() as executor:
            assert executor.submit(look, 1).result() == "nothing 1"
        assert seen.tree() == ["invoke_agent"]

    def test_a_propagated_function_belongs_to_the_run(self):
        with (
            capture(capture_content=True) as seen,
            tidegauge.run() as run,
            ThreadPoolExecutor(8) as executor,
        ):
            assert [*executor.map(tidegauge.propagate(look), range(50))] == [
                f"nothing {number}" for number in range(50)
            ]

            @tidegauge.propagate
            def work():
                return tidegauge.get_current_run().id

            assert executor.submit(work).result() == run.id
            assert executor.submit(current_run.get).result() is None
        assert sorted(results(seen)) == sorted(f"nothing {number}" for number in range(50))
        assert group(seen).totals.steps == 50
        assert {span.attributes["tidegauge.step.index"] for span in seen.spans[:-1]} == {*range(50)}

    def test_it_belongs_to_the_run_it_was_handed_over_in(self):
        with capture() as seen, ThreadPoolExecutor() as executor:
            for name in ("first", "second"):
                with tidegauge.run(agent=name):
                    executor.submit(tidegauge.propagate(look)).result()
        assert seen.tree() == [
            "invoke_agent first",
            "  execute_tool look",
            "invoke_agent second",
            "  execute_tool look",
        ]

    def test_many_threads_issue_steps_of_one_run_at_once(self):
        barrier = threading.Barrier(8, timeout=30)

        def work(number):
            barrier.wait()
            for n in range(200):
                look(f"{number} {n}")

        with capture(capture_content=True) as seen:
            with tidegauge.run(), ThreadPoolExecutor(8) as executor:
                list(executor.map(tidegauge.propagate(work), range(8)))
            assert nothing_is_open(seen)
        assert group(seen).totals.steps == 1_600
        for span in seen.spans[:-1]:
            place = str(span.attributes["gen_ai.tool.call.arguments"]).split('"')[3]
            assert span.attributes["gen_ai.tool.call.result"] == f"nothing {place}"

    async def test_to_thread_and_task_groups_need_no_help(self):
        @tidegauge.tool
        async def slow_look(number):
            await asyncio.sleep(0)
            return number

        @tidegauge.agent
        async def agent():
            async with asyncio.TaskGroup() as tasks:
                for number in range(5):
                    tasks.create_task(slow_look(number))
                tasks.create_task(asyncio.to_thread(look))
            await asyncio.gather(slow_look(6), slow_look(7))
            return await asyncio.get_running_loop().run_in_executor(
                None, tidegauge.propagate(look), 8
            )

        with capture() as seen:
            assert await agent() == "nothing 8"
            assert nothing_is_open(seen)
        assert story(seen)[0][3]["tidegauge.steps"] == 9

    async def test_a_stop_in_a_task_group_ends_the_run_as_stopped(self):
        @tidegauge.tool
        async def slow_look():
            await asyncio.sleep(0)
            return "nothing"

        @tidegauge.agent
        async def agent():
            while True:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(slow_look())

        with capture(stop_on_loop=2) as seen:
            with pytest.raises(ExceptionGroup) as caught:
                await agent()
            assert caught.group_contains(RunStopped)
            assert nothing_is_open(seen)
        assert story(seen)[0][3]["tidegauge.outcome"] == "stopped"


class TestBlock:
    SETTINGS = {"block_on_loop": 2, "stop_on_loop": 4}  # noqa: RUF012 -- read only

    def test_the_answer_is_given_in_place_of_the_call(self):
        bodies, decisions = [], []

        def answer(decision):
            decisions.append(decision)
            return decision.advice

        @tidegauge.tool(on_block=answer)
        def search(query):
            bodies.append(query)
            return "nothing"

        with capture(**self.SETTINGS) as seen:
            with tidegauge.run():
                reported = [search("x") for _ in range(5)]
                with pytest.raises(RunStopped) as caught:
                    search("x")
            assert reported == ["nothing"] * 3 + [decision.advice for decision in decisions]
            assert nothing_is_open(seen)
        # states: none, then nothing, nothing, ...: repeated once at step 2, twice at step 3
        assert len(bodies) == 3
        assert [decision.signals.step for decision in decisions] == [3, 4]
        assert decisions[0].advice.startswith("This call was not run")
        assert (caught.value.step, caught.value.reason) == (5, "loop_repeats")
        assert seen.tree() == ["invoke_agent", *["  execute_tool search"] * 3]
        assert group(seen).totals.interventions == {
            ("block", "loop_repeats"): 2,
            ("stop", "loop_repeats"): 1,
            ("would_stop", "loop_evidence"): 1,
        }
        assert seen.pipeline.engine.snapshot().dropped_events == 0

    async def test_of_every_kind_of_function(self):
        def answer(decision):
            return "blocked"

        async def slow_answer(decision):
            return "blocked"

        @tidegauge.tool(on_block=answer)
        async def coroutine():
            return "nothing"

        @tidegauge.tool(on_block=slow_answer)
        async def coroutine_too():
            return "nothing"

        @tidegauge.tool(on_block=answer)
        def generator():
            yield "nothing"

        @tidegauge.tool(on_block=slow_answer)
        async def async_generator():
            yield "nothing"

        async def call(tool):
            if inspect.iscoroutinefunction(tool):
                return await tool()
            if inspect.isasyncgenfunction(tool):
                return [item async for item in tool()]
            return list(tool())

        for tool in (coroutine, coroutine_too, generator, async_generator):
            with capture(block_on_loop=2), tidegauge.run():
                reported = [await call(tool) for _ in range(5)]
            items = tool in (generator, async_generator)
            reported = [item for (item,) in reported] if items else reported
            assert reported == ["nothing"] * 3 + ["blocked"] * 2

    async def test_without_one_it_is_an_exception_whose_text_is_for_the_model(self):
        @tidegauge.tool
        async def slow_search():
            return "nothing"

        @tidegauge.tool
        def search_items():
            yield "nothing"

        async def call_slow():
            await slow_search()

        with capture(block_on_loop=2), tidegauge.run():
            for _ in range(3):
                await call_slow()
            with pytest.raises(CallBlocked) as caught:
                await call_slow()
        assert caught.value.tool == "slow_search"
        assert str(caught.value) == caught.value.advice
        assert "1 step, repeated 3 times, since step 2 (slow_search)" in str(caught.value)
        with capture(block_on_loop=2), tidegauge.run():
            for _ in range(3):
                list(search_items())
            with pytest.raises(CallBlocked):
                list(search_items())

    def test_a_run_that_lets_it_through_was_stopped(self):
        @tidegauge.agent
        def agent():
            while True:
                look()

        with capture(block_on_loop=2) as seen:
            with pytest.raises(CallBlocked):
                agent()
            assert nothing_is_open(seen)
        _, _, status, attributes, _ = story(seen)[0]
        assert (status, attributes["tidegauge.outcome"]) == ("", "stopped")
        assert attributes["tidegauge.stopped.reason"] == "loop_repeats"

    def test_something_else_clears_it(self):
        with capture(block_on_loop=2), tidegauge.run():
            for _ in range(3):
                look()
            with pytest.raises(CallBlocked):
                look()
            assert look("elsewhere") == "nothing elsewhere"
            assert look() == "nothing here"

    def test_an_exception_of_the_answer_is_the_user_s(self):
        def answer(decision):
            raise KeyError("mine")

        @tidegauge.tool(on_block=answer)
        def search():
            return "nothing"

        with capture(block_on_loop=1), tidegauge.run():
            search()
            search()
            with pytest.raises(KeyError, match="mine"):
                search()


class TestDeclarations:
    def test_a_poller_is_not_stopped_while_it_waits(self):
        @tidegauge.tool(poll=True)
        def state_of(job):
            return "running"

        with capture(stop_on_loop=2, stop_on_result_streak=3), tidegauge.run():
            for _ in range(30):
                state_of("build")

    def test_a_key_says_what_is_compared(self):
        @tidegauge.tool(key=lambda arguments: arguments["query"])
        def search(query, request=0):
            return "nothing"

        with capture(stop_on_loop=2), tidegauge.run():
            for number in range(3):
                search("x", request=number)
            with pytest.raises(RunStopped):
                search("x", request=3)

    def test_a_mutation_is_no_standstill(self):
        @tidegauge.tool(mutates=True)
        def next_page():
            return "ok"

        with capture(stop_on_loop=2, stop_on_result_streak=3), tidegauge.run():
            for _ in range(30):
                next_page()
