"""Scripts of agents that look into places, and of agents that call one tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from support.scripted_model import ScriptedChatModel, answers, chooses, turns

__all__ = ["PLACES", "Bound", "Script", "look", "looks_around", "looks_for_ever", "once"]

Script = Callable[[Sequence[BaseMessage]], AIMessage]
PLACES = ("desk", "box", "shelf")


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


def looks_around(messages: Sequence[BaseMessage]) -> AIMessage:
    done = turns(messages)
    return answers("none") if done == 3 else chooses(("look", {"place": PLACES[done]}))


def looks_for_ever(messages: Sequence[BaseMessage]) -> AIMessage:
    return chooses(("look", {"place": "desk"}))


def once(name: str, arguments: dict[str, Any]) -> Script:
    return lambda messages: answers("done") if turns(messages) else chooses((name, arguments))


class Bound(ScriptedChatModel):
    """A model that may be given its tools beforehand, and does not report them."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self
