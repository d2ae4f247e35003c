"""Where hooks and the watcher meet on this machine: a folder that only its user can enter."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidegauge.errors import ConfigurationError

SOCKET_FILE: Final = "watch.sock"
"""The socket, in the folder."""

PORT_FILE: Final = "watch.port"
"""The file with the port and the token, on systems without such sockets."""

_PRIVATE: Final = 0o700


def watch_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the watcher: in the folder of the login session, else in the user's cache.

    >>> watch_folder({"XDG_RUNTIME_DIR": "/"})
    PosixPath('/tidegauge')
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime) / "tidegauge"
    return Path(os.path.expanduser("~")) / ".cache" / "tidegauge"


def private_folder(folder: Path) -> Path:
    """Make a folder that only its user can enter, or check that it is one.

    Raises:
        ConfigurationError: it is a link or no folder, or belongs to another user.
        OSError: it cannot be made.
    """
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if not hasattr(os, "geteuid"):
        return folder
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigurationError(f"{folder} is a link; remove it")
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{folder} belongs to user {found.st_uid}, who could read what agents do; remove it"
        )
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        folder.chmod(_PRIVATE)
    return folder
