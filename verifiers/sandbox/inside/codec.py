"""Values between the tester and the program, as data: whatever the bytes say, unpacking them runs no foreign code.

A value becomes a tree of None, bool, int, float, str, lists and one-key dicts (the key is a tag). The tester sends
trees by `marshal` (fast, and the program's side has nothing to protect); the program answers in JSON, because
`marshal.loads` may crash on hostile bytes. An instance of a subclass (a `list` with its own `__eq__`, an `IntEnum`)
goes as the plain data it holds, so the tester never compares with a method of the program's.
What is not data (functions, generators, objects of own classes) goes as a handle: the other side may call it or read
its attributes, but two handles are equal only if they name the same object.
"""

from __future__ import annotations

import builtins
import os
import sys

TYPE_CHECKING = False  # as typing's, without importing it: that and `collections` cost a fresh interpreter 8 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Tree: TypeAlias = Any  # None | bool | int | float | str | list[Tree] | dict[str, Tree] with one key

MAX_DEPTH = 150  # nesting of a value; deeper is refused
MAX_MESSAGE_BYTES = 16 << 20
_BIG = 1 << 63  # integers from here on go in base 16: decimal text is quadratic, and capped by Python

_PLAIN = frozenset({type(None), bool, float, str})
_PLAIN_OR_INT = _PLAIN | {int}
# Library types that go by value: how to take one apart into data, and how to build it again.
_TAKE: dict[str, Callable[[Any], Any]] = {
    "collections.deque": lambda v: (list(v), v.maxlen),
    "collections.Counter": lambda v: (dict(dict.items(v)),),
    "collections.OrderedDict": lambda v: (list(dict.items(v)),),
    "decimal.Decimal": lambda v: (str(v),),
    "fractions.Fraction": lambda v: (v.numerator, v.denominator),
    "datetime.date": lambda v: (v.year, v.month, v.day),
    "datetime.datetime": lambda v: (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond),
    "datetime.time": lambda v: (v.hour, v.minute, v.second, v.microsecond),
    "datetime.timedelta": lambda v: (v.days, v.seconds, v.microseconds),
    "builtins.range": lambda v: (v.start, v.stop, v.step),
    "builtins.complex": lambda v: (v.real, v.imag),
}


class CodecError(ValueError):
    """A value that cannot be sent, or a message that is no value."""


