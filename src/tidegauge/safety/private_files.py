"""Files with contents of agents, which only their owner may read."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

_MODE: Final = 0o600
_FLAGS: Final = ("O_CLOEXEC", "O_NOFOLLOW", "O_BINARY")  # those that the platform has

_logger = logging.getLogger("tidegauge")


def private(path: str, flags: int) -> int:
    """An opener for ``open()`` that creates files with mode 0600.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "judged.jsonl"
    >>> with open(path, "ab", opener=private) as file:
    ...     oct(os.fstat(file.fileno()).st_mode & 0o077)
    '0o0'
    """
    return os.open(path, flags, _MODE)


def open_private(path: Path) -> int:
    """Open a file to append to for the life of a process; returns its descriptor.

    A new file has mode 0600. An existing file keeps its mode; if others may read or write it, a
    warning is logged. Symbolic links are not followed. The checks use the open file, which cannot
    be replaced meanwhile. Windows has neither modes nor owners: there the access rights of the
    folder apply.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be opened, is a symbolic link, is neither a regular file nor a
            character device (such as /dev/null), or belongs to a user other than that of this
            process or root.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    for name in _FLAGS:
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags, _MODE)
    try:
        _check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, found: os.stat_result) -> None:
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise OSError("not a regular file; choose another path")
    if not hasattr(os, "geteuid"):
        return
    if found.st_uid not in (os.geteuid(), 0):
        raise PermissionError(
            f"the file belongs to user {found.st_uid}, who could read it; choose another path"
        )
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode) and mode & 0o077:
        _logger.warning("Other users can access %s (mode %03o); run chmod 600", path, mode)
