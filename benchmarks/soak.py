"""``python -m benchmarks soak --minutes 10``: half the maximum rate for long, and flat memory.

Then, in another receiver, as much as it takes of traffic that never comes to an end, one kind after
the other: with default settings its memory stays below a limit.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from benchmarks.endless_traffic import KINDS, request_of
from benchmarks.otlp_load import Sender, make_load
from benchmarks.serve import OTHERS, STEPS, Pace, rate
from benchmarks.served import served

WARM_UP_SECONDS = 30.0
TOLERANCE = 1.05
EVERY = 5.0
MOST_MEGABYTES = 512
"""Of resident memory, with default settings, whatever comes."""


def main(arguments: list[str]) -> int:
    """Returns 1 when memory grew, spans were lost, a scrape was not answered or a limit passed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="duration in minutes; default: 10"
    )
    parser.add_argument(
        "--share", type=float, default=0.5, help="share of the maximum rate; default: 0.5"
    )
    parser.add_argument(
        "--endless",
        type=float,
        default=30.0,
        help="seconds of each kind of endless traffic; default: 30",
    )
    options = parser.parse_args(arguments)
    paced = _paced(options) if options.minutes else True
    bounded = _endless(options.endless) if options.endless else True
    return 0 if paced and bounded else 1


def _endless(seconds: float) -> bool:
    """Whether memory stays below the limit."""
    most = 0.0
    with served() as server:
        sender = Sender(server.target, at_once=4)
        for kind, endless in KINDS.items():
            traces, megabytes = endless(), []
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                sender.send(request_of(traces))
                megabytes.append(server.resident_bytes / 1e6)
            sender.finish()
            server.page()
            most = max(most, *megabytes)
            middle, end = megabytes[len(megabytes) // 2], megabytes[-1]
            print(
                f"{kind}: at most {max(megabytes):.0f} MB, {middle:.0f} MB midway, {end:.0f} MB "
                "at the end"
            )
        sender.close()
    print(f"at most {most:.0f} MB of whatever comes, target: {MOST_MEGABYTES} MB")
    return most <= MOST_MEGABYTES


def _paced(options: argparse.Namespace) -> bool:
    """Whether nothing is lost, and memory is flat."""
    load = make_load(OTHERS)
    with served() as server:
        most = rate(server.target, load, partial(server.wait_for, STEPS))
    print(
        f"at most {most:,.0f} spans/s; {options.share * most:,.0f} for {options.minutes:g} minutes"
    )
    megabytes: list[float] = []
    slowest = 0.0
    with served() as server:
        with Pace(server.target, load, options.share * most) as pace:
            time.sleep(WARM_UP_SECONDS)
            until = time.monotonic() + 60 * options.minutes
            while time.monotonic() < until:
                began = time.perf_counter()
                server.page()
                slowest = max(slowest, time.perf_counter() - began)
                megabytes.append(server.resident_bytes / 1e6)
                if sys.stderr.isatty():
                    left = until - time.monotonic()
                    print(f"{left:5.0f} s left, {megabytes[-1]:.0f} MB", end="\r", file=sys.stderr)
                time.sleep(EVERY)
        server.wait_for(STEPS, pace.steps)
        measured = server.total(STEPS)
    start, middle, end = megabytes[0], megabytes[len(megabytes) // 2], megabytes[-1]
    print(f"{pace.sent:,.0f} spans sent, {pace.retries} requests repeated")
    print(f"{measured:,.0f} of {pace.steps:,} steps measured")
    print(f"resident memory: {start:.0f} MB, {middle:.0f} MB midway, {end:.0f} MB at the end")
    print(f"slowest scrape: {slowest * 1e3:.0f} ms")
    # At first what is remembered of ended traces fills up, so the second half counts.
    flat = end <= TOLERANCE * middle
    print(f"from midway to the end: {end / middle:.2f} x, target: {TOLERANCE:g} x")
    return flat and measured == pace.steps
