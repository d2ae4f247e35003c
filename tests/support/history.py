"""What was scraped, written into Prometheus as if it had been scraped at other times."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.prometheus import Prometheus, find_binary, scraping

__all__ = ["EVERY", "knowing"]

EVERY = 1.0
"""Seconds between two scrapes, unless others are given."""

_LABELS = 'job="agents",instance="127.0.0.1:9464"'
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")


@contextlib.contextmanager
def knowing(
    pages: Sequence[str],
    directory: Path,
    *,
    end: float,
    every: float = EVERY,
    gone_after: float = 1.5,
) -> Iterator[Prometheus]:
    """Start a Prometheus that has scraped these pages one after the other, and stop it.

    A series that is in one page and not in the next is gone with the next, as when it scrapes.

    Args:
        pages: what ``/metrics`` said, in Prometheus' text format.
        directory: where it keeps its data.
        end: when the last page was scraped, in seconds of the epoch.
        every: seconds between two scrapes.
        gone_after: so many scrapes after its last sample, a series is gone. A little less than 1:
            it is gone with the first scrape without it, as when Prometheus scrapes.
    """
    files, data = directory / "history.txt", directory / "data"
    with files.open("w") as file:
        for number, page in enumerate(pages, 1 - len(pages)):
            at = f"{end + number * every:.3f}"
            file.write(f"up{{{_LABELS}}} 1 {at}\n")
            file.writelines(f"{line} {at}\n" for line in _labelled(page))
        file.write("# EOF\n")
    subprocess.run(
        [find_binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", files, data],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    # No text can say that a series is gone: it is, when nothing was heard of it for so long.
    flags = [f"--query.lookback-delta={1000 * gone_after * every:.0f}ms"]
    with scraping(None, directory, flags=flags) as prometheus:
        yield prometheus


def _labelled(page: str) -> Iterator[str]:
    """The samples of a page with the labels that a scrape gives them."""
    for line in page.split("\n"):
        if line and not line.startswith("#"):
            sample = _SAMPLE.fullmatch(line)
            assert sample, line
            name, labels, value = sample.groups()
            yield f"{name}{{{_LABELS}{',' if labels else ''}{labels or ''}}} {value}"
