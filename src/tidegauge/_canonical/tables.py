"""Tables of pandas and pyarrow: by what is in them, however they were built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from tidegauge._canonical.arrays import put_array
from tidegauge._canonical.attributes import module_name
from tidegauge._canonical.encoder import CONTAINER, OBJECT, Children, Encoder, Incomparable

__all__ = ["Column", "arrow_array", "arrow_table", "column", "frame", "index", "moment", "series"]

_ROWS: Final = 1 << 16
_NUMBERS: Final = "biufcmM"
_NESTED: Final = 16
_MAX_LISTED: Final = 4 << 20


def frame(encoder: Encoder, value: Any) -> Children:
    """A DataFrame: its two indexes and its columns, in whichever blocks they lie."""
    encoder.spend(OBJECT)
    held = _held(encoder, value)
    columns, rows = held["_mgr"].axes
    encoder.spend(OBJECT * len(columns))
    encoder.tag("frame")
    return _frame(encoder, held["_mgr"], columns, rows)


def _frame(encoder: Encoder, manager: Any, columns: Any, rows: Any) -> Iterator[Any]:
    encoder.put(b"[")
    yield columns
    encoder.put(b",")
    yield rows
    for position in range(len(columns)):
        encoder.put(b",")
        yield Column(manager.iget_values(position))
    encoder.put(b"]")


class Column:
    """The values of a column, which are pandas' own and of no class that handlers know."""

    def __init__(self, values: Any) -> None:
        self.values = values


def column(encoder: Encoder, value: Any) -> Children:
    """Write the values of a column."""
    return _values(encoder, value.values)


def series(encoder: Encoder, value: Any) -> Children:
    """A Series: its index, its name and its values."""
    encoder.spend(OBJECT)
    held = _held(encoder, value)
    manager = held["_mgr"]
    encoder.tag("series")
    return ([manager.axes[0], held.get("_name"), Column(manager.blocks[0].values)],)


def index(encoder: Encoder, value: Any) -> Children:
    """An Index: its names and its values."""
    encoder.spend(OBJECT)
    pandas = sys.modules["pandas"]
    kind = type(value)
    if module_name(kind).partition(".")[0] != "pandas":
        raise Incomparable("an index of another package")
    encoder.tag("index")
    if kind is pandas.RangeIndex:
        return ([value.name, value._range] if len(value) > _ROWS else [value.name, value._values],)
    if kind is pandas.MultiIndex:
        encoder.spend(len(value))
        return ([value.get_level_values(level) for level in range(value.nlevels)],)
    return ([value.name, Column(value._values)],)


def moment(encoder: Encoder, value: Any) -> Children:
    """A Timestamp or a Timedelta, to the nanosecond."""
    encoder.spend(OBJECT)
    encoder.tag(type(value).__name__)
    return ([value._value, value.unit, getattr(value, "tzinfo", None)],)


def _values(encoder: Encoder, values: Any) -> Children:
    pandas, numpy = sys.modules["pandas"], sys.modules["numpy"]
    if issubclass(type(values), numpy.ndarray):
        return put_array(encoder, numpy.ndarray.view(values, numpy.ndarray))
    if module_name(type(values)).partition(".")[0] != "pandas":
        raise Incomparable("a column of another package")
    encoder.spend(OBJECT)
    encoder.tag("column")
    if type(values) is pandas.Categorical:
        return ([values.codes, values.categories, bool(values.ordered)],)
    inner: Any = getattr(values, "_ndarray", None)
    if type(inner) is numpy.ndarray and inner.dtype.hasobject:
        encoder.spend(inner.size)
        return ([str(values.dtype), inner.tolist()],)
    encoder.hold(values.nbytes)
    if values.dtype.kind not in _NUMBERS:  # as objects
        arrow: Any = getattr(values, "_pa_array", None)
        encoder.spend(len(values))
        if arrow is not None and arrow.type.num_fields:
            encoder.spend(_NESTED * len(values) + (values.nbytes >> 2))
    hashed = (
        pandas.util.hash_array(values[start : start + _ROWS], categorize=False).tobytes()
        for start in range(0, len(values), _ROWS)
    )
    encoder.digested("hashed", [str(values.dtype), len(values)], hashed)
    return ()


def _held(encoder: Encoder, value: Any) -> dict[Any, Any]:
    return encoder.attributes(value)


def arrow_table(encoder: Encoder, value: Any) -> Children:
    """A table of pyarrow's: its columns by name."""
    encoder.spend(OBJECT * (1 + value.num_columns))
    encoder.tag("arrow")
    return ([list(value.schema.names), value.columns],)


def arrow_array(encoder: Encoder, value: Any) -> Children:
    """An array of pyarrow's, in whichever chunks: its type and its values."""
    encoder.spend(OBJECT)
    of, length = value.type, len(value)
    pyarrow = sys.modules["pyarrow"]
    if type(value) is pyarrow.ChunkedArray:
        encoder.spend(CONTAINER * max(value.num_chunks - 1, 0))
    _own(of)
    encoder.tag("arrow")
    if (pyarrow.types.is_integer(of) or pyarrow.types.is_floating(of)) and not value.null_count:
        encoder.hold(value.nbytes)
        parts = (
            value.slice(start, _ROWS).to_numpy(**_copying(pyarrow, value)).tobytes()
            for start in range(0, length, _ROWS)
        )
        encoder.digested("array", [str(of), length], parts)
        return ()
    if value.nbytes > _MAX_LISTED:
        raise Incomparable("too large")
    encoder.spend(length)
    return ([str(of), value.to_pylist()],)


def _copying(pyarrow: Any, value: Any) -> dict[str, bool]:
    return {} if type(value) is pyarrow.ChunkedArray else {"zero_copy_only": False}


def _own(of: Any) -> None:
    """Types of the user's make their values with code of the user's."""
    if module_name(type(of)).partition(".")[0] != "pyarrow" or hasattr(of, "extension_name"):
        raise Incomparable("a type of another package")
    for position in range(of.num_fields):
        _own(of.field(position).type)
