"""``python -m benchmarks soak --minutes 10``: half the maximum rate for long, and flat memory."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from benchmarks.otlp_load import make_load
from benchmarks.serve import OTHERS, STEPS, Pace, rate
from benchmarks.served import served

WARM_UP_SECONDS = 30.0
TOLERANCE = 1.05
EVERY = 5.0


def main(arguments: list[str]) -> int:
    """Returns 1 when memory grew, spans were lost or a scrape was not answered."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="duration in minutes; default: 10"
    )
    parser.add_argument(
        "--share", type=float, default=0.5, help="share of the maximum rate; default: 0.5"
    )
    options = parser.parse_args(arguments)
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
    return 0 if flat and measured == pace.steps else 1
