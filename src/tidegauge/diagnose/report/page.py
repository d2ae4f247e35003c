"""Writes the report as one HTML file without requests and with its own scripts only.

A content security policy allows the page's scripts by their hashes. The chart library and the
recorded contents are compressed data in the page. Scripts show contents by ``textContent`` only, so
they are never markup.
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

_SCRIPTS: Final = (
    "text.js",
    "store.js",
    "selection.js",
    "address.js",
    "find.js",
    "charts.js",
    "tables.js",
    "overview.js",
    "runs.js",
    "patterns.js",
    "scores.js",
    "run.js",
    "compare.js",
    "report.js",
)
"""Classic scripts, in the order of their dependencies."""

_MAPS_STYLE: Final = re.compile(
    r'getElementById\("([0-9a-f]{64})"\)\)\{var \w+=document\.createElement\("style"\)'
)
"""The chart library adds a style sheet for geographic maps, unless an element with this id exists.
The page draws no such maps, and the policy would forbid the style sheet."""

_POLICY: Final = (
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "img-src data: blob:",
)


def page(data: Mapping[str, Any], lines: Iterable[bytes]) -> str:
    """The page as text.

    Args:
        data: the result of :func:`~tidegauge.diagnose.report.page_data.contents`.
        lines: the lines of all runs, one run after the other, without newlines.
    """
    library = _plotly()
    scripts = [_shared("theme.js"), *(_own(name) for name in _SCRIPTS)]
    style = _shared("theme.css") + _own("report.css")
    policy = "; ".join(
        [
            *_POLICY,
            # The chart library adds an empty style sheet and fills it by script.
            f"style-src {_hash(style)} {_hash('')}",
            f"script-src {' '.join(_hash(script) for script in (library, *scripts))}",
        ]
    )
    parts = {
        "policy": policy,
        "style": style,
        "styled": "".join(f'<meta id="{name}" />' for name in _MAPS_STYLE.findall(library)),
        "library": _packed(library.encode()),
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
    """Compressed and base64-encoded, so that it contains no markup."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _own(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _shared(name: str) -> str:
    """A file that the live page has, too."""
    return files("tidegauge._web").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    """The chart library, from the package plotly."""
    found = files("plotly").joinpath("package_data", "plotly.min.js")
    return found.read_text(encoding="utf-8").replace("\r\n", "\n")
