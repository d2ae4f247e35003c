"""Reading a file that a policy or a command names: regular, and of bounded size."""

from __future__ import annotations

import os
import stat

from tidegauge.errors import ConfigurationError


def content_of(path: str | os.PathLike[str], what: str, *, megabytes: int) -> bytes:
    """The content of a regular file.

    Args:
        path: the file.
        what: what it is, for messages: ``policy``, ``score``.
        megabytes: how large it may be, in MiB.

    Raises:
        ConfigurationError: it cannot be read, is not a regular file, or is larger.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError(f"not a regular file; give the path of a {what} file")
            content = stream.read((megabytes << 20) + 1)
    except OSError as error:
        raise ConfigurationError(f"{what} {name}: {error.strerror or error}") from error
    except ValueError as error:  # such as a name with a null byte
        raise ConfigurationError(f"{what} {name!r}: {error}") from error
    if len(content) > megabytes << 20:
        raise ConfigurationError(
            f"{what} {name}: larger than {megabytes} MiB; give the path of a {what} file"
        )
    return content


def _without_waiting(path: str, flags: int) -> int:
    """An opener for ``open()`` that does not wait for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
