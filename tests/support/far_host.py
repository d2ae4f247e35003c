"""Another host on this machine: a network namespace, whose link to this one can be cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

from support.requirements import missing

__all__ = ["NEAR", "FarHost", "far_host"]

NEAR: Final = "10.213.77.1"
"""The address of this machine as the other host sees it."""

_FAR: Final = "10.213.77.2"


class FarHost:
    """The other host.

    Attributes:
        address: its address.
        command: the beginning of a command that runs there.
    """

    address = _FAR

    def __init__(self, name: str) -> None:
        self._name = name
        self.command = ("ip", "netns", "exec", name)

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """No packet passes meanwhile, and neither side learns of it."""
        _ip("link", "set", self._name, "down")
        try:
            yield
        finally:
            _ip("link", "set", self._name, "up")


@contextlib.contextmanager
def far_host() -> Iterator[FarHost]:
    """Make a network namespace with a link to it, and remove both."""
    if shutil.which("ip") is None or os.getuid() != 0:
        missing("network namespaces need root and the program ip: apt-get install iproute2")
    name = f"tg{os.getpid()}"
    inside = f"{name}f"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", inside, "netns", name)
        _ip("addr", "add", f"{NEAR}/30", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "addr", "add", f"{_FAR}/30", "dev", inside)
        _ip("-n", name, "link", "set", inside, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield FarHost(name)
    finally:
        _ip("netns", "delete", name)  # and the link with it


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)
