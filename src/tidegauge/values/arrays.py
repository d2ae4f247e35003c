"""Arrays of numpy, scipy and the standard library, tables of pandas and pyarrow: by content."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from tidegauge.values.attributes import module_name, type_name
from tidegauge.values.encoder import CONTAINER, OBJECT, Children, Encoder, Incomparable

_PIECE: Final = 1 << 18
_MAX_SCALAR: Final = 4 << 20
_MAX_SCATTERED: Final = 32 << 20
_MAX_SORTED: Final = 100_000


def array(encoder: Encoder, value: Any) -> Children:
    """A numpy array; of a subclass also what its instances hold (a mask, a unit)."""
    encoder.spend(OBJECT)
    numpy = sys.modules["numpy"]
    plain = numpy.ndarray.view(value, numpy.ndarray)
    if type(value) is numpy.ndarray:
        return put_array(encoder, plain, value)
    held = encoder.attributes(value)
    encoder.tag(type_name(type(value)))
    return ([plain, held],)


def put_array(encoder: Encoder, plain: Any, of: object = None) -> Children:
    """Write an exact ``ndarray``; ``of`` is the user's array of which it is a view."""
    shape = list(plain.shape)
    if plain.dtype.hasobject:
        encoder.spend(plain.size)
        encoder.tag("array")
        return ([shape, plain.ravel().tolist()],)
    contiguous = plain.flags.c_contiguous or plain.flags.f_contiguous
    if not contiguous and plain.nbytes > _MAX_SCATTERED:  # it may be more than there is in memory
        raise Incomparable("too large")
    encoder.hold(plain.nbytes)
    encoder.digested("array", [_name(encoder, plain.dtype), shape], chunks(plain), of)
    return ()


def chunks(plain: Any) -> Iterator[Any]:
    """The bytes of an array in the order of its elements, piece by piece, uncopied where it can."""
    if plain.nbytes <= _PIECE or plain.ndim == 0:
        yield plain.tobytes()
        return
    rows = max(1, _PIECE * len(plain) // plain.nbytes)
    for start in range(0, len(plain), rows):
        if rows == 1 and plain.ndim > 1:
            yield from chunks(plain[start])
        else:
            piece = plain[start : start + rows]
            shown = piece.flags.c_contiguous and piece.dtype.kind in "biufc"
            yield piece if shown else piece.tobytes()


def scalar(encoder: Encoder, value: Any) -> Children:
    """A numpy scalar, as a plain number where it is one."""
    encoder.spend(1)
    numpy = sys.modules["numpy"]
    of = numpy.generic.dtype.__get__(value)
    if of.kind in "biuf" and of.itemsize <= 8:
        return (numpy.generic.item(value),)
    if of.hasobject:
        raise Incomparable("a record of objects")
    if of.itemsize > _MAX_SCALAR:  # it is copied as a whole
        raise Incomparable("too large")
    encoder.hold(of.itemsize)
    encoder.spend(of.itemsize >> 10)
    encoder.digested("scalar", _name(encoder, of), (numpy.generic.tobytes(value),))
    return ()


def dtype(encoder: Encoder, value: Any) -> Children:
    """A numpy data type."""
    encoder.spend(OBJECT)
    if value.hasobject and value.names is not None:
        raise Incomparable("a record of objects")
    encoder.tag("dtype")
    encoder.text(_name(encoder, value))
    return ()


def _name(encoder: Encoder, of: Any) -> str:
    _spend_fields(encoder, of)
    return of.str if of.names is None and of.subdtype is None else str(of.descr)


def _spend_fields(encoder: Encoder, of: Any) -> None:
    """Charge for the fields of a data type, each as often as its description has it."""
    if of.subdtype is not None:
        _spend_fields(encoder, of.base)
    elif of.names is not None:
        encoder.spend(OBJECT * len(of.names))
        for name in of.names:
            field = of.fields[name][0]
            if field.names is not None or field.subdtype is not None:
                _spend_fields(encoder, field)


def sparse(encoder: Encoder, value: Any) -> Children:
    """A sparse matrix: equal ones have equal entries, independent of their order and format."""
    encoder.spend(OBJECT)
    kind = type(value)
    held = encoder.attributes(value)
    if module_name(kind).partition(".")[0] != "scipy":
        encoder.tag(type_name(kind))
        return (held,)
    shape = held.get("_shape")
    encoder.tag("sparse")
    if value.nnz > _MAX_SORTED:  # by the arrays that it holds
        arrays = ("data", "indices", "indptr", "coords", "offsets", "rows")
        return ([value.format, shape, {name: held[name] for name in arrays if name in held}],)
    entries = value.tocoo(copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    # scipy before 1.13 has two dimensions, and other names for them.
    axes = entries.coords if hasattr(entries, "coords") else (entries.row, entries.col)
    coords = [axis.astype("int64") for axis in axes]
    return ([shape, coords, entries.data],)


def standard(encoder: Encoder, value: Any) -> Children:
    """An array of the standard library."""
    encoder.spend(OBJECT)
    kind = sys.modules["array"].array
    of = kind.__dict__
    length, size = kind.__len__(value), of["itemsize"].__get__(value)
    encoder.hold(length * size)
    rows = _PIECE // size
    parts = (
        bytes(kind.tobytes(kind.__getitem__(value, slice(start, start + rows))))
        for start in range(0, length, rows)
    )
    encoder.digested("array.array", [of["typecode"].__get__(value), length], parts)
    return ()


_ROWS: Final = 1 << 16
_NUMBERS: Final = "biufcmM"
_NESTED: Final = 16
_MAX_LISTED: Final = 4 << 20


def frame(encoder: Encoder, value: Any) -> Children:
    """A DataFrame: its two indexes and its columns, independent of its blocks."""
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
        yield ColumnValues(manager.iget_values(position))
    encoder.put(b"]")


class ColumnValues:
    """The values of a column, to give them a class that has a handler."""

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
    return ([manager.axes[0], held.get("_name"), ColumnValues(manager.blocks[0].values)],)


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
    return ([value.name, ColumnValues(value._values)],)


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
    """A pyarrow table: its columns by name."""
    encoder.spend(OBJECT * (1 + value.num_columns))
    encoder.tag("arrow")
    return ([list(value.schema.names), value.columns],)


def arrow_array(encoder: Encoder, value: Any) -> Children:
    """A pyarrow array: its type and its values, independent of its chunks."""
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
    """Reject extension types: their values are made by the user's code."""
    if module_name(type(of)).partition(".")[0] != "pyarrow" or hasattr(of, "extension_name"):
        raise Incomparable("a type of another package")
    for position in range(of.num_fields):
        _own(of.field(position).type)
