"""Documents that mention one another by id: archives, knowledge bases, tickets, records."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Identity, Reach
from tidegauge.instrumentation.extractors.contents import (
    applies,
    arguments_of,
    body_of,
    leaves,
    search_place,
    text_of,
    tool_names,
)
from tidegauge.runs.extraction import MAX_ITEMS, Observation

DOCUMENT_ID: Final = r"(?<![\w:])[a-z]{1,20}[0-9]{1,9}:[a-z0-9]{1,80}(?![\w:])"
"""Ids such as ``d17:lim``: those of the LORE archive. It hardly occurs in ordinary text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Reads documents: the place is the one that was read, its exits are the ids it mentions.

    A call whose arguments name one document, by an argument that is an id as a whole, reads it. A
    call that names none and brings ids back is a place itself, from which they lead on: a search,
    by what it looks for, or a list. A call that names several is not a move; its ids are entities.

    Entities (for the recall lag) are the ids in a result and those in a call's arguments.

    Args:
        pattern: regular expression of an id; its first group, when it has one, is the id. Give
            one that fits your ids and little else, and that takes time in proportion to the text:
            it runs on the agent's own thread.
        tools: names of the tools to read; ``None``, all whose arguments or results have an id.
        reach: how the agent moves between documents.

    Raises:
        ConfigurationError: the pattern is none.

    >>> documents = Documents(pattern=r"\\b(?:station|gauge|keeper)/[a-z0-9-]+")
    >>> call = Call("read_document", {"document_id": "station/merrow"})
    >>> seen = documents.observe(call, CallResult("gauge: -> gauge/g-17\\nkeeper: -> keeper/ada"))
    >>> seen.place, seen.exits
    ('station/merrow', ('gauge/g-17', 'keeper/ada'))
    """

    pattern: str | re.Pattern[str] = DOCUMENT_ID
    tools: Collection[str] | None = None
    reach: Reach | None = "anywhere"
    _id: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", tool_names(self.tools))
        try:
            object.__setattr__(self, "_id", re.compile(self.pattern))
        except re.error as error:
            raise ConfigurationError(
                f"pattern {self.pattern!r} is not a valid regular expression: {error}"
            ) from error

    def uses(self, call: Call) -> Iterable[Identity]:
        """The ids in the call's arguments."""
        if not applies(self.tools, call):
            return ()
        return _first(self._ids(text_of(arguments_of(call))))

    def observe(self, call: Call, result: CallResult) -> Observation | None:
        """Which document was read, and the ids that it mentions."""
        if result.error or not applies(self.tools, call):
            return None
        arguments = arguments_of(call)
        found = _first(self._ids(text_of(body_of(result.outcome), keys=True)))
        named = _first(self._whole_ids(arguments))
        place: Identity | None
        if len(named) == 1:
            place = named[0]
        elif named or not found:
            place = None
        else:
            place = search_place(call, arguments)
        if place is None and not found:
            return None
        exits = tuple([each for each in found if each != place])
        return Observation(place, None if place is None else exits, mentions=found)

    def _ids(self, text: str) -> Iterator[str]:
        group = 1 if self._id.groups else 0
        return (each for match in self._id.finditer(text) if (each := match.group(group)))

    def _whole_ids(self, arguments: object) -> Iterator[str]:
        """The arguments that are an id and nothing else."""
        group = 1 if self._id.groups else 0
        for leaf in leaves(arguments):
            match = self._id.fullmatch(leaf.text.strip())
            if match is not None and (each := match.group(group)):
                yield each


def _first(ids: Iterable[str]) -> tuple[str, ...]:
    """The first of them, each once."""
    return tuple(dict.fromkeys(islice(ids, MAX_ITEMS)))
