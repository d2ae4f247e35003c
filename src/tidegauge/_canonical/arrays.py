"""Arrays of numpy, scipy and the standard library: by type, shape and bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from tidegauge._canonical.attributes import module_name, type_name
from tidegauge._canonical.encoder import OBJECT, Children, Encoder, Incomparable

__all__ = ["array", "chunks", "dtype", "put_array", "scalar", "sparse", "standard"]

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
    """Write an exact ``ndarray``: a view of the user's own, if that is told."""
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
    """A number of numpy's: as the number that it is."""
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
    """A data type of numpy's."""
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
    """A sparse matrix: equal ones have equal entries, in whatever order and form they are held."""
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
    """An array of the standard library's."""
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
