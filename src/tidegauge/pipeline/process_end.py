"""Has a function called when the process ends, in whichever way Python's libraries end one.

An interpreter that ends runs the functions of ``atexit``. The children that ``multiprocessing``
and Celery fork end with ``os._exit``, which runs none of them: each of the two has its own hook.
Neither library is imported for it. They are looked for among the loaded modules when a pipeline is
made and, because they may be loaded later, in every child of a fork.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidegauge.safety.guard import guarded

_LAST: Final = -100
"""Priority of a finalizer of ``multiprocessing``: after those of the user and of its queues."""


class ProcessEnd:
    """Calls a function at the end of this process, and of every child that is forked from it.

    A process that is killed or calls ``os._exit`` itself has no end at which anything is called.

    Args:
        call: the function; a second call must do nothing.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._hooked: set[str] = set()
        atexit.register(call)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.hook)

    @guarded("process_end", default=None, interrupting="run")
    def hook(self) -> None:
        """Use the hooks of the libraries that are loaded by now."""
        for name, use in (
            ("multiprocessing.util", self._hook_multiprocessing),
            ("celery.signals", self._hook_celery),
        ):
            module = sys.modules.get(name)
            if module is not None and name not in self._hooked and use(module):
                self._hooked.add(name)

    def _hook_multiprocessing(self, util: Any) -> bool:
        if not hasattr(util, "Finalize"):  # another thread still imports it
            return False
        # A child forgets the finalizers of its parent, and then calls this.
        util.register_after_fork(self, ProcessEnd._finalize)
        process = sys.modules["multiprocessing.process"]
        if process.parent_process() is not None:  # tidegauge was imported by the child's work
            self._finalize()
        return True

    def _finalize(self) -> None:
        util = sys.modules["multiprocessing.util"]
        util.Finalize(None, self._call_after_threads, exitpriority=_LAST)

    def _hook_celery(self, signals: Any) -> bool:
        ends = getattr(signals, "worker_process_shutdown", None)
        if ends is None:
            return False
        ends.connect(self._called_by_celery, weak=False)
        return True

    def _called_by_celery(self, **_: object) -> None:
        self._call()

    def _call_after_threads(self) -> None:
        """Call it when the threads have ended for which Python waits: they may still report runs.

        ``multiprocessing`` waits for them after its finalizers.
        """
        if not list(_threads_at_work()):
            self._call()
            return
        thread = threading.Thread(target=self._wait_and_call, name="tidegauge-end", daemon=False)
        try:
            thread.start()
        except RuntimeError:  # the system starts no more threads
            self._call()

    def _wait_and_call(self) -> None:
        while threads := list(_threads_at_work()):
            for thread in threads:
                thread.join()
        self._call()


def _threads_at_work() -> Iterator[threading.Thread]:
    """The other threads for whose end Python waits."""
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (
            threading.main_thread(),
            threading.current_thread(),
        ):
            yield thread
