"""Objects as plain data (JSON), so that another process can continue with them: the one writer of
state.

Plain data are a value and tables. ``None``, truth values, numbers and texts are written as they
are; a container is a list that begins with its kind; bytes, named tuples and objects are each
written once, in the table of their class, and ``{"class": n}`` stands for the n-th of them. A table
has a column an attribute, without those in which all have the value of a new object: what is
missing on the way back gets that value, so that a release can read the state of an earlier one
whose class had fewer attributes.

Nothing is executed on the way back, and what is made is limited: the data may come from anyone who
can write to the store.
"""

from __future__ import annotations

import math
import operator
import threading
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice, repeat
from typing import Any, Final, NamedTuple, TypeAlias

Plain: TypeAlias = Any
Given: TypeAlias = Mapping[Any, Mapping[str, Any]]
_AS_IS: Final = frozenset({type(None), bool, str, int, float})
_NUMBERS: Final = frozenset({bool, int, float})
_LEAST: Final = -(1 << 63)  # of the integers that JSON has everywhere
_MOST: Final = (1 << 64) - 1
_FAR: Final = 1 << 62  # so that a difference has 64 bits
_LOCK: Final = type(threading.Lock())
_BYTES: Final = "bytes"
_LENGTH: Final = ""  # in the place of columns, where all objects are as new
# In the place of a class: whole numbers, each as its difference to the one before; tuples of one
# length, by column.
_STEPS: Final = ""
_COLUMNS: Final = "()"
_MAX_RECORDS: Final = 500_000
_AN_OBJECT: Final = 10
"""Records for which an object counts: it takes up to a kilobyte, however short its plain form."""

_REQUIRED: Final = object()
_WRONG: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)

# Kinds; those of containers follow. Of some, many are written as the length of each and all items.
_INTEGER, _NOT_FINITE, _CONSTANT = range(3)
_NESTED: Final = (list, tuple, set, frozenset)
_CONTAINERS: Final = (*_NESTED, deque, dict, OrderedDict)


class Kept(NamedTuple):
    """A class whose objects have a plain form, with every attribute that is not omitted.

    Args:
        kind: the class.
        new: makes a new object, whose values are the defaults; the default is ``kind()``.
        omitted: attributes that are not kept: they are as in a new object.
        version: of the meaning of the attributes; another one cannot be read.
        ready: called with each object that was read, when all are.
    """

    kind: Any
    new: Callable[[], Any] | None = None
    omitted: Collection[str] = ()
    version: int = 1
    ready: Callable[[Any], None] | None = None


class _Class:
    """A class of objects: its table's name, its attributes and how to set them."""

    def __init__(self, kept: Kept) -> None:
        self.name = f"{kept.kind.__name__}.{kept.version}"
        self.kind, self.new, self.ready = kept.kind, kept.new or kept.kind, kept.ready
        new = self.new()
        names = (
            name for base in reversed(kept.kind.__mro__) for name in getattr(base, "__slots__", ())
        )
        self.defaults: dict[str, Any] = {
            name: default
            for name in (*names, *getattr(new, "__dict__", ()))
            if name not in kept.omitted
            and not isinstance(default := getattr(new, name, None), _LOCK)
        }
        # One more than needed: of a single one, it gives no tuple.
        self.read: Callable[[Any], Any] = operator.attrgetter(*self.defaults, "__class__")
        # Not by setattr: there are frozen classes among them.
        self.put: dict[str, Callable[[Any, Any], None]] = {
            name: getattr(getattr(kept.kind, name, None), "__set__", None)
            or (lambda one, value, name=name: object.__setattr__(one, name, value))
            for name in self.defaults
        }


