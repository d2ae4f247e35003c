"""How each kind of value is written: by its real type, never by a type that it claims."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import functools
import gc
import re
import sys
import types
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final

import xxhash

from tidegauge.values import arrays
from tidegauge.values.attributes import (
    bases,
    basic_size,
    exact_text,
    members,
    module_name,
    namespace,
    type_name,
)
from tidegauge.values.encoder import (
    CONTAINER,
    OBJECT,
    Children,
    Encoder,
    Handler,
    Incomparable,
    digest_of,
    rendered,
)

_MAX_KEY: Final = 1_024
_RUN: Final = 256
_FIELDS: Final = "__dataclass_fields__"


def handler_of(kind: type) -> Handler:
    """What writes the values of a type: what the first known class in its order says."""
    for base in bases(kind):
        known = _KNOWN.get(id(base))
        if known is not None:
            return known
        if type(namespace(base).get(_FIELDS)) is dict:
            return _dataclass
        of = _foreign(base)
        if of is not None:
            return of
    return _object


def _foreign(base: type) -> Handler | None:
    """For the classes of packages that the application has imported; none is imported here."""
    package = module_name(base).partition(".")[0]
    for module, name, handler in _FOREIGN.get(package, ()):
        found = sys.modules.get(module)
        if type(found) is types.ModuleType and found.__dict__.get(name) is base:
            return handler
    return None


def _dict(encoder: Encoder, value: Any) -> Children:
    encoder.spend(CONTAINER + dict.__len__(value))
    entries = list(dict.items(value))
    for key, _ in entries:
        if type(key) is not str:
            return _keyed(encoder, entries)
    data = encoder.packed(value if type(value) is dict else dict(entries))
    if data is None:
        return _members(encoder, entries)
    encoder.put(data)
    return ()


def _keyed(encoder: Encoder, items: list[tuple[Any, Any]]) -> Iterator[Any]:
    """A mapping with keys that are not plain strings."""
    entries: list[tuple[str, Any]] = []
    others: list[tuple[str, Any]] = []
    for key, item in items:
        if issubclass(type(key), str):
            entries.append((str.__str__(key), item))
        else:
            encoder.spend(CONTAINER)
            start = len(encoder.out)
            encoder.taken_back += 1
            yield key
            encoder.taken_back -= 1
            others.append((_key(encoder.cut(start)), item))
    yield from _members(encoder, entries + others)  # of two alike, the text goes first


def _members(encoder: Encoder, entries: list[tuple[str, Any]]) -> Iterator[Any]:
    """A mapping in the order of its keys: its plain leaves in runs, anything else one by one."""
    entries.sort(key=itemgetter(0))
    token = b"{"
    for start in range(0, len(entries), _RUN):
        run = entries[start : start + _RUN]
        leaves = dict(run)
        data = encoder.packed(leaves) if len(leaves) == len(run) else None
        if data is not None:
            encoder.put(token, data[1:-1])
            token = b","
            continue
        for name, item in run:
            encoder.put(token)
            encoder.text(name)
            encoder.put(b":")
            yield item
            token = b","
    encoder.put(b"{}" if token == b"{" else b"}")


def _key(tokens: list[bytes | str]) -> str:
    """A key that is not a string, as a string."""
    text = b"".join(rendered(tokens))
    return xxhash.xxh3_128_hexdigest(text) if len(text) > _MAX_KEY else text.decode()


def _list(encoder: Encoder, value: Any) -> Children:
    encoder.spend(CONTAINER + list.__len__(value))
    return _items(encoder, list(list.__iter__(value)))


def _tuple(encoder: Encoder, value: Any) -> Children:
    encoder.spend(CONTAINER + tuple.__len__(value))
    return _items(encoder, list(tuple.__iter__(value)))


def _items(encoder: Encoder, items: list[Any]) -> Iterator[Any]:
    """A list: its plain leaves in runs, anything else one by one."""
    token = b"["
    for start in range(0, len(items), _RUN):
        run = items[start : start + _RUN]
        data = encoder.packed(run)
        if data is not None:
            encoder.put(token, data[1:-1])
            token = b","
            continue
        for item in run:
            encoder.put(token)
            yield item
            token = b","
    encoder.put(b"[]" if token == b"[" else b"]")


def _set(encoder: Encoder, value: Any) -> Children:
    kind = set if issubclass(type(value), set) else frozenset
    encoder.spend(CONTAINER + kind.__len__(value))
    return _unordered(encoder, list(kind.__iter__(value)))


def _unordered(encoder: Encoder, items: list[Any]) -> Iterator[Any]:
    """Items by their digests, which can be sorted."""
    cost = 2 * len(items)  # of the list of their digests
    encoder.spend(cost)
    digests = []
    for item in items:
        start = len(encoder.out)
        encoder.taken_back += 1
        yield item
        encoder.taken_back -= 1
        digests.append(digest_of(rendered(encoder.cut(start))).hex())
    encoder.tag("set")
    encoder.room += cost
    yield sorted(digests)


def _text(encoder: Encoder, value: Any) -> Children:
    encoder.text(value)
    return ()


def _int(encoder: Encoder, value: Any) -> Children:
    encoder.number(int.__int__(value))
    return ()


def _float(encoder: Encoder, value: Any) -> Children:
    encoder.number(float.__float__(value))
    return ()


def _bytes(encoder: Encoder, value: Any) -> Children:
    encoder.data(value)
    return ()


def _object(encoder: Encoder, value: Any) -> Children:
    """Anything else: its type and its instance attributes."""
    encoder.spend(OBJECT)
    kind = type(value)
    layout = encoder.layout(kind)
    if layout.hidden or (layout.namespace is None and not layout.slots):
        raise Incomparable("a hidden state")
    held = encoder.attributes(value)
    encoder.tag(type_name(kind))
    return (held,)


def _dataclass(encoder: Encoder, value: Any) -> Children:
    """Its fields, as a mapping."""
    encoder.spend(OBJECT)
    held = encoder.attributes(value)
    fields = next(
        found for base in bases(type(value)) if type(found := namespace(base).get(_FIELDS)) is dict
    )
    return ({name: held[name] for name in fields if type(name) is str and name in held},)


def _model(encoder: Encoder, value: Any) -> Children:
    """A pydantic model: its fields and what it was given beyond them, as a mapping."""
    encoder.spend(OBJECT)
    held = encoder.attributes(value)
    extra = held.get("__pydantic_extra__")
    names: Any = None
    for base in bases(type(value)):
        names = namespace(base).get("__pydantic_fields__", namespace(base).get("model_fields"))
        if type(names) is dict:
            break
    if type(names) is not dict:
        raise Incomparable("a model that is not complete")
    fields = {name: held[name] for name in names if type(name) is str and name in held}
    if type(extra) is dict:
        fields.update(members(extra))
    return (fields,)


def _enum(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    held = encoder.attributes(value)
    name = held.get("_name_")
    encoder.tag("enum")
    return ([type_name(type(value)), name if type(name) is str else held.get("_value_")],)


def _exception(encoder: Encoder, value: Any) -> Children:
    """Its type and arguments; what it was not given as arguments it may hold as attributes."""
    encoder.spend(OBJECT)
    kind = type(value)
    arguments = BaseException.args.__get__(value)  # type: ignore[attr-defined]
    held: list[Any] = [type_name(kind), arguments]
    if issubclass(kind, OSError):
        held += [OSError.__dict__[name].__get__(value) for name in ("filename", "filename2")]
    elif not arguments:
        known = next(b for b in bases(kind) if module_name(b) == "builtins")
        layout, plain = encoder.layout(kind), encoder.layout(known)
        words = len(layout.slots) - len(plain.slots)
        if basic_size(kind) - basic_size(known) > 8 * (words + 1):
            raise Incomparable("a hidden state")
        held.append(members(layout.namespace.__get__(value)))
    encoder.tag("exception")
    return (held,)


def _class(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    encoder.tag("class")
    encoder.put(type_name(value))
    return ()


def _function(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    of = namespace(type(value))
    module = exact_text(of["__module__"].__get__(value))
    encoder.tag("function")
    return ([module, exact_text(of["__qualname__"].__get__(value))],)


def _builtin(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    of = namespace(types.BuiltinFunctionType)
    owner = of["__self__"].__get__(value)
    name = exact_text(of["__qualname__"].__get__(value))
    encoder.tag("function")
    if owner is None or type(owner) is types.ModuleType:
        return ([exact_text(of["__module__"].__get__(value)), name],)
    return ([owner, name],)


def _method(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    of = namespace(types.MethodType)
    encoder.tag("method")
    return ([of["__self__"].__get__(value), of["__func__"].__get__(value)],)


def _partial(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    of = namespace(functools.partial)
    encoder.tag("partial")
    return ([of[name].__get__(value) for name in ("func", "args", "keywords")],)


def _deque(encoder: Encoder, value: Any) -> Children:
    encoder.spend(CONTAINER + collections.deque.__len__(value))
    encoder.tag("deque")
    return _items(encoder, list(collections.deque.__iter__(value)))


def _referred(encoder: Encoder, value: Any) -> Children:
    """A view of a mapping: the mapping itself, which only the garbage collector can see."""
    encoder.spend(CONTAINER)
    [seen] = gc.get_referents(value)
    if type(value) is not types.MappingProxyType:
        encoder.tag(type(value).__name__)
    return (seen,)


def _members_of(tag: str, kind: type, *names: str) -> Handler:
    """Writes values of a built-in type by the members that it has."""
    of = [kind.__dict__[name] for name in names]

    def write(encoder: Encoder, value: Any) -> Children:
        encoder.spend(OBJECT)
        encoder.tag(tag)
        return ([member.__get__(value) for member in of],)

    return write


def _written_by(tag: str, write: Callable[[Any], str]) -> Handler:
    """Writes values of a built-in type as its own method does."""

    def written(encoder: Encoder, value: Any) -> Children:
        encoder.spend(OBJECT)
        encoder.tag(tag)
        encoder.text(write(value))
        return ()

    return written


_write_decimal: Final = _written_by("decimal", decimal.Decimal.__str__)
_SHORT_DECIMAL: Final = decimal.Decimal.__sizeof__(decimal.Decimal(0))


def _decimal(encoder: Encoder, value: Any) -> Children:
    """A decimal number: its digits cost before they are written."""
    encoder.spend((decimal.Decimal.__sizeof__(value) - _SHORT_DECIMAL) >> 4)
    return _write_decimal(encoder, value)


_MOMENT: Final = ("year", "month", "day", "hour", "minute", "second", "microsecond")


def _datetime(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    of = dt.datetime.__dict__
    moment = [
        of[name].__get__(value) if name in of else _DAY[name].__get__(value) for name in _MOMENT
    ]
    encoder.tag("datetime")
    fold = of["fold"].__get__(value)
    return ([dt.datetime(*moment, fold=fold).isoformat(), of["tzinfo"].__get__(value)],)


_DAY: Final = dt.date.__dict__


def _time(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    of = dt.time.__dict__
    encoder.tag("time")
    return (
        [
            dt.time(*[of[name].__get__(value) for name in _MOMENT[3:]]).isoformat(),
            of["tzinfo"].__get__(value),
        ],
    )


def _timezone(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    encoder.tag("timezone")
    return (dt.timezone.utcoffset(value, None),)


def _zone(encoder: Encoder, value: Any) -> Children:
    encoder.spend(OBJECT)
    key = exact_text(sys.modules["zoneinfo"].ZoneInfo.__dict__["key"].__get__(value))
    if not key:
        raise Incomparable("a zone without a name")
    encoder.tag("zone")
    encoder.put(key)
    return ()


def _path(encoder: Encoder, value: Any) -> Children:
    """A path of the standard library; what others hold is taken as of any object."""
    if module_name(type(value)).partition(".")[0] != "pathlib":
        return _object(encoder, value)
    encoder.spend(OBJECT)
    encoder.tag("path")
    encoder.text(sys.modules["pathlib"].PurePath.__str__(value))
    return ()


def _constant(encoder: Encoder, value: Any) -> Children:
    encoder.spend(CONTAINER)
    encoder.tag(type_name(type(value)))
    encoder.put(b"null")
    return ()


_BUILT_IN: Final[dict[type, Handler]] = {
    dict: _dict,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    str: _text,
    int: _int,
    float: _float,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    complex: _written_by("complex", complex.__repr__),
    range: _members_of("range", range, "start", "stop", "step"),
    slice: _members_of("slice", slice, "start", "stop", "step"),
    type: _class,
    object: _object,
    arrays.ColumnValues: arrays.column,
    BaseException: _exception,
    enum.Enum: _enum,
    decimal.Decimal: _decimal,
    dt.datetime: _datetime,
    dt.date: _members_of("date", dt.date, "year", "month", "day"),
    dt.time: _time,
    dt.timedelta: _members_of("timedelta", dt.timedelta, "days", "seconds", "microseconds"),
    dt.timezone: _timezone,
    collections.deque: _deque,
    functools.partial: _partial,
    re.Pattern: _members_of("pattern", re.Pattern, "pattern", "flags"),
    types.FunctionType: _function,
    types.BuiltinFunctionType: _builtin,
    types.MethodType: _method,
    types.MappingProxyType: _referred,
    type({}.keys()): _referred,
    type({}.values()): _referred,
    type({}.items()): _referred,
    type(...): _constant,
    type(NotImplemented): _constant,
}
_KNOWN: Final = {id(kind): handler for kind, handler in _BUILT_IN.items()}
"""By id: a lookup by the class itself would ask its metaclass for a hash."""

_FOREIGN: Final[dict[str, tuple[tuple[str, str, Handler], ...]]] = {
    "numpy": (
        ("numpy", "ndarray", arrays.array),
        ("numpy", "generic", arrays.scalar),
        ("numpy", "dtype", arrays.dtype),
    ),
    "scipy": (("scipy.sparse._base", "_spbase", arrays.sparse),),
    "pandas": (
        ("pandas", "DataFrame", arrays.frame),
        ("pandas", "Series", arrays.series),
        ("pandas", "Index", arrays.index),
        ("pandas", "Timestamp", arrays.moment),
        ("pandas", "Timedelta", arrays.moment),
        ("pandas._libs.tslibs.nattype", "NaTType", _constant),
        ("pandas._libs.missing", "NAType", _constant),
    ),
    "pyarrow": (
        ("pyarrow", "Table", arrays.arrow_table),
        ("pyarrow", "RecordBatch", arrays.arrow_table),
        ("pyarrow", "Array", arrays.arrow_array),
        ("pyarrow", "ChunkedArray", arrays.arrow_array),
    ),
    "pydantic": (("pydantic.main", "BaseModel", _model),),
    "pathlib": (("pathlib", "PurePath", _path),),
    "zoneinfo": (("zoneinfo", "ZoneInfo", _zone),),
    "array": (("array", "array", arrays.standard),),
}
