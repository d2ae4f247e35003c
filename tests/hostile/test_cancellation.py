"""Tasks are cancelled at any await, groups fail as a whole, futures of others misbehave."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidegauge
from hostile.agents_at_work import AGENTS, look, look_later, nothing, open_runs, steps_of
from hostile.harness import check, switching_threads
from hostile.values import SlowFuture
from tidegauge import testing
from tidegauge.safety.guard import internal_errors


@tidegauge.tool
async def waiting(place: str) -> str:
    for _ in range(5):
        await asyncio.sleep(0)
    return place


@tidegauge.tool
async def pages(place: str) -> AsyncIterator[str]:
    try:
        for number in range(5):
            await asyncio.sleep(0)
            yield f"{place} {number}"
    finally:
        await asyncio.sleep(0)


@tidegauge.agent
async def agent(task: str) -> str:
    await waiting("hall")
    async for _ in pages("hall"):
        await look_later("inside")
    await asyncio.gather(waiting("left"), waiting("right"))
    async with asyncio.TaskGroup() as group:
        group.create_task(waiting("one"))
        group.create_task(waiting("two"))
    return "done"


def at_every_await() -> None:
    async def cancelled_after(loops: int) -> bool:
        task = asyncio.ensure_future(agent("find it"))
        for _ in range(loops):
            await asyncio.sleep(0)
        if task.done():
            assert await task == "done"
            return False
        task.cancel("by the user")
        try:
            await task
        except asyncio.CancelledError:
            pass
        else:
            raise AssertionError("the cancellation was lost")
        assert task.cancelled()
        return True

    async def all_of_them() -> int:
        loops = 0
        while await cancelled_after(loops):
            loops += 1
        return loops

    with testing.capture() as seen:
        assert asyncio.run(all_of_them()) > 20
        assert open_runs(seen) == 0
        assert not internal_errors.counts()


def test_cancelled_at_every_await() -> None:
    check(at_every_await)


def anyio_scopes() -> None:
    async def main() -> None:
        for loops in range(40):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(agent, "find it")
                    for _ in range(loops):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

    import anyio.lowlevel

    with testing.capture() as seen:
        anyio.run(main)
        assert open_runs(seen) == 0
        assert not internal_errors.counts()


def test_scopes_of_anyio() -> None:
    check(anyio_scopes)


def groups_of_errors() -> None:
    first, second = KeyError("first"), ValueError("second")

    @tidegauge.tool
    async def fail(error: Exception) -> None:
        await asyncio.sleep(0)
        raise error

    @tidegauge.agent
    async def failing(task: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(first))
            group.create_task(fail(second))

    with testing.capture() as seen:
        try:
            asyncio.run(failing("find it"))
        except ExceptionGroup as group:
            found = set(group.exceptions)
        else:
            raise AssertionError("the group was lost")
        assert found == {first, second}
        assert steps_of(seen) == 2
        assert open_runs(seen) == 0


@pytest.mark.slow
def test_groups_of_errors() -> None:
    check(groups_of_errors)


def foreign_futures() -> None:
    slow = SlowFuture()
    finished: concurrent.futures.Future[int] = concurrent.futures.Future()
    finished.set_result(7)
    pending: concurrent.futures.Future[int] = concurrent.futures.Future()

    @tidegauge.tool
    def give(value: Any) -> Any:
        return value

    @tidegauge.agent
    def asking(task: str) -> None:
        assert give(slow) is slow
        assert give(finished) is finished
        assert give(pending) is pending
        look("hall")

    with testing.capture() as seen:
        asking("find it")
        pending.set_exception(KeyError("late"))
        gc.collect()
        assert steps_of(seen) == 4
        assert open_runs(seen) == 0


def test_futures_of_others() -> None:
    check(foreign_futures)


def never_awaited() -> None:
    import warnings

    with testing.capture() as seen, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")

        @tidegauge.agent
        def asking(task: str) -> None:
            waiting("never")  # type: ignore[unused-coroutine]
            look("hall")

        asking("find it")
        gc.collect()
        assert [str(item.message) for item in found] == ["coroutine 'waiting' was never awaited"], (
            found
        )
        assert steps_of(seen) == 1
        assert open_runs(seen) == 0


def test_coroutines_that_are_never_awaited() -> None:
    check(never_awaited)


def loops_that_close() -> None:
    """The loop ends while streams are open and tasks wait."""

    left: list[Any] = []

    async def leaves_everything() -> None:
        items = pages("hall")
        await anext(items)
        left.append(asyncio.ensure_future(agent("in the background")))
        await asyncio.sleep(0)

    with testing.capture() as seen:
        for _ in range(20):
            asyncio.run(leaves_everything())
        assert open_runs(seen) == 0


def test_loops_that_close() -> None:
    check(loops_that_close)


def threads_take_turns(kind: str) -> None:
    with testing.capture() as seen, switching_threads():
        made: list[int] = []
        faults: list[BaseException] = []
        generator = random.Random(5)

        def work() -> None:
            try:
                made.append(AGENTS[kind]("find it", generator.randint(5, 40), nothing))
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads), "a thread hangs"
        assert not faults, faults
        assert steps_of(seen) == sum(made)
        assert open_runs(seen) == 0


@pytest.mark.parametrize("kind", AGENTS)
def test_threads_that_take_turns(kind: str) -> None:
    check(threads_take_turns, kind, deadline=30)


def one_stream_in_many_threads() -> None:
    """Each item is taken in another thread."""

    @tidegauge.agent
    def streaming(task: str) -> Any:
        for number in range(30):
            look(f"room {number}")
            yield number

    with testing.capture() as seen, switching_threads():
        items = streaming("find it")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            assert [pool.submit(next, items).result() for _ in range(30)] == list(range(30))
            pool.submit(items.close).result()
        assert steps_of(seen) == 30
        assert open_runs(seen) == 0


def test_a_stream_in_many_threads() -> None:
    check(one_stream_in_many_threads)
