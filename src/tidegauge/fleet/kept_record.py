"""What a worker keeps of a message until its run has ended, by its place in the log.

Two lines of plain JSON: what is known of the message, and the message as it came.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import orjson

__all__ = [
    "CLOCK_KEY",
    "KeptRecord",
    "dump_record",
    "load_record",
    "mark_key",
    "marked",
    "record_key",
]

_VERSION: Final = 1
_RECORD: Final = b"r"
_MARK: Final = b"e"
CLOCK_KEY: Final = b"c"
"""Under which it is kept up to when what was kept is told."""

_OFFSET: Final = struct.Struct(">q")


class KeptRecord(NamedTuple):
    """A message that was taken.

    Args:
        offset: its place in its partition.
        now: when it was taken to have come, in seconds since the epoch.
        key: its key.
        value: it.
    """

    offset: int
    now: float
    key: str
    value: bytes


def dump_record(offset: int, now: float, key: str, value: bytes) -> bytes:
    """A message as it is kept.

    >>> dump_record(7, 1.5, "r", b'{"type":"end"}')
    b'{"version":1,"offset":7,"now":1.5,"key":"r"}\\n{"type":"end"}'
    """
    known = {"version": _VERSION, "offset": offset, "now": now, "key": key}
    return orjson.dumps(known) + b"\n" + value


def load_record(data: bytes) -> KeptRecord:
    """What :func:`dump_record` gave.

    Raises:
        ValueError: it is of another version, or not of that form.

    >>> load_record(dump_record(7, 1.5, "r", b'{"type":"end"}')).value
    b'{"type":"end"}'
    """
    known, _, value = data.partition(b"\n")
    try:
        told = orjson.loads(known)
        if told["version"] != _VERSION:
            raise ValueError(f"kept state of version {told['version']!r} is not of {_VERSION}")
        return KeptRecord(int(told["offset"]), float(told["now"]), str(told["key"]), value)
    except (KeyError, TypeError) as error:
        raise ValueError("kept state of another form") from error


def record_key(offset: int) -> bytes:
    """Under which a record is kept: in the order of the log."""
    return _RECORD + _OFFSET.pack(offset)


def mark_key(run: str) -> bytes:
    """Under which it is kept that a run has ended."""
    return _MARK + run.encode("utf-8", "surrogatepass")


def marked(key: bytes) -> str | None:
    """The run that a key marks as ended; ``None``, it is the key of a record."""
    return key[1:].decode("utf-8", "surrogatepass") if key[:1] == _MARK else None
