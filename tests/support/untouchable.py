"""Values whose every method raises: code that looks at one must not call its class."""

from __future__ import annotations

from typing import Any

__all__ = ["untouchable"]

_METHODS = """
__str__ __repr__ __eq__ __ne__ __lt__ __len__ __bool__ __iter__ __reversed__ __contains__ __format__
__getitem__ __getattribute__ __int__ __index__ __float__ __call__ get keys values items
"""


def untouchable(base: type, *arguments: Any) -> Any:
    """A value of a subclass of ``base``, no method of which may be called, not even ``__class__``.

    Its hash is that of ``base``, so that it can be kept.
    """

    def touched(*_: Any, **__: Any) -> Any:
        raise AssertionError("code of the user's was called")

    body: dict[str, Any] = dict.fromkeys(_METHODS.split(), touched)
    kind = type(
        "Untouchable", (base,), body | {"__class__": property(touched), "__hash__": base.__hash__}
    )
    return kind(*arguments)
