"""``python -m benchmarks.guards --expect``: write what tidegauge's preset does to each agent."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.guards import expected


def main(arguments: Sequence[str]) -> int:
    """Write it."""
    parser = argparse.ArgumentParser(prog="benchmarks.guards", description=__doc__)
    parser.add_argument("--expect", action="store_true", help="write expected.json")
    options = parser.parse_args(arguments)
    if options.expect:
        expected.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
