"""Writes any value as canonical text, in one pass, without recursion and within a budget."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import xxhash

from tidegauge.safety.guard import arrived_from_outside
from tidegauge.values.attributes import Layout, attributes, type_name

MAX_COST: Final = 120_000
"""What a value may cost: 1 for an item and for 32 characters, 10 for a container, 30 for an object.

What is referred to several times costs as much each time, though it is read once: whether a value
is comparable follows from what it equals, not from how it is shared.
"""

CONTAINER: Final = 10
"""Cost of a container without its items."""

OBJECT: Final = 30
"""Cost of an object without its attributes."""

SHORT: Final = 1 << 18
"""Characters of the longest text that is written unchanged; longer ones become digests."""

MAX_DEPTH: Final = 1_000
"""Levels of containers and objects inside one another."""

MAX_HELD: Final = 512 * 1024 * 1024
"""Characters or bytes of long texts and arrays that are read of one value."""

_SLOT: Final = 25
"""What it costs to look at a slot that is not set."""

_WHOLE: Final = 1 << 20
_PIECE: Final = 1 << 16
_PACKED: Final = 4 << 20
_RUN: Final = 256
_DECIMAL_BITS: Final = 512
_MAX_INT: Final = 16 << 20
_BYTES: Final = (bytes, bytearray, memoryview)

_dumps: Final = orjson.dumps
_SORTED: Final = orjson.OPT_SORT_KEYS

Children: TypeAlias = Iterable[Any]
Tokens: TypeAlias = list[bytes | str]
Handler: TypeAlias = "Callable[[Encoder, Any], Children]"


class Incomparable(Exception):  # noqa: N818 -- a finding about the user's value, no fault
    """The value has no canonical text."""


class _Frame(NamedTuple):
    """A container that is being written."""

    children: Iterator[Any]
    value: Any
    start: int
    room: int


class _Written(NamedTuple):
    """A container that was written, and where; it is held so that its id stays its own."""

    value: Any
    start: int
    end: int
    cost: int
    levels: int


class ValueCache:
    """What was read of the values of one report: each that takes long is read once.

    It holds the values: its creator must drop it after the report, outside of locks.
    """

    __slots__ = ("_digests", "_encoded")

    def __init__(self) -> None:
        self._digests: dict[int, tuple[object, bytes]] = {}
        self._encoded: dict[int, tuple[object, Tokens | None]] = {}

    def knows(self, value: object) -> bool:
        """Whether the encoder has read it."""
        return id(value) in self._encoded

    def tokens(self, value: object) -> Tokens | None:
        """What the encoder has written of a value; ``None``: it has not read it.

        Raises:
            Incomparable: it has read it, and the value has no text.
        """
        known = self._encoded.get(id(value))
        if known is None:
            return None
        tokens = known[1]
        if tokens is None:
            raise Incomparable("as it was before")
        return tokens

    def keep(self, value: object, tokens: Tokens | None) -> None:
        """Keep what the encoder has written of a value; ``None``: the value has no text."""
        self._encoded[id(value)] = (value, tokens)

    def digest(self, value: object, pieces: Iterable[bytes]) -> bytes:
        """The digest of pieces, which are those of a value."""
        known = self._digests.get(id(value))
        if known is None:
            known = self._digests[id(value)] = (value, digest_of(pieces))
        return known[1]

    def long(self, value: object) -> bytes:
        """The digest of a text in UTF-8, or of bytes.

        Raises:
            Incomparable: it is too long.
        """
        known = self._digests.get(id(value))
        return known[1] if known is not None else self.digest(value, raw_pieces(value))


class Encoder:
    """Writes one value.

    A handler writes its own tokens with :meth:`put` and yields its children, which are written
    before it is resumed. What was written of a container is repeated where it is referred to
    again.

    Args:
        handler_of: finds what writes the values of a type.
        lenient: write the type's name of what is not comparable, for display.
        wanted: bytes of the text that are wanted; it may be left off after them.
        cache: what was read in the same report.
        room: what the value may cost.
    """

    def __init__(
        self,
        handler_of: Callable[[type], Handler],
        *,
        lenient: bool = False,
        wanted: int = sys.maxsize,
        cache: ValueCache | None = None,
        room: int = MAX_COST,
    ) -> None:
        self.out: Tokens = []
        self.taken_back = 0  # how many handlers will cut what they have written
        self._wanted = wanted
        self._size = 0  # of what was packed: the tokens have a byte at least
        self._cache = cache or ValueCache()
        self._long_texts: dict[int, object] = {}
        self._levels = [0]  # of each open container, how many are inside it
        self.room = room
        self._held = MAX_HELD
        self._packed = _PACKED
        self._lenient = lenient
        self._open: set[int] = set()
        self._written: dict[int, _Written] = {}
        self._handler_of = handler_of
        self._handlers: dict[int, tuple[type, Handler]] = {}
        self._layouts: dict[int, tuple[type, Layout]] = {}

    def pieces(self, value: object) -> Iterator[bytes]:
        """The text of the value.

        Raises:
            Incomparable: it has none.
        """
        try:
            self._write(value)
        except Incomparable:
            raise
        except Exception as error:  # changed meanwhile, or a library's fault
            if type(error) is not RecursionError and arrived_from_outside(error):
                raise
            raise Incomparable(type_name(type(error))) from None
        return rendered(self.out)

    def put(self, *tokens: bytes | str) -> None:
        """Write tokens: bytes as they are, a plain ``str`` as a JSON string."""
        self.out += tokens

    def tag(self, name: str) -> None:
        """Say of what kind the next value is."""
        self.out.append(b"!")
        self.out.append(name)

    def spend(self, cost: int) -> None:
        """Take from the budget.

        Raises:
            Incomparable: there is not enough left.
        """
        self.room -= cost
        if self.room < 0:
            raise Incomparable("too large")

    def hold(self, size: int) -> None:
        """Take from the budget for what is read in pieces, in bytes."""
        self._held -= size
        if self._held < 0:
            raise Incomparable("too large")

    def layout(self, kind: type) -> Layout:
        """The layout of a class."""
        known = self._layouts.get(id(kind))
        if known is None:
            known = self._layouts[id(kind)] = (kind, Layout.of(kind))
        return known[1]

    def attributes(self, value: object) -> dict[str, Any]:
        """What an object holds: slots that are not set cost what it takes to look at them."""
        layout = self.layout(type(value))
        slots = _SLOT * len(layout.slots)
        self.spend(slots)
        held = attributes(value, layout)
        self.room += min(slots, _SLOT * len(held))
        return held

    def cut(self, start: int) -> Tokens:
        """Take back what was written since ``start``."""
        taken = self.out[start:]
        del self.out[start:]
        written = self._written
        while written:
            last = next(reversed(written))
            if written[last].end <= start:
                break
            del written[last]
        return taken

    def text(self, value: Any) -> None:
        """Write a text, of ``str`` or a subclass."""
        length = str.__len__(value)
        if length > SHORT:
            self.spend(1)
            self._long("text", length, value)
            return
        if length > 31:
            self.spend(length >> 5)
        self.out.append(value if type(value) is str else str.__str__(value))

    def data(self, value: Any) -> None:
        """Write bytes: in hexadecimal digits, as a JSON string."""
        length = bytes_length(value)
        if length > _PIECE:
            self.spend(1)
            self._long("bytes", length, value)
            return
        self.spend(length >> 4)
        self.out.append(b'"%s"' % b"".join(raw_pieces(value)).hex().encode())

    def digested(self, tag: str, shape: Any, pieces: Iterable[bytes], of: object = None) -> None:
        """Write a digest instead of something long: ``of`` is the user's value."""
        digest = digest_of(pieces) if of is None else self._cache.digest(of, pieces)
        self.tag(tag)
        self.out.append(_dumps([shape, digest.hex()]))

    def _long(self, tag: str, length: int, value: object) -> None:
        if id(value) not in self._long_texts:  # what is referred to again is read once
            self._long_texts[id(value)] = value
            self.hold(length)
        self.tag(tag)
        self.out.append(_dumps([length, self._cache.long(value).hex()]))

    def _write(self, value: object) -> None:
        stack = [_Frame(iter((value,)), None, 0, 0)]
        wanted, levels = self._wanted, self._levels
        while stack:
            frame = stack[-1]
            inner = None
            try:
                for child in frame.children:
                    if len(self.out) + self._size >= wanted and not self.taken_back:
                        return
                    inner = self._begin(child)
                    if inner is not None:
                        break
            except Incomparable:
                if not self._lenient:
                    raise
            if inner is not None:
                stack.append(inner)
                levels.append(0)
                continue
            stack.pop()
            self._open.discard(id(frame.value))
            if stack:
                cost, inside = frame.room - self.room, levels.pop()
                levels[-1] = max(levels[-1], inside + 1)
                self._written[id(frame.value)] = _Written(
                    frame.value, frame.start, len(self.out), cost, inside
                )

    def _begin(self, value: Any) -> _Frame | None:
        """Write a leaf, or what was written before; begin to write anything else."""
        kind = type(value)
        if kind is str:
            self.text(value)
            return None
        if kind is int or value is None or kind is bool or kind is float:
            self.number(value)
            return None
        known = self._written.get(id(value))
        try:
            if known is not None:
                self.spend(known.cost)
                if len(self._open) + known.levels >= MAX_DEPTH:
                    raise Incomparable("too deep")
                self._levels[-1] = max(self._levels[-1], known.levels + 1)
                self.out += self.out[known.start : known.end]
                return None
            if id(value) in self._open:
                raise Incomparable("a cycle")
            if len(self._open) >= MAX_DEPTH:
                raise Incomparable("too deep")
            start, room = len(self.out), self.room
            handler = self._handler(kind)
            children = iter(handler(self, value))
        except Incomparable:
            if not self._lenient:
                raise
            self.tag(type_name(kind))
            return None
        self._open.add(id(value))
        return _Frame(children, value, start, room)

    def _handler(self, kind: type) -> Handler:
        known = self._handlers.get(id(kind))
        if known is None:
            known = self._handlers[id(kind)] = (kind, self._handler_of(kind))
        return known[1]

    def packed(self, leaves: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> bytes | None:
        """The text of a short container that holds nothing but plain leaves, at once."""
        size = 0
        keys: Any = ()
        items: Any = leaves
        if type(leaves) is dict:
            keys, items = leaves, leaves.values()
        for item in items:
            kind = type(item)
            if kind is str:
                size += len(item)
            elif kind is not int and item is not None and kind is not bool and kind is not float:
                return None
        for key in keys:
            if type(key) is not str:
                return None
            size += len(key)
        if size > _PIECE or self._packed < 0:
            return None
        try:
            data = _dumps(leaves, None, _SORTED)
        except TypeError:
            return None
        self.spend(size >> 5)
        self._packed -= len(data)
        if not self.taken_back:
            self._size += max(len(data) - 3, 0)  # its brackets may be left off; a token counts one
        return data

    def number(self, value: Any) -> None:
        """Write a plain number, a truth value or ``None``."""
        if type(value) is not int:
            # A copy: what orjson gives keeps 1 KiB, whatever its length.
            self.out.append(bytes(bytearray(_dumps(value))))
            return
        bits = value.bit_length()
        if bits <= _DECIMAL_BITS:
            self.spend(bits >> 6)
            self.out.append(b"%d" % value)
            return
        size = bits // 8 + 1
        if size > _MAX_INT:
            raise Incomparable("too large")
        self.spend(OBJECT)
        self.hold(size)
        self.digested("int", bits, (value.to_bytes(size, "little", signed=True),))


def digest_of(pieces: Iterable[bytes]) -> bytes:
    """The digest of a text that comes in pieces, 16 bytes."""
    hasher = xxhash.xxh3_128()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()


def rendered(pieces: Iterable[bytes | str]) -> Iterator[bytes]:
    """The text of tokens, in pieces of bounded length."""
    run: list[bytes] = []
    for piece in pieces:
        if type(piece) is bytes:
            run.append(piece)
        elif len(piece) <= _PIECE:
            run.append(_quoted(piece))  # type: ignore[arg-type]
        else:
            run.append(b'"')
            for start in range(0, len(piece), _PIECE):
                run.append(_quoted(piece[start : start + _PIECE])[1:-1])  # type: ignore[arg-type]
                yield b"".join(run)
                run.clear()
            run.append(b'"')
        if len(run) >= _RUN or len(run[-1]) > _RUN:
            yield b"".join(run)
            run.clear()
    yield b"".join(run)


def _quoted(text: str) -> bytes:
    """A JSON string; half a character is spelled out, as JSON does."""
    try:
        return _dumps(text)
    except TypeError:
        return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace")


def is_bytes(kind: type) -> bool:
    """Whether values of that type are bytes."""
    return issubclass(kind, _BYTES)


def bytes_length(value: Any) -> int:
    """How many bytes there are in it."""
    if type(value) is memoryview:
        return value.nbytes
    return bytes.__len__(value) if issubclass(type(value), bytes) else bytearray.__len__(value)


def raw_pieces(value: Any) -> Iterator[bytes]:
    """A text in UTF-8, or bytes, piece by piece.

    Raises:
        Incomparable: before the first piece; it is too long, or a view of another form.
    """
    kind = type(value)
    if issubclass(kind, str):
        if str.__len__(value) > MAX_HELD:
            raise Incomparable("too large")
        return _utf8(value)
    if kind is memoryview:
        return _viewed(value)
    if bytes_length(value) > MAX_HELD:
        raise Incomparable("too large")
    part = bytes.__getitem__ if issubclass(kind, bytes) else bytearray.__getitem__
    return _sliced(part, value, bytes_length(value))


def _utf8(value: str) -> Iterator[bytes]:
    part = str.__getitem__
    for start in range(0, str.__len__(value), _PIECE):
        piece = part(value, slice(start, start + _PIECE))
        try:
            yield piece.encode()
        except UnicodeEncodeError:
            yield piece.encode("utf-8", "surrogatepass")


def _sliced(part: Callable[..., Any], value: Any, length: int) -> Iterator[bytes]:
    for start in range(0, length, _PIECE):
        yield bytes(part(value, slice(start, start + _PIECE)))


def _viewed(value: memoryview) -> Iterator[bytes]:
    try:
        if value.nbytes > MAX_HELD or (value.ndim != 1 and value.nbytes > _WHOLE):
            raise Incomparable("too large")
        if value.ndim != 1:
            return iter((value.tobytes(),))
        items = max(1, _PIECE // max(1, value.itemsize))
        return iter([]) if not len(value) else _view_pieces(value, items)
    except ValueError:
        raise Incomparable("released") from None


def _view_pieces(value: memoryview, items: int) -> Iterator[bytes]:
    for start in range(0, len(value), items):
        yield value[start : start + items].tobytes()
