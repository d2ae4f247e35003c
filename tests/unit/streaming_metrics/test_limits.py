"""Bounded names under threads."""

from __future__ import annotations

import threading

from tidegauge.streaming_metrics.limits import BoundedNames


def test_the_limit_holds_when_many_threads_ask_at_once():
    names = BoundedNames[str](limit=10, other="other")
    admitted = set()

    def work(thread):
        for n in range(500):
            admitted.add(names.admit(f"{(n + thread) % 100}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 11
    assert all(names.admit(name) == name for name in admitted - {"other"})
