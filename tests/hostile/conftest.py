"""Hostile cases run in processes of their own; what those import is no test."""

from __future__ import annotations

from pathlib import Path

import pytest

collect_ignore = ["preloaded.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without coverage, whose lock stays held if an exception arrives while it is held."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("no_cover")
