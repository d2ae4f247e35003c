"""What an object holds, read without running any code of its class.

``getattr``, ``vars`` and ``isinstance`` ask the object: properties, ``__getattr__`` and lazy
proxies answer. Here the descriptors that the interpreter itself made for a class are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, NamedTuple, cast

_OF_A_TYPE: Final[Mapping[str, Any]] = type.__dict__
_WORD: Final = object.__basicsize__ // 2
"""Bytes of one slot: an empty object is two of them."""

bases = cast("Callable[[type], tuple[type, ...]]", _OF_A_TYPE["__mro__"].__get__)
"""The classes that a class is made of, itself first."""

namespace = cast("Callable[[type], Mapping[str, Any]]", _OF_A_TYPE["__dict__"].__get__)
"""What a class itself defines."""

_module: Final = _OF_A_TYPE["__module__"].__get__
_name: Final = _OF_A_TYPE["__name__"].__get__
_qualname: Final = _OF_A_TYPE["__qualname__"].__get__
basic_size = cast("Callable[[type], int]", _OF_A_TYPE["__basicsize__"].__get__)
"""Bytes of an instance of a class, without its items."""

_itemsize: Final = _OF_A_TYPE["__itemsize__"].__get__
_dictoffset: Final = _OF_A_TYPE["__dictoffset__"].__get__
_weakrefoffset: Final = _OF_A_TYPE["__weakrefoffset__"].__get__


def exact_text(value: Any) -> str:
    """A text as a plain ``str``; anything else is empty."""
    return str.__str__(value) if issubclass(type(value), str) else ""


def module_name(kind: type) -> str:
    """The name of the module that a class says it is of."""
    try:
        return exact_text(_module(kind))
    except AttributeError:
        return ""


def class_name(kind: type) -> str:
    """A class's own name, alone."""
    return exact_text(_name(kind))


def type_name(kind: type) -> str:
    """A class's module and qualified name.

    >>> type_name(Layout)
    'tidegauge.values.attributes.Layout'
    """
    return f"{module_name(kind)}.{exact_text(_qualname(kind))}"


class Layout(NamedTuple):
    """Where the instances of a class hold what they hold.

    Attributes:
        namespace: descriptor of their ``__dict__``; ``None``, they have none.
        slots: descriptors of their slots by name.
        hidden: whether they hold more than that, in a form that only their class can read.
    """

    namespace: Any
    slots: Mapping[str, Any]
    hidden: bool

    @classmethod
    def of(cls, kind: type) -> Layout:
        """The layout of a class.

        Nothing is hidden where the size of an instance is that of its slots.

        >>> import threading
        >>> Layout.of(Layout).hidden, Layout.of(type(threading.Lock())).hidden
        (True, True)
        >>> Layout.of(threading.Event).hidden
        False
        """
        found: Any = None
        slots: dict[str, Any] = {}
        count = 0
        for base in bases(kind):
            for name, member in namespace(base).items():
                of = type(member)
                if name == "__dict__":
                    if found is None and of in (GetSetDescriptorType, MemberDescriptorType):
                        found = member
                elif of is MemberDescriptorType:
                    count += 1
                    slots.setdefault(name, member)
        # The dictionary and the weak references take a word each, unless they lie before it.
        words = 2 + count + (_dictoffset(kind) > 0) + (_weakrefoffset(kind) > 0)
        hidden = _itemsize(kind) != 0 or basic_size(kind) != words * _WORD
        return cls(found, slots, hidden)


def attributes(value: object, layout: Layout) -> dict[str, Any]:
    """The instance attributes of an object, by name."""
    found: dict[str, Any] = {}
    for name, member in layout.slots.items():
        try:
            found[name] = member.__get__(value)
        except AttributeError:  # a slot that was not set
            continue
    if layout.namespace is not None:
        found.update(members(layout.namespace.__get__(value)))
    return found


def members(mapping: Any) -> dict[str, Any]:
    """What a ``dict`` holds under its texts, each as a plain ``str``: no user's hash is asked."""
    return {
        key if type(key) is str else exact_text(key): item
        for key, item in list(dict.items(mapping))
    }
