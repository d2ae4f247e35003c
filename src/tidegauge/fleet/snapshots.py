"""Snapshots of runs: compressed plain data, with a version.

A snapshot has two parts: what a worker needs at once, and the assembly's part of a trace, which is
read when the trace is needed. Both are compressed with what all snapshots have in common: the file
``snapshot_dictionary.txt``, which never changes for a version.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

VERSION: Final = 2
"""Increase it when the meaning of the data changes, and add to :data:`UPGRADES`."""

Data: TypeAlias = dict[str, Any]
_COMPRESSION: Final = 6
_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of one part: a record of a megabyte may be packed a thousandfold."""

_SIZE: Final = 4  # bytes of the size of the first part, after a byte of the version
_DICTIONARIES: Final = {2: Path(__file__).with_name("snapshot_dictionary.txt").read_bytes()}
"""By the first version that has it."""


class Upgrade(NamedTuple):
    """Makes the data of one version those of the next."""

    head: Callable[[Data], Data] = dict
    trace: Callable[[Any], Any] = list


UPGRADES: Final[Mapping[int, Upgrade]] = {}
"""By the version that they read: a worker continues what earlier releases have written."""


class RunSnapshot(NamedTuple):
    """A snapshot.

    Args:
        head: what a worker needs at once.
        trace: gives the assembly's part.

    >>> head, trace = RunSnapshot.read(RunSnapshot({"runs": []}, lambda: [1]).written())
    >>> head, trace()
    ({'runs': []}, [1])
    """

    head: Data
    trace: Callable[[], Any]

    def written(self) -> bytes:
        """The snapshot as bytes.

        Raises:
            TypeError: something has no plain form, or it is too large.
        """
        head = _packed(self.head)
        size = len(head).to_bytes(_SIZE)
        return VERSION.to_bytes() + size + head + _packed(self.trace())

    @classmethod
    def read(cls, data: bytes) -> RunSnapshot:
        """Read what :meth:`written` has returned, in this release or an earlier one.

        Raises:
            ValueError: it has a later version or another form.
        """
        written = version = data[0] if data else 0
        upgrades: list[Upgrade] = []
        while version != VERSION:
            if version not in UPGRADES:
                raise ValueError(f"a snapshot has version {written}; this release has {VERSION}")
            upgrades.append(UPGRADES[version])
            version += 1
        begin = 1 + _SIZE
        end = begin + int.from_bytes(data[1:begin])
        head = _unpacked(data[begin:end], written)
        for upgrade in upgrades:
            head = upgrade.head(head)

        def trace() -> Any:
            parts = _unpacked(data[end:], written)
            for upgrade in upgrades:
                parts = upgrade.trace(parts)
            return parts

        return cls(head, trace)


def _packed(data: Any) -> bytes:
    plain = orjson.dumps(data)
    if len(plain) > _MAX_BYTES:
        raise TypeError(f"a snapshot has {len(plain)} bytes; at most {_MAX_BYTES}")
    packer = zlib.compressobj(_COMPRESSION, zdict=_dictionary(VERSION))
    return packer.compress(plain) + packer.flush()


def _unpacked(data: bytes, version: int) -> Any:
    unpacker = zlib.decompressobj(zdict=_dictionary(version))
    try:
        unpacked = unpacker.decompress(data, _MAX_BYTES)
        if not unpacker.eof:
            raise ValueError("a snapshot is cut, or too large")
        return orjson.loads(unpacked)
    except zlib.error as error:
        raise ValueError(f"a snapshot has another form: {error}") from error


def _dictionary(version: int) -> bytes:
    return _DICTIONARIES[max(first for first in _DICTIONARIES if first <= version)]
