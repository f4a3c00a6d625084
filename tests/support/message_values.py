"""Messages with all kinds of values, built from FIELDS and a string of bytes that decides every choice.

Hypothesis draws only the bytes: one draw per message is fast, shorter bytes mean simpler messages, and when they are
used up every further choice is the simplest one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from barnabas.protocol.message import Field, Message, Struct

INTEGERS = {"int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}
INTEGERS |= {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
ALPHABET = "az09._-/ \x00\x7fé߿€\uffff𝄞"
#: A function that returns the value of a field in place of the usual choice, or Ellipsis.
Override = Callable[[type[Struct], Field, "Choices"], Any]


class Choices:
    """A source of decisions."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def below(self, limit: int) -> int:
        """Returns a number below `limit`; 0 when the supply is used up."""
        if self._position >= len(self._data):
            return 0
        byte = self._data[self._position]
        self._position += 1
        return byte % limit

    def bytes(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        self._position += size
        return taken.ljust(size, b"\x00")

    def integer(self, low: int, high: int) -> int:
        kind = self.below(6)
        if kind < 4:
            return (0, low, high, max(low, -1))[kind] if low <= 0 else (low, low, high, high)[kind]
        width = 1 if kind == 4 else 8
        return low + int.from_bytes(self.bytes(width), "big") % (high - low + 1)

    def size(self) -> int:
        """Returns a size: mostly small, sometimes one whose compact length takes a second byte."""
        kind = self.below(40)
        return (0, 1, 2, 3)[kind % 4] if kind < 38 else 126 + self.below(4)


class MessageMaker:
    """A maker of messages that one version can carry."""

    def __init__(self, choices: Choices, override: Override | None = None, unknown_tags: bool = True) -> None:
        self._choices = choices
        self._override = override
        self._unknown_tags = unknown_tags

    def make(self, cls: type[Message], version: int) -> Message:
        message = self._struct(cls, cls, version, 0)
        assert isinstance(message, Message)
        return message

    def _struct(self, cls: type[Struct], message: type[Message], version: int, depth: int) -> Struct:
        values: dict[str, Any] = {}
        for field in cls.FIELDS:
            if field.is_in(version) and (field.nullable is None or not self._null(field, version, values)):
                values[field.attribute] = self._value(cls, field, message, version, depth)
                if field.tag is not None and field.default is None and field.nullable is None:
                    # A tagged struct that has all its defaults is not sent, and is read as None.
                    fresh = getattr(message, field.type)()
                    values[field.attribute] = None if values[field.attribute] == fresh else values[field.attribute]
        if self._unknown_tags and message.FLEXIBLE is not None and version >= message.FLEXIBLE:
            values["unknown_tags"] = self._tags()
        return cls(**values)

    def _null(self, field: Field, version: int, values: dict[str, Any]) -> bool:
        """Returns whether the field was set to null, or left at its default because this version has no null."""
        if not field.is_nullable_in(version):
            return False
        if self._choices.below(3) != 1:
            return False
        values[field.attribute] = None
        return True

    def _value(self, cls: type[Struct], field: Field, message: type[Message], version: int, depth: int) -> Any:
        if self._override is not None and not field.is_struct:
            given = self._override(cls, field, self._choices)
            if given is not Ellipsis:
                return given
        if field.is_array:
            count = self._choices.below(4 if depth == 0 else 3)
            return [self._single(field, message, version, depth + 1) for _ in range(count)]
        return self._single(field, message, version, depth)

    def _single(self, field: Field, message: type[Message], version: int, depth: int) -> Any:
        choices, kind = self._choices, field.element_type
        if field.is_struct:
            return self._struct(getattr(message, kind), message, version, depth)
        if kind in INTEGERS:
            return choices.integer(*INTEGERS[kind])
        if kind == "bool":
            return bool(choices.below(2))
        if kind == "uuid":
            return choices.bytes(16)
        if kind == "float64":
            return struct.unpack(">d", choices.bytes(7) + b"\x01")[0] if choices.below(2) else 0.5
        if kind == "string":
            return "".join(ALPHABET[choices.below(len(ALPHABET))] for _ in range(choices.size()))
        return choices.bytes(choices.size())

    def _tags(self) -> tuple[tuple[int, bytes], ...]:
        if self._choices.below(8) != 1:
            return ()
        first = 100 + self._choices.below(200)
        return ((first, self._choices.bytes(self._choices.size())), (first + 5000, b""))
