"""These tests download coding agents: only ``make test-coding-agents`` collects them."""

from __future__ import annotations

import os

collect_ignore_glob = []
if not os.environ.get("TIDEGAUGE_CODING_AGENTS"):
    collect_ignore_glob.append("test_*.py")
