"""What an exception says, without running any code of its class."""

from __future__ import annotations

from types import WrapperDescriptorType
from typing import Any, Final

from tidegauge.values.attributes import class_name

_MAX_TEXT: Final = 65_536
_MAX_BITS: Final = 4_096
"""Of a number that is written in digits: Python refuses longer ones."""


def failure_text(error: BaseException) -> str:
    """What an exception says, with its class.

    The text of an exception class written in Python is taken from its arguments, since its
    ``__str__`` could do anything.

    >>> failure_text(ValueError("no such page"))
    'ValueError: no such page'
    """
    kind = type(error)
    args: tuple[Any, ...] = BaseException.__dict__["args"].__get__(error)
    plain = all(map(_is_plain, args))
    if plain and type(kind.__str__) is WrapperDescriptorType:
        text = str(error)
    elif plain:
        text = ", ".join([str(one) for one in args])
    else:
        text = ", ".join([str(one) if _is_plain(one) else class_name(type(one)) for one in args])
    return f"{class_name(kind)}: {text[:_MAX_TEXT]}"


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return value.bit_length() <= _MAX_BITS  # type: ignore[no-any-return]
    return kind is str or kind is float or kind is bool or value is None
