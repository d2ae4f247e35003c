"""Functions of every kind with something around their bodies.

A decorated function stays what it was: a coroutine function, a generator function, an async
generator function or a plain one. What is around it is a :class:`CallScope`, which is entered
whenever the body runs and left whenever it pauses, so that a generator's consumer sees nothing of
it.
"""

from __future__ import annotations

import concurrent.futures
import dis
import functools
import inspect
import sys
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import copy_context
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, Final, Protocol, TypeAlias

from tidegauge.events import ABSENT
from tidegauge.safety.critical import defer, defer_if_unused, here
from tidegauge.safety.guard import guarded
from tidegauge.values import bases, namespace


class CallScope(Protocol):
    """What is around one call of a function."""

    def __enter__(self) -> None:
        """The body begins, or continues."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The body pauses, or is done."""

    def end(self, result: object = ABSENT, error: BaseException | None = None) -> None:
        """The call is over; a second time this does nothing.

        Args:
            result: what it returned; absent, not known.
            error: the exception that ended it, ``GeneratorExit`` where its consumer had enough of
                the items that are its result.
        """

    def end_quietly(self, result: object = ABSENT, error: BaseException | None = None) -> None:
        """The same where an exception has no caller."""


class Replacement:
    """The answer to a call that must not run."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


Begin: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], CallScope | Replacement | None]
"""Takes a call's arguments when its body is about to begin; ``None`` leaves the call unchanged."""

_Function: TypeAlias = Callable[..., Any]

_MAX_ITEMS: Final = 1_000
_PLAIN: Final = frozenset(
    map(id, (str, bytes, int, float, bool, list, tuple, dict, set, type(None)))
)
"""What most tools return. Kinds are compared by identity: their own classes may not be hashed."""


def wrap(function: _Function, begin: Begin) -> _Function:
    """The same function, of the same kind, inside of what ``begin`` gives for each call.

    A generator's result is what it returns, else its items, the first 1,000 of them. Where a plain
    function returns a new coroutine or generator, or a future, the call lasts until that is done.
    """
    return functools.wraps(function)(_kind(function)(function, begin))


def _kind(function: _Function) -> Callable[[_Function, Begin], _Function]:
    called = (function, getattr(function, "__call__", None))  # noqa: B004 -- an object's, to be looked at
    if any(map(inspect.iscoroutinefunction, called)):
        return _coroutine
    if any(map(inspect.isgeneratorfunction, called)):
        return _generator_coroutine if any(map(_is_awaited, called)) else _generator
    if any(map(inspect.isasyncgenfunction, called)):
        return _async_generator
    return _plain


def _plain(function: _Function, begin: Begin) -> _Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        scope = begin(args, kwargs)
        if scope is None:
            return function(*args, **kwargs)
        if isinstance(scope, Replacement):
            return scope.value
        try:
            if here.__dict__["critical"]._is_owned():
                result = [run_apart(scope, function, *args, **kwargs)]
            else:
                with scope:
                    result = [function(*args, **kwargs)]
            if id(type(result[0])) in _PLAIN:
                scope.end(result[0])
                return result[0]
            return _end_with(scope, result)
        except BaseException as error:
            _end_failed(scope, error)
            raise

    return wrapper


def _coroutine(function: _Function, begin: Begin) -> _Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        scope = begin(args, kwargs)
        if scope is None:
            return await function(*args, **kwargs)
        if isinstance(scope, Replacement):
            return await _awaited(scope.value)
        try:
            with scope:
                result = [await function(*args, **kwargs)]
            return _end_with(scope, result)
        except BaseException as error:
            _end_failed(scope, error)
            raise

    return wrapper


def _generator(function: _Function, begin: Begin) -> _Function:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        scope = begin(args, kwargs)
        if scope is None:
            return (yield from function(*args, **kwargs))
        if isinstance(scope, Replacement):
            yield scope.value
            return None
        items: list[Any] = []
        # What ``yield from`` does, with the scope around the body alone.
        try:
            with scope:
                body = function(*args, **kwargs)
                item = next(body)
            while True:
                _keep(items, item)
                try:
                    given = yield item
                except GeneratorExit:
                    # The collector may close it in the middle of anything.
                    with here.critical:
                        run_apart(scope, body.close)
                    raise
                except BaseException as thrown:  # noqa: BLE001 -- the body's to handle
                    with scope:
                        item = body.throw(thrown)
                else:
                    with scope:
                        item = body.send(given)
        except StopIteration as stop:
            result = stop.value
        except BaseException as error:
            _end_failed(scope, error, items)
            raise
        try:
            scope.end(items if result is None else result)
        except BaseException as error:
            _end_failed(scope, error, items)
            raise
        return result

    return wrapper


def _generator_coroutine(function: _Function, begin: Begin) -> _Function:
    awaited = _coroutine(function, begin)

    @types.coroutine
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from awaited(*args, **kwargs))

    return wrapper


def _async_generator(function: _Function, begin: Begin) -> _Function:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        scope = begin(args, kwargs)
        if isinstance(scope, Replacement):
            yield await _awaited(scope.value)
            return
        scope = scope or _NOTHING_AROUND
        items: list[Any] = []
        try:
            with scope:
                body = function(*args, **kwargs)
                item = await anext(body)
            while True:
                _keep(items, item)
                try:
                    given = yield item
                except GeneratorExit:
                    with scope:
                        if not body.ag_running:  # a loop that shuts down closes both by itself
                            await body.aclose()
                    raise
                except BaseException as thrown:  # noqa: BLE001 -- the body's to handle
                    with scope:
                        item = await body.athrow(thrown)
                else:
                    with scope:
                        item = await body.asend(given)
        except StopAsyncIteration:
            pass
        except BaseException as error:
            _end_failed(scope, error, items)
            raise
        try:
            scope.end(items)
        except BaseException as error:
            _end_failed(scope, error, items)
            raise

    return wrapper


