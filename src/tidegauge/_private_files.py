"""Files that hold what agents read and wrote: only their owner reads them."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["open_private", "private"]

_MODE: Final = 0o600
_FLAGS: Final = ("O_CLOEXEC", "O_NOFOLLOW", "O_BINARY")  # those that the platform has

_logger = logging.getLogger("tidegauge")


def private(path: str, flags: int) -> int:
    """An opener for ``open()``: a file that is made is its owner's alone.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "judged.jsonl"
    >>> with open(path, "ab", opener=private) as file:
    ...     oct(os.fstat(file.fileno()).st_mode & 0o077)
    '0o0'
    """
    return os.open(path, flags, _MODE)


def open_private(path: Path) -> int:
    """A file to append to that a running process keeps, as a descriptor.

    It is made with mode 0600, and never opened through a symbolic link. One that is there already
    keeps its mode; that others may read or write it is logged as a warning. All is checked on the
    open file, which cannot be exchanged in between. Windows has neither modes nor owners:
    there the access rights of the folder hold.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be opened, is a symbolic link, a pipe or another thing that is neither
            a regular file nor a character device (as /dev/null is), or belongs to another user
            than that of this process, or root.
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
        raise OSError("it is no regular file: choose another path")
    if not hasattr(os, "geteuid"):
        return
    if found.st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"it belongs to user {found.st_uid}, who could read it")
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode) and mode & 0o077:
        _logger.warning("%s is open to other users (mode %03o): chmod 600 it", path, mode)
