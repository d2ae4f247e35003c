"""Text that hurts a terminal; programs on one, and whether it only shows what they print."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from support.processes import PATIENCE, stopped_in_the_end

HOSTILE = {
    "the clipboard": "\x1b]52;c;cm0gLXJmIC8K\x07",
    "the title": "\x1b]0;owned\x1b\\",
    "a link": "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "an empty screen": "\x1b[2J\x1b[H",
    "a colour": "\x1b[38;5;201m",
    "a question": "\x1b[6n\x1b[c\x05",
    "a device string": "\x1bP+q544e\x1b\\",
    "C0": "".join(map(chr, range(32))),
    "C1": "".join(map(chr, range(0x80, 0xA0))),
    "a sequence of C1": "\x9b2J\x9d0;owned\x9c",
    "rubouts": "ab\x08\x08\x7f\x7f",
    "overrides": "\u202egnp.exe\u202c\u202dabc\u202c",
    "isolates": "\u2066a\u2067b\u2068c\u2069",
    "directions": "\u200e\u200f\u061c",
    "no width": "\u200b\u200c\u200d\u2060\ufeff\u00ad",
    "fillers": "\u3164\u115f\u034f\u180e",
    "tags": "\U000e0041\U000e0042\U000e007f",
    "a storm": "Z" + "\u0301\u0302\u20dd" * 200,
    "lines": "a\nb\r\nc\rd\x0be\x0cf\x1cg\x85h\u2028i\u2029j",
    "tabs": "a\tb",
    "closed markup": "[/tmp/x] [/x] [/]",
    "markup": "[bold red]x[/] [link=http://evil.example]y[/link] :skull: \\[z]",
    "private letters": "\ue000\U000f0000",
    "very long": "w" * 20_000,
}
"""Texts that others may choose, by what they are or change."""

_OURS = re.compile(r"\x1b\[(?:[0-9](?:;[0-9])*m|\?25[hl]|2K|1A)|\r(?=\n|\x1b\[(?:2K|1A))")
"""What our tables do without colours: bold and faint text, and a table that is drawn again."""


def hidden_in(printed: bytes, *, tty: bool) -> set[str]:
    """The letters among what was printed that a terminal acts on or does not show."""
    text = printed.decode()
    if tty:
        text = _OURS.sub("", text.replace("\r\n", "\n"))
    found = {one for one in text if not one.isprintable() and one != "\n"}
    found |= {one for one in text if one in "\u3164\u115f\u034f"}
    marks = 0
    for one in text:
        marks = marks + 1 if unicodedata.combining(one) or unicodedata.category(one) == "Me" else 0
        if marks > 4:
            found.add(one)
    return found


class Running:
    """A program at work, and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], read_from: int) -> None:
        self.process = process
        self.printed = bytearray()
        self._read_from = read_from
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # a terminal whose program has ended
            while found := os.read(self._read_from, 1 << 16):
                self.printed += found
        os.close(self._read_from)

    def wait_for(self, *texts: str) -> None:
        """Wait until it has printed them."""
        self.wait_until(lambda: all(text.encode() in self.printed for text in texts))

    def wait_until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds, while the program runs."""
        until = time.monotonic() + 2 * PATIENCE
        while not holds():
            assert self.process.poll() is None, self.printed.decode()
            assert time.monotonic() < until, self.printed.decode()
            time.sleep(0.02)

    def type(self, text: bytes) -> None:
        """Type on its terminal."""
        os.write(self._read_from, text)

    def ended(self) -> int:
        """Wait for its end; returns its exit code."""
        code = self.process.wait(4 * PATIENCE)
        self._thread.join()
        return code


@contextlib.contextmanager
def running(
    command: Sequence[str], *, tty: bool, typed: bytes = b"", **options: Any
) -> Iterator[Running]:
    """A program on a terminal or between pipes, ended at the end of the block.

    Args:
        command: the program.
        tty: whether its standard streams are a terminal, of 150 columns.
        typed: what its user types.
        **options: more for ``Popen``.
    """
    size = {"COLUMNS": "150", "LINES": "300", "TERM": "xterm", "NO_COLOR": "1"}
    options["env"] = {**options.get("env", os.environ), **size}
    if tty:
        read_from, inside = os.openpty()
        process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, **options)
        os.close(inside)
        os.write(read_from, typed)
    else:
        read_from, inside = os.pipe()
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=inside, stderr=inside, **options
        )
        os.close(inside)
        assert process.stdin is not None
        process.stdin.write(typed)
        process.stdin.close()
    with stopped_in_the_end(process):
        found = Running(process, read_from)
        yield found
    found.ended()
