"""The page: one file that asks nobody for anything, and runs no script but its own.

A content security policy names the page's own scripts by their hashes. What the recordings say is
in the page as compressed data, and becomes text by ``textContent`` alone: it is never markup.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, Final

import orjson

__all__ = ["page"]

_SCRIPTS: Final = (
    "theme.js",
    "text.js",
    "store.js",
    "selection.js",
    "charts.js",
    "tables.js",
    "overview.js",
    "runs.js",
    "patterns.js",
    "scores.js",
    "run.js",
    "report.js",
)
"""Plain scripts, in the order in which they build on each other."""

_MAPS_STYLE: Final = re.compile(
    r'getElementById\("([0-9a-f]{64})"\)\)\{var \w+=document\.createElement\("style"\)'
)
"""Where the charts' library adds a style sheet for geographic maps, unless there is an element of
this id: none is drawn here, and the policy would forbid it."""

_POLICY: Final = (
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "img-src data: blob:",
)


def page(data: Mapping[str, Any], lines: Iterable[bytes]) -> str:
    """The page as text.

    Args:
        data: what it shows, as :func:`~tidegauge.diagnose.report.contents.contents` gives it.
        lines: the lines of all runs, one run after the other, none of them with a line's end.
    """
    library = _plotly()
    scripts = [library, *(_own(name) for name in _SCRIPTS)]
    style = _own("report.css")
    policy = "; ".join(
        [
            *_POLICY,
            # The charts' library opens an empty style sheet, and fills it by script.
            f"style-src {_hash(style)} {_hash('')}",
            f"script-src {' '.join(_hash(script) for script in scripts)}",
        ]
    )
    parts = {
        "policy": policy,
        "style": style,
        "styled": "".join(f'<meta id="{name}" />' for name in _MAPS_STYLE.findall(library)),
        "data": _packed(orjson.dumps(data, default=str)),
        "lines": _packed(b"\n".join(lines)),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    text = _own("report.html")
    for name, part in parts.items():
        before, mark, after = text.partition(f"<!-- {name} -->")
        assert mark, name  # noqa: S101
        text = before + part + after
    return text


def _packed(data: bytes) -> str:
    """Compressed, and of letters that mean nothing in markup."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _own(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _plotly() -> str:
    """The library that draws the charts, out of the package that brings it."""
    found = files("plotly").joinpath("package_data", "plotly.min.js")
    return found.read_text(encoding="utf-8").replace("\r\n", "\n")