def run_apart(scope: CallScope, function: _Function, *args: Any, **kwargs: Any) -> Any:
    """Run what interrupts other code in a copy of its context.

    CPython before 3.12 runs the collector in the middle of setting a context variable, and does
    not survive another one being set then.
    """

    def inside() -> Any:
        before, here.apart = here.apart, True
        try:
            with scope:
                return function(*args, **kwargs)
        finally:
            here.apart = before

    return copy_context().run(inside)


def _keep(items: list[Any], item: Any) -> None:
    if len(items) < _MAX_ITEMS:
        items.append(item)


def _end_failed(scope: CallScope, error: BaseException, result: object = ABSENT) -> None:
    """End a call that an exception ended, which may have arrived before the scope was left."""
    try:
        scope.__exit__(None, None, None)
        scope.end(result, error)
    except BaseException:
        scope.__exit__(None, None, None)
        defer(functools.partial(scope.end_quietly, result, error))
        raise


def _end_with(scope: CallScope, held: list[Any]) -> Any:
    """End the call with its result, or once what it returned is done.

    Call it where ``_end_failed`` handles what it raises.

    Args:
        held: the result, which nothing else of ours refers to.
    """
    kind = type(held[0])  # not isinstance, which evaluates a lazy proxy
    if id(kind) in _PLAIN:
        scope.end(held[0])
    elif id(kind) in _BODIES:
        if _references(held) == _ALONE and not _has_begun(held[0]):
            return _later(_kind_of(held[0]), scope, held.pop())
        scope.end()  # others may continue it: it is theirs
    elif future := next((base for base in _futures() if issubclass(kind, base)), None):
        if not _end_when_done(scope, future, held[0]):
            scope.end()
    elif any("__await__" in namespace(base) for base in bases(kind)):
        scope.end()  # it may be more than to be awaited: it is given as it is
    else:
        scope.end(held[0])
    return held[0]


def _references(held: list[Any]) -> int:
    return sys.getrefcount(held[0])


_ALONE: Final = _references([object()])
"""As many references has what only its list refers to, whatever the interpreter counts."""


def _has_begun(body: Any) -> bool:
    """Whether a coroutine or a generator was started."""
    kind = type(body)
    if kind is CoroutineType:
        return inspect.getcoroutinestate(body) != inspect.CORO_CREATED
    if kind is GeneratorType:
        return inspect.getgeneratorstate(body) != inspect.GEN_CREATED
    if sys.version_info >= (3, 12):
        return inspect.getasyncgenstate(body) != inspect.AGEN_CREATED
    frame = body.ag_frame
    return frame is None or frame.f_code.co_code[frame.f_lasti] != dis.opmap["RETURN_GENERATOR"]


def _kind_of(body: Any) -> Callable[[_Function, Begin], _Function]:
    kind = type(body)
    if kind is GeneratorType and body.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        return _generator_coroutine
    return _BODIES[id(kind)]


def _is_awaited(function: Any) -> bool:
    """Whether ``types.coroutine`` has made a generator function awaitable."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.ismethod(function):
        function = function.__func__
    return inspect.isfunction(function) and bool(
        function.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE
    )


_BODIES: Final = {
    id(CoroutineType): _coroutine,
    id(GeneratorType): _generator,
    id(AsyncGeneratorType): _async_generator,
}
"""What a call may go on in."""


def _futures() -> tuple[type, ...]:
    """Whose methods wait for nothing. What else resembles a future is a result like any other."""
    # A process without asyncio has none of its futures, and need not import it.
    of_asyncio = getattr(sys.modules.get("asyncio"), "Future", None)
    known = concurrent.futures.Future
    return (of_asyncio, known) if isinstance(of_asyncio, type) else (known,)


@guarded("bodies.future", default=False, interrupting="run")
def _end_when_done(scope: CallScope, kind: Any, future: Any) -> bool:
    kind.add_done_callback(future, functools.partial(_end_with_future, scope, kind))
    return True


class _NeverBegun(GeneratorExit):
    """What a body was called for is not needed. It is reported at an ordinary moment."""


def _later(kind: Callable[[_Function, Begin], _Function], scope: CallScope, body: Any) -> Any:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallScope:
        in_use()
        return scope

    wrapped = kind(lambda: body, begin)()
    end = functools.partial(scope.end_quietly, error=_NeverBegun())
    in_use = defer_if_unused(wrapped, end)
    return wrapped


@guarded("bodies.future", default=None)
def _end_with_future(scope: CallScope, kind: Any, future: Any) -> None:
    if kind.cancelled(future):
        scope.end_quietly(error=GeneratorExit())
    elif (error := future._exception) is not None:  # exception() would mark it as seen
        scope.end_quietly(error=error)
    else:
        scope.end_quietly(kind.result(future))


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class _NothingAround:
    """The scope of an unchanged call."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass

    def end(self, result: object = ABSENT, error: BaseException | None = None) -> None:
        pass

    end_quietly = end


_NOTHING_AROUND = _NothingAround()
