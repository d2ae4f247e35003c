"""Values that hurt the code that reads them: objects of hostile classes, and plain ones too large.

:data:`SHAPES` are values by their names, made where they are used. :func:`hooked` makes the
objects whose special methods do something: for every hook (``__str__``, ``tolist``, ...) and for
every thing that it may do (:data:`DEEDS`), on plain classes and on subclasses of the builtin ones.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import decimal
import enum
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, MagicMock, Mock

import numpy as np
import scipy.sparse

import tidegauge

touched: list[str] = []
"""What was called of the objects made here, since it was cleared."""

MILLION = 1_000_000


class LazyObject:
    """Django's SimpleLazyObject: everything of it, its class included, makes what it stands for."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        touched.append("evaluated")
        return dict

    def __getattr__(self, name: str) -> Any:
        touched.append(f"evaluated for {name}")
        return getattr({"row": 1}, name)

    def __str__(self) -> str:
        touched.append("evaluated for __str__")
        return "row"

    __repr__ = __str__


class RemoteProxy:
    """An RPC proxy: every attribute that it does not have is asked for over the network."""

    def __getattr__(self, name: str) -> Any:
        touched.append(f"asked for {name}")
        time.sleep(1.5)
        return RemoteProxy()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        touched.append("called")
        return self


class FakeFrame:
    """A data frame: copied by ``tolist``, compared cell by cell, written out by ``__str__``."""

    def __init__(self) -> None:
        self.shape = (MILLION, 10)

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of a frame is ambiguous")

    def __len__(self) -> int:
        return MILLION

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "b"])

    def __str__(self) -> str:
        return "\n".join(str(row) for row in range(MILLION))

    def tolist(self) -> list[list[int]]:
        return [[column] * 10 for column in range(MILLION)]

    model_dump = to_dict = tolist


class FakeTensor(FakeFrame):
    """A tensor on another device: reading it waits for the device."""

    device = "cuda:0"

    def tolist(self) -> Any:
        touched.append("tolist")
        time.sleep(1.5)
        return []

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __str__(self) -> str:
        touched.append("__str__")
        time.sleep(1.5)
        return "tensor"


class SlowFuture:
    """A future of another library, whose callbacks cannot be added."""

    _asyncio_future_blocking = False

    def add_done_callback(self, function: Any, *, context: Any = None) -> None:
        raise RuntimeError("no callbacks here")

    def done(self) -> bool:
        raise RuntimeError("who knows")

    def __await__(self) -> Any:
        raise RuntimeError("not awaited")


