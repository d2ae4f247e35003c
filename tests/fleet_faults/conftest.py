"""Faults on a cluster of three brokers take minutes: only ``make test-fleet`` collects them."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TIDEGAUGE_FLEET") else ["test_*.py"]