class PlainObjects:
    """Writes and reads objects of given classes.

    Args:
        objects: the classes of objects that others refer to.
        records: the classes of named tuples, none of which holds another of its class.
        constants: values that are one object everywhere. Their order is part of the plain form.
        dicts: further kinds of dict. Their order is part of the plain form.

    >>> class Place:
    ...     def __init__(self) -> None:
    ...         self.name, self.near = "", set()
    >>> here, there = Place(), Place()
    >>> here.name, here.near, there.near = "here", {there}, {here}
    >>> plain = PlainObjects([Kept(Place)])
    >>> data = plain.write({"start": here, "seen": (b"a", b"a")})
    >>> again = plain.read(data)
    >>> [there] = again["start"].near
    >>> again["start"].name, there.name, there.near == {again["start"]}, again["seen"]
    ('here', '', True, (b'a', b'a'))
    """

    def __init__(
        self,
        objects: Iterable[Kept],
        records: Iterable[Any] = (),
        constants: Sequence[object] = (),
        dicts: Sequence[type] = (),
    ) -> None:
        self.classes = {kept.kind: _Class(kept) for kept in objects}
        self.by_name = {one.name: one for one in self.classes.values()}
        self.records: dict[str, Any] = {kind.__name__: kind for kind in records}
        self.names = {
            bytes: _BYTES,
            **{kind: one.name for kind, one in self.classes.items()},
            **{kind: name for name, kind in self.records.items()},
        }
        self.constants = list(constants)
        self.containers = dict(enumerate((*_CONTAINERS, *dicts), _CONSTANT + 1))
        self.nested = {str(n): kind for n, kind in self.containers.items() if kind in _NESTED}
        self.kinds: dict[type, int] = {kind: n for n, kind in self.containers.items()}

    def write(self, root: object) -> Plain:
        """The plain form of a value, and of all that it refers to.

        Raises:
            TypeError: something has no plain form.
        """
        writer = _Writer(self)
        return [writer.value(root), writer.tables()]

    def read(self, plain: Plain, given: Given | None = None) -> Any:
        """The value that :meth:`write` was called with.

        Args:
            plain: its plain form.
            given: by class, the attributes of its objects that are not kept.

        Raises:
            ValueError: it has another form.
        """
        try:
            root, tables = plain
            reader = _Reader(self, tables)
            reader.fill(given or {})
            return reader.value(root)
        except _WRONG as error:
            raise ValueError(f"a state has another form: {error}") from error


class _Table:
    """What of a class was met."""

    __slots__ = ("columns", "name", "places", "plain", "rows", "written")

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Any] = []
        self.places: dict[Any, int] = {}  # by identity; of bytes, by value
        self.written = 0
        self.columns: dict[str, list[Any]] = {}  # values
        self.plain: dict[str, Plain] = {}  # of the columns that were written at once

    def place(self, value: Any) -> int:
        key = value if self.name is _BYTES else id(value)
        place = self.places.get(key)
        if place is None:
            place = self.places[key] = len(self.rows)
            self.rows.append(value)
        return place


