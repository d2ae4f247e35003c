"""A signal handler at every moment of a call: what it does then, or what it raises."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tidegauge.safety.critical import interrupted

_SECONDS = 10.0
_MOST = 2_000


def moments(*, raising: bool = False) -> Iterator[Interruption]:
    """An interruption for each line that a call runs, until one comes too late.

    Args:
        raising: whether it raises: Python's own conditions make a RuntimeError of that.
    """
    for line in range(1, _MOST):
        one = Interruption(line, raising)
        yield one
        if not one.came:
            assert line > 1
            return
    raise AssertionError("the call has no end")


class Interruption:
    """Something that happens once, at one line of a call, in its thread: of ours or of Python's."""

    def __init__(self, line: int, raising: bool) -> None:
        self._raising = raising
        self._left = line
        self._entered: set[tuple[int, int]] = set()
        self.came = False

    def during(self, call: Callable[[], object], deed: Callable[[], object]) -> None:
        """Make the call in a thread of its own; fail where it hangs or raises."""
        raised: list[BaseException] = []

        def work() -> None:
            interrupted()  # as in a main thread, which has what belongs to it from the start
            sys.settrace(self._watch)
            try:
                call()
            except BaseException as error:
                raised.append(error)
            finally:
                sys.settrace(None)

        self._deed = deed
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(_SECONDS)
        assert not thread.is_alive(), "the call hangs"
        if raised:
            raise raised[0]

    def _watch(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = str(frame.f_globals.get("__name__"))
        if not name.startswith(("tidegauge.", "threading")):
            return None
        if self._raising and frame.f_code.co_qualname.startswith("Condition."):
            return None
        if event == "line" and not self._leaves(frame):
            self._left -= 1
            if not self._left:
                self.came = True
                sys.settrace(None)
                self._deed()
                return None
        return None if self.came else self._watch

    def _leaves(self, frame: FrameType) -> bool:
        """Whether a ``with`` statement ends here: no signal comes before its lock is released."""
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if not line.lstrip().startswith("with "):
            return False
        at = (id(frame), frame.f_lineno)
        left = at in self._entered
        self._entered.add(at)
        return left
