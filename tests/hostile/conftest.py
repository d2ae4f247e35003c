"""Hostile cases run in processes of their own; what those import is no test."""

from __future__ import annotations

collect_ignore = ["preloaded.py"]