class _Writer:
    def __init__(self, objects: PlainObjects) -> None:
        self._objects = objects
        self._names = objects.names
        self._kinds = objects.kinds
        self._tables: dict[type, _Table] = {}
        self._room = _MAX_RECORDS
        self._constants = {id(one): number for number, one in enumerate(objects.constants)}

    def tables(self) -> dict[str, Plain]:
        """The tables of all that was met."""
        grown = True
        while grown:  # each may lead to others
            grown = False
            for kind, table in tuple(self._tables.items()):
                if kind is not bytes and table.written < len(table.rows):
                    self._write(kind, table)
                    grown = True
        return {table.name: self._plain(table) for table in self._tables.values()}

    def _plain(self, table: _Table) -> Plain:
        if table.name is _BYTES:
            # All as one text: most are digests, which nothing makes shorter.
            text = b2a_base64(b"".join(table.rows), newline=False).decode()
            return [self.sequence(list(map(len, table.rows))), text]
        columns = {
            name: table.plain[name] if name in table.plain else self.sequence(values)
            for name, values in table.columns.items()
        }
        return columns or {_LENGTH: len(table.rows)}

    def _write(self, kind: Any, table: _Table) -> None:
        first, rows = table.written, table.rows[table.written :]
        table.written = len(table.rows)
        found = self._objects.classes.get(kind)
        self._room -= len(rows) * (1 if found is None else _AN_OBJECT)
        if self._room < 0:
            raise TypeError("no plain form for so many objects")
        if found is None:
            names, defaults = kind._fields, kind._field_defaults
        else:
            names, defaults = found.defaults, found.defaults
            try:
                rows = list(map(found.read, rows))
            except AttributeError:  # one is not set
                rows = [[getattr(one, *pair) for pair in defaults.items()] for one in rows]
        for name, *values in zip(names, *rows, strict=False):
            default = defaults.get(name, _REQUIRED)
            column = table.columns.get(name)
            if column is not None:
                column += values
                table.plain.pop(name, None)
                self.sequence(values)  # what they refer to is met now
            elif not _all_default(values, default):
                column = table.columns[name] = [*repeat(default, first), *values]
                table.plain[name] = self.sequence(column)

    def value(self, value: Any) -> Plain:
        kind = type(value)
        if kind is int:
            return value if _LEAST <= value <= _MOST else [_INTEGER, f"{value:x}"]
        if kind is float:
            return value if math.isfinite(value) else [_NOT_FINITE, repr(value)]
        if kind in _AS_IS:
            return value
        if kind in self._names:
            return {self._names[kind]: self._table(kind).place(value)}
        constant = self._constants.get(id(value))
        if constant is not None:
            return [_CONSTANT, constant]
        number = self._kinds.get(kind)
        if number is None:
            raise TypeError(f"no plain form for {kind.__name__}")
        if isinstance(value, dict):
            return [number, self.sequence(value), self.sequence(value.values())]
        if kind is deque:
            return [number, self.sequence(value), value.maxlen]
        if kind is set or kind is frozenset:
            value = _in_order(value)
        return [number, self.sequence(value)]

    def sequence(self, values: Collection[Any]) -> Plain:
        """A list of plain values; or an object of one entry, if all are of one kind."""
        if len(values) == 1:
            [value] = values
            plain = self.value(value)
            if type(plain) is dict:
                return {name: [place] for name, place in plain.items()}
            return [plain]
        kinds = set(map(type, values))
        if len(kinds) == 1:
            [kind] = kinds
            if kind in self._names:
                table = self._table(kind)
                return {table.name: [table.place(value) for value in values]}
            if kind is str or kind is bool:
                return list(values)
            if kind is int and len(values) > 2 and min(values) >= -_FAR and max(values) <= _FAR:
                numbers = list(values)
                steps = list(map(operator.sub, numbers[1:], numbers))
                if 8 * max(map(abs, steps)) <= max(map(abs, numbers)):
                    return {_STEPS: [numbers[0], *steps]}
                return numbers
            if kind in _NESTED and values and self._constants.keys().isdisjoint(map(id, values)):
                return self._nested(kind, values)
        if kinds <= _NUMBERS:
            return [value if _LEAST <= value <= _MOST else self.value(value) for value in values]
        return [self.value(value) for value in values]

    def _nested(self, kind: type, values: Collection[Any]) -> Plain:
        lengths = list(map(len, values))
        if kind is tuple and len(set(lengths)) == 1 and lengths[0]:
            return {_COLUMNS: [self.sequence(column) for column in zip(*values, strict=True)]}
        if kind is set or kind is frozenset:
            values = list(map(_in_order, values))
        flat = [item for value in values for item in value]
        return {str(self._kinds[kind]): [self.sequence(lengths), self.sequence(flat)]}

    def _table(self, kind: type) -> _Table:
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = _Table(self._names[kind])
        return table


