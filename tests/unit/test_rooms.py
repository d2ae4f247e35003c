"""The picture of the imports in CONTRIBUTING.md is drawn from the code; each name stands once."""

from __future__ import annotations

import ast
import graphlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "tidegauge"

SHARED_MODULES: Final = {
    "agent_run": "the run of an agent, as two frameworks show it",
    "settings": "the kinds of settings, and the settings of a pipeline",
    "parsing": "what the callbacks of two frameworks contain",
    "openinference": "the convention, as it is read from spans and as it is added to them",
    "spans": "a run's spans, as others emit them and as tidegauge does",
}
SHARED_CLASSES: Final = {
    "AgentRun": "the run of an agent, as two frameworks show it",
    "ModelAnswer": "what a model answered, as two frameworks show it",
}
"""Names that stand for the same idea in two places."""


def packages() -> list[str]:
    """The public packages, and ``testing``: what all of them share is left out."""
    return sorted(
        path.parent.name
        for path in SOURCE.glob("*/__init__.py")
        if not path.parent.name.startswith("_")
    )


def imported(path: Path) -> Iterator[str]:
    """The packages of tidegauge that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidegauge"):
            parts = (node.module or "").split(".")
            yield from [parts[1]] if len(parts) > 1 else [one.name for one in node.names]
        elif isinstance(node, ast.Import):
            yield from (one.name.split(".")[1] for one in node.names if "tidegauge." in one.name)


def arrows() -> dict[str, set[str]]:
    """Which package imports which, without the arrows that follow from others."""
    names = set(packages())
    direct = {
        name: {
            found
            for path in (SOURCE / name).rglob("*.py")
            for found in imported(path)
            if found in names and found != name
        }
        for name in names
    }
    order = list(graphlib.TopologicalSorter(direct).static_order())  # fails where there is a circle
    below: dict[str, set[str]] = {}
    for name in order:
        below[name] = direct[name].union(*(below[one] for one in direct[name]))
    return {
        name: {one for one in found if not any(one in below[other] for other in found)}
        for name, found in direct.items()
    }


def picture() -> str:
    """The arrows as a Mermaid graph."""
    lines = [f"    {name} --> {one}" for name, found in arrows().items() for one in found]
    return "\n".join(["```mermaid", "graph TD", *sorted(lines), "```"])


def test_the_picture_shows_the_imports() -> None:
    assert picture() in (ROOT / "CONTRIBUTING.md").read_text(), (
        f"replace the picture in CONTRIBUTING.md by:\n{picture()}"
    )


def test_the_map_leads_to_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.split("Where is what, below")[1].split("\n\n")[1]
    named = re.findall(r"`([\w/]+\.py)`", table)
    assert len(named) >= 10
    assert [name for name in named if not (SOURCE / name).is_file()] == []


def twice(names: Iterable[str]) -> set[str]:
    """The names that stand more than once."""
    return {name for name, times in Counter(names).items() if times > 1}


def test_no_two_modules_share_a_name() -> None:
    modules = [path.stem for path in SOURCE.rglob("*.py") if not path.stem.startswith("__")]
    assert twice(modules) == set(SHARED_MODULES)


def test_no_two_public_classes_share_a_name() -> None:
    classes = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert twice(classes) == set(SHARED_CLASSES)