class HostileError(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        touched.append("__str__")
        raise RuntimeError("no text")

    __repr__ = __str__


class LyingError(Exception):
    def __str__(self) -> Any:
        return 7  # noqa: PLE0307 - the lie

    @property
    def args(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no arguments")


def cyclic_error() -> Exception:
    """Errors that are each other's causes, and a traceback that does not end."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    try:
        raise RuntimeError
    except RuntimeError as error:
        first.__traceback__ = error.__traceback__
    return first


def deep(kind: Callable[[Any], Any], times: int) -> Any:
    value: Any = 1
    for _ in range(times):
        value = kind(value)
    return value


def cycle() -> Any:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


def doubling(times: int) -> Any:
    """Two references to two references to ...: 2^times leaves in a few lists."""
    return deep(lambda inner: [inner, inner], times)


def wide_sharing() -> Any:
    """One list of a million, ten thousand times."""
    return [list(range(MILLION // 10))] * 10_000


def finished_future() -> Any:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    future.set_result(7)
    return future


def failed_future() -> Any:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    future.set_exception(HostileError())
    return future


def error_group() -> Any:
    return BaseExceptionGroup("all", [HostileError(), ValueError(b"\xff"), KeyboardInterrupt()])


class Unending:
    """A sequence that never ends, and says that it is short."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


class UnendingMapping(collections.abc.Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "again"


class Metaclass(type):
    def __str__(cls) -> str:
        raise RuntimeError("no name")

    __repr__ = __str__

    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise RuntimeError("no name")

    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError("no instances")


class OfMetaclass(metaclass=Metaclass):
    pass


class Slotted:
    __slots__ = ("absent",)


class UnloadedTool(enum.Enum):
    """Its value is looked up in a registry that is not there: orjson asks for it, and dies."""

    SEARCH = 1

    @property
    def value(self) -> Any:
        touched.append("value")
        raise LookupError("not loaded")


def unset_slots() -> Any:
    names = tuple([f"c{number}" for number in range(3_000)])
    kind = type("Row", (), {"__slots__": names})
    return [kind() for _ in range(3_000)]


def many_fields(fields: int) -> list[tuple[str, str]]:
    return [(f"f{number}", "i4") for number in range(fields)]


def module_like() -> Any:
    module = types.ModuleType("lazy")

    def lookup(name: str) -> Any:
        touched.append(f"imported {name}")
        raise ImportError(name)

    module.__getattr__ = lookup  # type: ignore[method-assign]
    return module


def huge_object() -> Any:
    value = types.SimpleNamespace()
    value.cache = [object() for _ in range(MILLION)]
    value.self = value
    return value


def array_of_objects() -> Any:
    array = np.empty(2, dtype=object)
    array[0], array[1] = RemoteProxy(), LazyObject
    return array


SHAPES: dict[str, Callable[[], Any]] = {
    "mock": Mock,
    "magic-mock": MagicMock,
    "async-mock": AsyncMock,
    "mock-in-a-list": lambda: [Mock(), {"mock": MagicMock()}],
    "lazy-object": LazyObject,
    "lazy-object-in-a-dict": lambda: {"user": LazyObject(), "rows": [LazyObject()]},
    "remote-proxy": RemoteProxy,
    "remote-proxy-in-a-list": lambda: [RemoteProxy()],
    "lazy-module": module_like,
    "cycle": cycle,
    "2^24-shared-references": lambda: doubling(24),
    "2^100-shared-references": lambda: doubling(100),
    "2^24-shared-in-tuples": lambda: deep(lambda inner: (inner, inner), 24),
    "2^24-shared-in-dicts": lambda: deep(lambda inner: {"a": inner, "b": inner}, 24),
    "wide-sharing": wide_sharing,
    "100-MB-text": lambda: "x" * (100 * MILLION),
    "100-MB-text-beyond-ascii": lambda: "é" * (50 * MILLION),
    "100-MB-text-of-json": lambda: '{"rows": [' + "1," * (50 * MILLION) + "1]}",
    "100-MB-text-of-a-lone-surrogate": lambda: "x" * (25 * MILLION) + "\ud800",
    "100-MB-bytes": lambda: bytes(100 * MILLION),
    "100-MB-bytearray": lambda: bytearray(100 * MILLION),
    "100-MB-memoryview": lambda: memoryview(bytes(100 * MILLION)),
    "strided-memoryview": lambda: memoryview(bytes(1000))[::7],
    "100-MB-text-in-a-list": lambda: ["x" * (100 * MILLION)],
    "10-million-elements": lambda: [0] * (10 * MILLION),
    "10-million-elements-in-a-tuple": lambda: (0,) * (10 * MILLION),
    "million-keys": lambda: dict.fromkeys(range(MILLION)),
    "million-members": lambda: set(range(MILLION)),
    "million-lists": lambda: [[number] for number in range(MILLION)],
    "nan": lambda: float("nan"),
    "infinity": lambda: {"at": float("inf"), "to": -float("inf")},
    "lone-surrogate": lambda: "\ud800\udfff",
    "lone-surrogate-as-a-key": lambda: {"\ud800": ["\udc80"]},
    "nul": lambda: "\0" * 10,
    "huge-int": lambda: 1 << 1_000_000,
    "huge-int-in-a-list": lambda: [1 << 1_000_000, -(1 << 64), 1 << 64],
    "huge-decimal": lambda: decimal.Decimal("1e999999"),
    "deep-lists": lambda: deep(lambda inner: [inner], 100_000),
    "deep-dicts": lambda: deep(lambda inner: {"in": inner}, 100_000),
    "deep-tuples": lambda: deep(lambda inner: (inner,), 100_000),
    "deep-json": lambda: "[" * 100_000 + "]" * 100_000,
    "json-of-a-huge-number": lambda: '{"n": ' + "9" * 100_000 + "}",
    "json-in-json": lambda: '{"a": "' + "\\" * 100_000 + '"}',
    "array": lambda: np.zeros(10 * MILLION),
    "array-of-objects": array_of_objects,
    "array-without-dimensions": lambda: np.array(7),
    "broadcast-array": lambda: np.broadcast_to(np.zeros(1), (MILLION, MILLION)),
    "structured-array": lambda: np.zeros(3, dtype=[("a", "i4"), ("b", "U3")]),
    "sparse-matrix": lambda: scipy.sparse.eye(MILLION, format="csr"),
    "fake-frame": FakeFrame,
    "fake-tensor": FakeTensor,
    "fake-tensor-in-a-dict": lambda: {"tensor": FakeTensor()},
    "foreign-future": SlowFuture,
    "finished-future": finished_future,
    "failed-future": failed_future,
    "hostile-error": HostileError,
    "lying-error": LyingError,
    "cyclic-error": cyclic_error,
    "error-group": error_group,
    "unending-sequence": Unending,
    "unending-mapping": UnendingMapping,
    "of-a-hostile-metaclass": OfMetaclass,
    "hostile-metaclass": lambda: OfMetaclass,
    "slotted": Slotted,
    "unset-slots": unset_slots,
    "million-digits-of-a-decimal": lambda: decimal.Decimal("7" * (50 * MILLION)),
    "million-digests-of-texts": lambda: {str(number) for number in range(MILLION // 10)},
    "array-scalar": lambda: np.void(bytes(100 * MILLION)),
    "array-of-many-fields": lambda: np.zeros(3, dtype=many_fields(200_000)),
    "array-types": lambda: [np.dtype(many_fields(2_000)) for _ in range(200)],
    "remote-enum": lambda: UnloadedTool.SEARCH,
    "huge-object": huge_object,
    "frame": sys._getframe,
    "mixed-keys": lambda: {1: 1, "1": 2, None: 3, (1, 2): 4, b"1": 5, 1.5: 6, False: 7},
    "keys-that-hold-keys": lambda: {(("a",), frozenset([frozenset()])): {frozenset(): 1}},
    "infinite-generator": lambda: iter(int, 1),
    "open-file": lambda: open(os.devnull),  # noqa: SIM115 - it is the value
    "range": lambda: range(10**18),
    "type-hint": lambda: dict[str, list[int]],
}

HEAVY = {
    name
    for name in SHAPES
    if any(part in name for part in ("100-MB", "million", "wide", "deep", "huge-object", "array"))
}
"""They take a while to make: the entry points that they go through are fewer."""

LARGE_TEXTS = {name for name in SHAPES if name.startswith("100-MB")}
"""They may take 2 ms a MB, and no more memory than any other value."""


# -- hooks ---------------------------------------------------------------------------------------

_HOOKS = """
__str__ __repr__ __eq__ __hash__ __len__ __bool__ __iter__ __getattr__ __getattribute__
__class__ __reduce__ __reduce_ex__ __float__ __index__ __int__ __format__ __getitem__
__contains__ __lt__ __array__ __dict__ __bytes__ __sizeof__ __dir__ __call__ __await__
__copy__ __deepcopy__ __instancecheck__ __fspath__ tolist model_dump keys items encode lower
strip startswith add_done_callback done result
"""
HOOKS = tuple(_HOOKS.split())


class Deed(NamedTuple):
    """What a hook does, and whether it may be called at all."""

    act: Callable[[], Any]
    untouchable: bool
    """Its effect is seen outside: a call of it is a fault by itself."""


def _raise() -> Any:
    raise RuntimeError("hook")


def _recurse() -> Any:
    return _recurse()


def _exit() -> Any:
    raise SystemExit(3)


def _interrupt() -> Any:
    raise KeyboardInterrupt


def _generator_exit() -> Any:
    raise GeneratorExit


def _block() -> Any:
    time.sleep(1.5)
    return "slow"


@tidegauge.tool
def _inner_tool() -> str:
    return "inner"


def _call_a_tool() -> Any:
    return _inner_tool()


def _take_a_snapshot() -> Any:

    for pipeline in watched_pipelines:
        pipeline.engine.snapshot()
    return "snapshot"


def _fork() -> Any:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "forked"


def _stop_iteration() -> Any:
    raise StopIteration


def _memory_error() -> Any:
    raise MemoryError


def _cancelled() -> Any:
    raise asyncio.CancelledError


watched_pipelines: list[Any] = []
"""What the deed ``takes-a-snapshot`` looks at."""

DEEDS = {
    "raises": Deed(_raise, untouchable=False),
    "raises-MemoryError": Deed(_memory_error, untouchable=False),
    "raises-StopIteration": Deed(_stop_iteration, untouchable=False),
    "recurses": Deed(_recurse, untouchable=False),
    "returns-a-wrong-type": Deed(object, untouchable=False),
    "returns-itself": Deed(lambda: None, untouchable=False),
    "blocks": Deed(_block, untouchable=True),
    "calls-a-tool": Deed(_call_a_tool, untouchable=True),
    "forks": Deed(_fork, untouchable=True),
    "takes-a-snapshot": Deed(_take_a_snapshot, untouchable=False),
    "raises-SystemExit": Deed(_exit, untouchable=True),
    "raises-KeyboardInterrupt": Deed(_interrupt, untouchable=True),
    "raises-GeneratorExit": Deed(_generator_exit, untouchable=True),
    "raises-CancelledError": Deed(_cancelled, untouchable=True),
}
_BASES: tuple[type, ...] = (str, bytes, int, float, dict, list, tuple, set, Exception)


armed = True
"""Hooks act only while this is true: making and dropping objects is no part of a case."""


def hooked(deed: str) -> Iterator[tuple[str, Any]]:
    """Objects with one hook each that does the deed: alone, in containers, and of builtin bases."""
    for hook in HOOKS:
        plain = _object(object, hook, deed)
        yield f"{hook}", plain
        yield f"[{hook}]", [plain]
        yield f"{{'key': {hook}}}", {"key": (plain,)}
        if hook not in ("__hash__", "__eq__", "__class__", "__getattribute__"):
            yield f"{{{hook}: 1}}", {plain: 1}
        for base in _BASES:
            yield f"{base.__name__}.{hook}", _object(base, hook, deed)


def _object(base: type, hook: str, deed: str) -> Any:
    act = DEEDS[deed].act

    def do(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not armed:
            return getattr(base, hook, lambda *_, **__: None)(self, *args, **kwargs)
        touched.append(hook)
        return self if deed == "returns-itself" else act()

    body: dict[str, Any] = {hook: do, "__hash__": base.__hash__}
    if hook == "__hash__":
        body["__hash__"] = do
    if hook in ("__class__", "__dict__"):
        body[hook] = property(do)
    if hook == "__getattribute__":
        body[hook] = lambda self, name: (
            object.__getattribute__(self, name) if not armed else do(self)
        )
    kind = type("Hooked", (base,), body)
    return base.__new__(kind)  # type: ignore[call-overload]
