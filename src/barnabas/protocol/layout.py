"""The layout of a struct in the bytes of one version, shared by the generators of decoders and encoders.

Consecutive fields of fixed size form one run, which one `struct` call reads or writes. In versions that are not
flexible, a run also includes the length of the string, bytes or array that ends it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache

from barnabas.protocol.message import Field, Message, Struct

#: Type -> (`struct` code, size).
FIXED = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "float64": ("d", 8),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}

#: The maximum number of elements in all arrays of a message together, not counting short arrays of numbers. One element
#: can be two bytes of input, but takes some hundred bytes in memory: without a limit, a frame of the greatest size
#: could fill the memory. Real messages have far fewer.
ELEMENTS_MAX = 1 << 20
#: The number of elements that are decoded or encoded between two steps, which takes some tenths of a millisecond.
ELEMENTS_PER_STEP = 100
#: The number of bytes between two steps: copying 100 elements with the longest strings takes several milliseconds.
BYTES_PER_STEP = 256 * 1024
#: Lengths of number arrays for which a `struct` is prepared: most are lists of replicas.
SHORT_ARRAYS = range(17)


@cache
def array_layouts(code: str, method: str) -> list[object]:
    """Returns `pack` or `unpack_from` for arrays of each short length."""
    return [getattr(struct.Struct(f">{count}{code}"), method) for count in SHORT_ARRAYS]


class Layout:
    """The layout of a message's structs in one version."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.is_flexible = message.FLEXIBLE is not None and version >= message.FLEXIBLE
        self._sizes_min: dict[type[Struct], int] = {}

    def struct_class(self, field: Field) -> type[Struct]:
        """Returns the class of a struct field or of its elements."""
        found: type[Struct] = getattr(self.message, field.element_type)
        return found

    def is_compact(self, field: Field) -> bool:
        return self.is_flexible and field.flexible

    def plain_fields(self, cls: type[Struct]) -> list[Field]:
        """Returns the fields in fixed order; the tagged ones follow them."""
        return [f for f in cls.FIELDS if f.is_in(self.version) and not self._is_tagged(f)]

    def tagged_fields(self, cls: type[Struct]) -> list[Field]:
        found = [f for f in cls.FIELDS if f.is_in(self.version) and self._is_tagged(f)]
        return sorted(found, key=lambda f: f.tag or 0)

    def absent_fields(self, cls: type[Struct]) -> list[Field]:
        """Returns the fields that this version lacks."""
        return [f for f in cls.FIELDS if not f.is_in(self.version)]

    def _is_tagged(self, field: Field) -> bool:
        return self.is_flexible and field.is_tagged_in(self.version)

    def runs(self, cls: type[Struct]) -> Iterator[tuple[list[Field], Field | None]]:
        """Yields the plain fields as (fixed-size fields, the field of variable size after them)."""
        fixed: list[Field] = []
        for field in self.plain_fields(cls):
            if field.type in FIXED:
                fixed.append(field)
            else:
                yield fixed, field
                fixed = []
        if fixed:
            yield fixed, None

    def length_code(self, field: Field) -> str:
        """Returns the `struct` code of the length before a value, "" if it is compact or there is none."""
        if self.is_compact(field) or (field.is_struct and not field.is_array):
            return ""
        return "h" if field.type == "string" else "i"

    def size_min(self, cls: type[Struct]) -> int:
        """Returns the smallest size in bytes of a struct of this class, which limits the possible count of an array."""
        known = self._sizes_min.get(cls)
        if known is None:
            known = sum(self.field_size_min(field) for field in self.plain_fields(cls)) + self.is_flexible
            self._sizes_min[cls] = known
        return known

    def field_size_min(self, field: Field) -> int:
        if field.type in FIXED:
            return FIXED[field.type][1]
        if field.is_struct and not field.is_array:
            return 1 if field.is_nullable_in(self.version) else self.size_min(self.struct_class(field))
        if self.is_compact(field):
            return 1
        return 2 if field.type == "string" else 4

    def element_size_min(self, field: Field) -> int:
        """Returns the smallest size in bytes of an element, at least 1: an array of empty elements could have any
        count.
        """
        if field.is_struct:
            return max(1, self.size_min(self.struct_class(field)))
        if field.element_type in FIXED:
            return FIXED[field.element_type][1]
        return 1 if self.is_compact(field) else 2


class Source:
    """Generated Python source, with the objects that it refers to by name."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self.namespace: dict[str, object] = {}

    def add(self, line: str) -> None:
        self._lines.append(" " * self._depth + line)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """Returns the name of a variable that the generated text does not use yet."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, name: str, value: object) -> str:
        """Gives the function access to `value` under the name `name`."""
        self.namespace.setdefault(name, value)
        return name

    def begin_steps(self, position: str) -> None:
        """Generates the variables of `count_step`; `position` is the expression for the number of bytes so far."""
        self.add(f"done = 0; mark = {position} + {BYTES_PER_STEP}")

    def count_step(self, position: str) -> None:
        """Generates a `yield` after some elements or bytes of a loop, so that other work can run."""
        self.add("done += 1")
        self.add(
            f"if done >= {ELEMENTS_PER_STEP} or {position} > mark: "
            f"done = 0; mark = {position} + {BYTES_PER_STEP}; yield 1"
        )

    def function(self, name: str, label: str) -> object:
        """Runs the text and returns the function `name` that it defines."""
        exec(compile("\n".join(self._lines), f"<{label}>", "exec"), self.namespace)
        return self.namespace[name]
