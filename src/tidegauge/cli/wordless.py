"""A recorded line without what it says: contents become digests, what is not known is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegauge.exporters.jsonl.contents import Contents

__all__ = ["wordless_line"]

_NUMBERS_AND_NAMES: Final = frozenset(
    {
        *("type", "run", "time", "agent", "task_group", "model", "t_max", "memory"),
        *("operations", "height", "reach", "action", "error", "progress", "tokens", "entropy"),
        *("seconds", "blocked", "poll", "poll_seconds", "mutates", "late_outcome", "similarity"),
        "success",
    }
)


def wordless_line(line: bytes, contents: Contents) -> bytes:
    """The line with digests for contents: a replay gives the same numbers.

    Keys that step events don't have are left out: nobody knows what they say.

    >>> shown = Contents(lambda digest: digest.hex()[:6], plain=False)
    >>> wordless_line(b'{"type":"step","run":"r1","action":"say","args":"a secret"}', shown)
    b'{"type":"step","run":"r1","action":"say","args":"sha:56daf0"}'
    """
    return orjson.dumps(_wordless(orjson.loads(line), contents))


def _wordless(told: Mapping[str, Any], contents: Contents) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in told.items():
        if value is None or key in _NUMBERS_AND_NAMES:
            if key in _NUMBERS_AND_NAMES or key in ("outcome", "args"):
                kept[key] = value
        elif key == "args":
            kept[key] = contents.arguments(value)
        elif key in ("state", "task") or (key == "outcome" and told.get("type") != "end"):
            kept[key] = contents.content(value)
        elif key == "calls":
            kept[key] = [_wordless(call, contents) for call in value]
        elif key == "place":
            kept[key] = contents.place(_identity(value))
        elif key == "exits":
            kept[key] = [contents.place(_identity(place)) for place in value]
        elif key == "goal":
            kept[key] = contents.identity(_identity(value))
        elif key in ("mentions", "uses", "achieved"):
            kept[key] = [contents.identity(_identity(entity)) for entity in value]
        elif key == "tasks":
            kept[key] = [
                {
                    "id": contents.identity(_identity(task["id"])),
                    "requires": [
                        [contents.identity(_identity(needed)) for needed in together]
                        for together in task.get("requires") or ()
                    ],
                }
                for task in value
            ]
    return kept


def _identity(value: Any) -> Any:
    return tuple(_identity(part) for part in value) if isinstance(value, list) else value