class _Reader:
    def __init__(self, objects: PlainObjects, tables: Mapping[str, Plain]) -> None:
        self._objects = objects
        self._containers = objects.containers
        self._nested = objects.nested
        self._plain = tables
        self._made: dict[str, list[Any]] = {}
        self._room = _MAX_RECORDS
        for name in tables:
            kept = objects.by_name.get(name)
            if kept is not None:
                self._made[name] = [kept.new() for _ in range(self._length(name, _AN_OBJECT))]

    def fill(self, given: Given) -> None:
        """Set the attributes of all objects, with those that are given by class."""
        made = [(self._objects.by_name[name], name, rows) for name, rows in self._made.items()]
        for kept, name, rows in made:
            for attribute, value in given.get(kept.kind, {}).items():
                for one in rows:
                    setattr(one, attribute, value)
            columns, put = self._plain[name], kept.put
            if columns.keys() == {_LENGTH}:
                continue
            if len(rows) > 1:
                for attribute, column in columns.items():
                    for one, value in zip(rows, self.sequence(column), strict=True):
                        put[attribute](one, value)
                continue
            [one] = rows  # as of most
            for attribute, column in columns.items():
                if type(column) is list:
                    [value] = column
                    put[attribute](one, value if type(value) in _AS_IS else self.value(value))
                else:
                    [value] = self.sequence(column)
                    put[attribute](one, value)
        for kept, _, rows in made:
            if kept.ready is not None:
                for one in rows:
                    kept.ready(one)

    def _length(self, name: str, weight: int) -> int:
        """The number of rows of a table."""
        length = next(map(_length, self._plain[name].values()), 0)
        self._room -= length * weight
        if length < 1 or self._room < 0:
            raise ValueError(f"{length} of {name}")
        return length

    def value(self, plain: Plain) -> Any:
        kind = type(plain)
        if kind is dict:
            [(name, place)] = plain.items()
            return self._table(name)[place]
        if kind is not list:
            return plain
        number = plain[0]
        container: Any = self._containers.get(number)
        if container is None:
            if number == _INTEGER:
                return int(plain[1], 16)
            if number == _NOT_FINITE:
                return float(plain[1])
            if number == _CONSTANT:
                return self._objects.constants[plain[1]]
            raise ValueError(f"unknown kind {number!r} in a state")
        values = self.sequence(plain[1])
        if container is list:
            return values
        if len(plain) == 2:
            return container(values)
        if container is deque:
            return deque(values, maxlen=plain[2])
        return container(zip(values, self.sequence(plain[2]), strict=True))

    def sequence(self, plain: Plain) -> list[Any]:
        if type(plain) is dict:
            [(name, places)] = plain.items()
            if name == _STEPS:
                if set(map(type, places)) != {int}:
                    raise ValueError("a step in a state is a whole number")
                return list(accumulate(places))
            if name == _COLUMNS:
                return list(zip(*map(self.sequence, places), strict=True))
            if name in self._nested:
                lengths, flat = map(self.sequence, places)
                if sum(lengths) != len(flat):
                    raise ValueError("containers in a state have other lengths")
                items, container = iter(flat), self._nested[name]
                return [container(islice(items, length)) for length in lengths]
            return list(map(self._table(name).__getitem__, places))
        if type(plain) is not list:
            raise ValueError("a sequence in a state is a list")
        return [value if type(value) in _AS_IS else self.value(value) for value in plain]

    def _table(self, name: str) -> list[Any]:
        made = self._made.get(name)
        if made is None:
            columns = self._plain[name]
            if name == _BYTES:
                made = self._read_bytes(*columns)
            else:
                made = self._read_records(self._objects.records[name], columns)
            self._made[name] = made
        return made

    def _read_bytes(self, lengths: Plain, text: str) -> list[bytes]:
        data, sizes = a2b_base64(text, strict_mode=True), self.sequence(lengths)
        ends = list(accumulate(sizes))
        if min(sizes) < 0 or ends[-1] != len(data):
            raise ValueError("bytes in a state have other lengths")
        return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def _read_records(self, kind: Any, columns: Mapping[str, Plain]) -> list[Any]:
        if not columns.keys() - {_LENGTH} <= set(kind._fields):
            raise ValueError(f"a {kind.__name__} in a state has other fields")
        length = self._length(kind.__name__, 1)
        rows = zip(
            *(
                self.sequence(columns[name])
                if name in columns
                else repeat(kind._field_defaults[name], length)
                for name in kind._fields
            ),
            strict=True,
        )
        return list(map(kind._make, rows))


def _length(column: Plain) -> int:
    """How many values a column has."""
    while type(column) is dict:
        [(name, parts)] = column.items()
        column = parts[0] if name == _COLUMNS or name.isdecimal() else parts
    return column if type(column) is int else len(column)


def _in_order(values: Iterable[Any]) -> list[Any]:
    """In one order: equal sets have one form."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def _all_default(values: list[Any], default: Any) -> bool:
    if len(values) == 1:
        [value] = values
        return value is default or (type(value) is type(default) and bool(value == default))
    return values.count(default) == len(values) and set(map(type, values)) == {type(default)}
