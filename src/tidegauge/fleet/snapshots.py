"""Snapshots of runs: compressed plain data, with a version.

A snapshot has two parts: what a worker needs at once, and the assembly's part of a trace, which is
read when the trace is needed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

__all__ = ["UPGRADES", "VERSION", "RunSnapshot", "Upgrade"]

VERSION: Final = 1
"""Increase it when the meaning of the data changes, and add to :data:`UPGRADES`."""

Data: TypeAlias = dict[str, Any]
_COMPRESSION: Final = 6
_SIZE: Final = 4  # bytes of the size of the first part


class Upgrade(NamedTuple):
    """Makes the data of one version those of the next.

    Args:
        head: of the first part.
        trace: of the second part.
    """

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
            TypeError: something has no plain form.
        """
        head = _packed({**self.head, "version": VERSION})
        return len(head).to_bytes(_SIZE) + head + _packed(self.trace())

    @classmethod
    def read(cls, data: bytes) -> RunSnapshot:
        """Read what :meth:`written` has returned, in this release or an earlier one.

        Raises:
            ValueError: it has a later version or another form.
        """
        size = int.from_bytes(data[:_SIZE]) + _SIZE
        head = _unpacked(data[_SIZE:size])
        version = head.pop("version", None) if isinstance(head, dict) else None
        upgrades: list[Upgrade] = []
        while version != VERSION:
            if version not in UPGRADES:
                raise ValueError(f"a snapshot has version {version!r}; this release has {VERSION}")
            upgrades.append(UPGRADES[version])
            version += 1
        for upgrade in upgrades:
            head = upgrade.head(head)

        def trace() -> Any:
            parts = _unpacked(data[size:])
            for upgrade in upgrades:
                parts = upgrade.trace(parts)
            return parts

        return cls(head, trace)


def _packed(data: Any) -> bytes:
    return zlib.compress(orjson.dumps(data), _COMPRESSION)


def _unpacked(data: bytes) -> Any:
    try:
        return orjson.loads(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(f"a snapshot has another form: {error}") from error
