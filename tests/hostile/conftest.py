"""Hostile cases run in processes of their own; what those import is no test."""

collect_ignore = ["preloaded.py"]
