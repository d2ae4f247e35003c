"""The page's files: ours, and the chart library's out of the package that brings it."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

__all__ = ["CHART_PACKAGE", "charts_installed", "file"]

CHART_PACKAGE: Final = "uplot"
"""It is installed with ``tidegauge[page]``; only its files are used, nothing of it is imported."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_OURS: Final = (
    "index.html",
    "page.css",
    "page.js",
    "charts.js",
    "chosen.js",
    "fleet.js",
    "happenings.js",
    "runs.js",
    "text.js",
    "theme.js",
    "icon.svg",
)
_CHART_LIBRARY: Final = {"uplot.js": "uPlot.iife.js", "uplot.css": "uPlot.min.css"}


def file(name: str) -> tuple[str, bytes] | None:
    """Content type and bytes of one of the page's files; ``None``, there is no such file.

    The files of a chart library that is not installed are empty: the page sees that, and says so.
    """
    if name not in _OURS and name not in _CHART_LIBRARY:
        return None
    return _TYPES[name[name.rindex(".") :]], _read(name)


def charts_installed() -> bool:
    """Whether the chart library is there."""
    return bool(_read("uplot.js"))


@cache
def _read(name: str) -> bytes:
    if name in _OURS:
        return files(__package__).joinpath("static", name).read_bytes()
    package = importlib.util.find_spec(CHART_PACKAGE)  # does not import it
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(folder, "static", _CHART_LIBRARY[name])
        if path.is_file():
            return path.read_bytes()
    return b""