def pack(value: Any, export: Callable[[Any], Tree], depth: int = 0) -> Tree:
    """The tree of `value`; `export` gives the tree of what is not data. Raises CodecError when nested too deep."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_BIG < value < _BIG else {"i": hex(value)}
    if depth > MAX_DEPTH:
        raise CodecError(f"a value nested over {MAX_DEPTH} deep")
    depth += 1
    if kind is list:
        return value[:] if _PLAIN.issuperset(map(type, value)) else [pack(v, export, depth) for v in value]
    if kind is tuple:
        return {"t": [pack(v, export, depth) for v in value]}
    if kind is dict:
        return {"d": [[pack(k, export, depth), pack(v, export, depth)] for k, v in value.items()]}
    if kind is set or kind is frozenset:
        return {"s" if kind is set else "z": [pack(v, export, depth) for v in value]}
    if kind is bytes or kind is bytearray:
        return {"b" if kind is bytes else "a": value.hex()}
    if isinstance(value, type):
        name = value.__name__
        return {"T": name} if getattr(builtins, name, None) is value else export(value)
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):  # its scalars and arrays, as the data they hold
        return pack(value.tolist(), export, depth)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _TAKE:
        return {"o": [name, *(pack(part, export, depth) for part in _TAKE[name](value))]}
    for base, plain in _BASES.items():  # a subclass goes as the data it holds
        if isinstance(value, base):
            return pack(plain(value), export, depth)
    return export(value)


_BASES: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    list: lambda v: list(list.__iter__(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    dict: lambda v: dict(dict.items(v)),
    set: lambda v: set(set.__iter__(v)),
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
    bytes: lambda v: bytes.__getitem__(v, slice(None)),
}


def unpack(tree: Tree, handle: Callable[[str, int], Any]) -> Any:
    """The value of `tree`; `handle(tag, number)` gives the object of a handle. Raises CodecError otherwise."""
    kind = type(tree)
    if kind is list:
        return [unpack(v, handle) for v in tree]
    if kind is not dict:
        return tree
    if len(tree) != 1:
        raise CodecError("a message that is no value")
    ((tag, body),) = tree.items()
    if tag == "t":
        return tuple([unpack(v, handle) for v in body])
    if tag == "d":
        return {unpack(k, handle): unpack(v, handle) for k, v in body}
    if tag == "s":
        return {unpack(v, handle) for v in body}
    if tag == "z":
        return frozenset([unpack(v, handle) for v in body])
    if tag == "i":
        return int(body, 16)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "a":
        return bytearray.fromhex(body)
    if tag == "o":
        return _build(body[0], [unpack(v, handle) for v in body[1:]])
    if tag == "T":
        found = getattr(builtins, body)
        if not isinstance(found, type):
            raise CodecError("a message that is no value")
        return found
    if tag in ("h", "y", "r") and type(body) is int:
        return handle(tag, body)
    raise CodecError("a message that is no value")


def containers(values: list[Any]) -> list[Any]:
    """The lists, dicts, sets and bytearrays in `values`, at any depth, in the order they are met.

    Both sides walk the arguments of a call, as each has them, and so number the same containers alike.
    """
    found: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            if isinstance(value, list):
                found.append(value)
            if not _PLAIN_OR_INT.issuperset(map(type, value)):
                found += containers(list(value))
        elif isinstance(value, dict):
            found.append(value)
            if not _PLAIN_OR_INT.issuperset(map(type, value.values())):
                found += containers(list(value.values()))
        elif isinstance(value, (set, bytearray)):
            found.append(value)
    return found


def contents(value: Any, numbers: dict[int, int], export: Callable[[Any], Tree]) -> Tree:
    """The tree of one container. One inside it that has a number (by its id) goes as that number, `{"r": number}`, so
    that a list of the caller's stays that list, wherever the program has put it."""

    def tree(part: Any) -> Tree:
        return {"r": numbers[id(part)]} if id(part) in numbers else pack(part, export)

    if isinstance(value, list):
        return value[:] if _PLAIN.issuperset(map(type, value)) else [tree(part) for part in value]
    if isinstance(value, dict):
        return {"d": [[pack(key, export), tree(part)] for key, part in value.items()]}
    return pack(value, export)


def _build(name: str, parts: list[Any]) -> Any:
    if name not in _TAKE:
        raise CodecError("a message that is no value")
    module, _, attribute = name.rpartition(".")
    return getattr(__import__(module), attribute)(*parts)


def dumps(tree: Tree) -> str:
    """JSON text of `tree`. Written out because importing `json` brings `re` along: 5 ms in every fresh interpreter."""
    kind = type(tree)
    if kind is str:
        return _quote(tree)
    if kind is list:
        return f"[{','.join([dumps(v) for v in tree])}]"
    if kind is dict:
        return "{" + ",".join([f"{_quote(k)}:{dumps(v)}" for k, v in tree.items()]) + "}"
    if tree is None or kind is bool:
        return "null" if tree is None else "true" if tree else "false"
    if kind is float and (tree != tree or tree in (float("inf"), float("-inf"))):
        return "NaN" if tree != tree else "Infinity" if tree > 0 else "-Infinity"
    return repr(tree)


def _quote(text: str) -> str:
    try:
        from _json import encode_basestring_ascii as quote
    except ImportError:
        from json.encoder import encode_basestring_ascii as quote
    return quote(text)


def send(fd: int, payload: bytes) -> None:
    """Write one message: its length in four bytes, then the bytes."""
    view = memoryview(len(payload).to_bytes(4, "little") + payload)
    while view:
        view = view[os.write(fd, view) :]


def receive(fd: int, limit: int = sys.maxsize) -> bytes | None:
    """Read one message; None when the other side has gone. Raises CodecError for one over `limit` bytes."""
    head = _read(fd, 4)
    if head is None:
        return None
    size = int.from_bytes(head, "little")
    if size > limit:
        raise CodecError(f"a message of {size} bytes: over the limit of {limit}")
    return _read(fd, size)


def _read(fd: int, size: int) -> bytes | None:
    parts = []
    while size:
        try:
            part = os.read(fd, min(size, 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
