"""These tests download frameworks: only ``make test-frameworks`` collects them."""

from __future__ import annotations

import os

collect_ignore_glob = ["*_program.py", "traced.py"]  # they run in other environments
if not os.environ.get("TIDEGAUGE_FRAMEWORKS"):
    collect_ignore_glob.append("test_*.py")
