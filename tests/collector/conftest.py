"""A Collector takes minutes to build: only ``make test-collector`` collects these tests."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TIDEGAUGE_COLLECTOR") else ["test_*.py"]
