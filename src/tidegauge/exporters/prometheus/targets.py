"""A folder of files for Prometheus's ``file_sd_configs``: one for each process that serves."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from tidegauge.safety.critical import reset_after_fork

if sys.platform != "win32":
    import fcntl

_PREFIX: Final = "tidegauge-"
_FLAGS: Final = ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK")  # those that the platform has


class TargetFile:
    """The file in which Prometheus finds this process, until :meth:`close`.

    It appears at once with its content, and every user can read it. Its name is used only once.
    The process holds a lock on it, which the system releases however the process ends: files
    without a lock belong to processes that were killed, and are removed when another file of the
    folder is added or closed. So process ids and ports can be used again, and containers on one
    machine can share a folder. Windows has no such locks; there, such files stay.

    Args:
        folder: the folder; it is created.
        address: host and port, as Prometheus reaches them.

    Raises:
        OSError: the file cannot be written.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> target = TargetFile(folder, "127.0.0.1:9464")
    >>> [file.read_text() for file in Path(folder).iterdir()]
    ['[{"targets": ["127.0.0.1:9464"]}]']
    >>> target.close(); os.listdir(folder)
    []
    """

    def __init__(self, folder: str | os.PathLike[str], address: str) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._folder.chmod(0o755)  # whatever the umask: Prometheus may be another user
        _remove_abandoned(self._folder)
        self._path = self._folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}.json"
        new = self._path.with_suffix(".new")
        self._descriptor = -1
        reset_after_fork(self)
        self._descriptor = _open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            if sys.platform != "win32":
                os.fchmod(self._descriptor, 0o644)
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._descriptor, json.dumps([{"targets": [address]}]).encode())
            new.rename(self._path)
        except BaseException:
            self._release()
            new.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Remove the file; a second call does nothing. In a forked child, it stays."""
        if self._descriptor < 0:
            return
        self._release()
        self._path.unlink(missing_ok=True)
        _remove_abandoned(self._folder)

    def _reset_after_fork(self) -> None:
        self._release()  # the parent keeps the lock

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    if sys.platform == "win32":
        return
    for path in folder.glob(f"{_PREFIX}*.json"):
        with contextlib.suppress(OSError):  # locked, removed by another process, or not ours
            descriptor = _open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    for name in _FLAGS:
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o644)
