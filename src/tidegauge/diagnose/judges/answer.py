"""The answer of a model that was asked for a JSON object: found in what it wrote, and checked."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tidegauge.diagnose.judges.text import writable

__all__ = ["Answer", "read_answer"]

_SHOWN: Final = 120
_MAX_CHARACTERS: Final = 20_000  # of the end of an answer, where the object is


class Answer(BaseModel):
    """What a judge's model is to answer."""

    model_config = ConfigDict(strict=True)

    applicable: bool = True
    score: Annotated[int, Field(ge=1, le=4)] | None = None
    reason: Annotated[str, Field(min_length=1)]
    steps: list[int] = []

    @field_validator("reason", mode="before")
    @classmethod
    def _writable(cls, value: Any) -> Any:
        return writable(value) if isinstance(value, str) else value


def read_answer(text: str) -> Answer:
    """The answer in a text: the last JSON object in it, whatever fence or thought is around it.

    Raises:
        ValueError: there is none, or it is of another form; the message says what is wrong.

    >>> read_answer('Sure! ```json {"score": 3, "reason": "It checked.", "steps": [2]}```').score
    3
    >>> read_answer('{"score": "good", "reason": "It checked."}')
    Traceback (most recent call last):
        ...
    ValueError: score: Input should be a valid integer
    """
    found = _last_object(text[-_MAX_CHARACTERS:])
    if found is None:
        raise ValueError(f"there is no JSON object in {_beginning(text)}")
    try:
        return Answer.model_validate(found)
    except ValidationError as error:
        faults = [
            ".".join(map(str, fault["loc"])) + f": {fault['msg']}" for fault in error.errors()
        ]
        raise ValueError("; ".join(faults)) from None


def _last_object(text: str) -> dict[str, Any] | None:
    decoder, found, start = json.JSONDecoder(), None, text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            found = value
        start = text.find("{", end)
    return found


def _beginning(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
