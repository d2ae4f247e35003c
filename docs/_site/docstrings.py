"""Docstrings as Markdown: names such as :class:`tidegauge.Run` are links, doctests are code."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import griffe

_ROLE: Final = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`(~?)([^`]+)`")
_DOCTEST: Final = re.compile(r"(?P<indent>^ *)>>> .*\n?(?:(?P=indent) *\S.*\n?)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites all docstrings before they are read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value, partial(_full_name, obj))


def markdown(text: str, full_name: Callable[[str], str] = str) -> str:
    """A docstring as Markdown.

    Args:
        text: the docstring.
        full_name: gives the full name of what a name means there.

    >>> markdown("raises :class:`~tidegauge.RunStopped`")
    'raises <autoref identifier="tidegauge.RunStopped" optional>`RunStopped`</autoref>'
    >>> markdown(">>> 1 + 1")
    '\\n```pycon\\n>>> 1 + 1\\n```\\n'
    """
    return _DOCTEST.sub(_code, _ROLE.sub(partial(_link, full_name), text))


def _full_name(obj: griffe.Object, name: str) -> str:
    try:
        return obj.resolve(name)
    except griffe.NameResolutionError:
        return name


def _link(full_name: Callable[[str], str], role: re.Match[str]) -> str:
    short, name = role.groups()
    shown = name.rpartition(".")[2] if short else name
    identifier = name if "." in name else full_name(name)
    return f'<autoref identifier="{identifier}" optional>`{shown}`</autoref>'


def _code(doctest: re.Match[str]) -> str:
    indent = doctest["indent"]
    return f"\n{indent}```pycon\n{doctest[0].rstrip()}\n{indent}```\n"
