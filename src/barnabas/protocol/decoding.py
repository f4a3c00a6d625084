"""Generator of the function that decodes one version of one message.

In the generated text `b` is the data, `e` its end, `p` the position, `o...` a struct, `n...` a length or count, `q` the
end of a value. Every read is bounded: `struct` and indexing refuse to pass the end, slices are compared with `e` first.
`left` is the number of elements that all arrays together can still have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import cast

from barnabas.common.errors import DecodeError
from barnabas.protocol.layout import ELEMENTS_MAX, FIXED, SHORT_ARRAYS, Layout, Source, array_layouts
from barnabas.protocol.message import Field, Message, Struct
from barnabas.protocol.wire import STRING_BYTES_MAX, TAGS_MAX, Buffer, continue_unsigned_varint, read_tagged_fields


def compile_decoder(cls: type[Message], version: int) -> Callable[[Buffer, int], tuple[Message, int]]:
    """Returns the decoder of a version that the message has."""
    return cast("Callable[[Buffer, int], tuple[Message, int]]", _DecoderWriter(cls, version, in_steps=False).compile())


def compile_decoder_in_steps(
    cls: type[Message], version: int
) -> Callable[[Buffer, int], Generator[int, None, tuple[Message, int]]]:
    """Returns the decoder as a generator, which yields 1 after every `ELEMENTS_PER_STEP` elements of arrays, or
    `BYTES_PER_STEP` bytes."""
    return cast(
        "Callable[[Buffer, int], Generator[int, None, tuple[Message, int]]]",
        _DecoderWriter(cls, version, in_steps=True).compile(),
    )


class _DecoderWriter:
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool) -> None:
        self._in_steps = in_steps
        self._cls = cls
        self._layout = Layout(cls, version)
        self._label = f"{cls.NAME} v{version}"
        self._source = Source()

    def compile(self) -> object:
        label = self._label

        def fault(what: str | Exception, position: int) -> DecodeError:
            """Returns the DecodeError for a failed read. `what` is the name of a field that passes the end, or the
            exception of a read.
            """
            if isinstance(what, UnicodeDecodeError):
                return DecodeError(f"{label}: a string is not UTF-8: {what.reason}", position)
            if isinstance(what, Exception):
                return DecodeError(f"{label}: malformed or cut off: {what}", position)
            return DecodeError(f"{label}: malformed or cut off at {what}", position)

        source, add = self._source, self._source.add
        source.namespace |= {
            "new": object.__new__,
            "fault": fault,
            "DecodeError": DecodeError,
            "struct_error": struct.error,
            "unpack": struct.unpack_from,
            "uvarint": continue_unsigned_varint,
            "read_tags": read_tagged_fields,
        }
        add("def decode(b, p):")
        source.indent()
        add("e = len(b)")
        add(f"left = {ELEMENTS_MAX}")
        if self._in_steps:
            source.begin_steps("p")
        add("try:")
        source.indent()
        if self._in_steps:
            # A `yield` makes the function a generator even if the message has no loop.
            add("if False: yield")
        result = self._struct(self._cls)
        add(f"return {result}, p")
        source.dedent()
        # The end of the data in `struct` or indexing; text that is not UTF-8.
        add("except (struct_error, IndexError, ValueError) as error:")
        add(" raise fault(error, p) from error")
        return source.function("decode", f"decode {label}")

    def _struct(self, cls: type[Struct]) -> str:
        """Generates the code that reads a struct, and returns the name of its variable."""
        add, layout = self._source.add, self._layout
        o = self._source.name("o")
        add(f"{o} = new({self._source.constant(f'C_{cls.__name__}', cls)})")
        for fixed, field in layout.runs(cls):
            self._run(o, fixed, field)
        for field in layout.absent_fields(cls):
            add(f"{o}.{field.attribute} = {self._default(field)}")
        if layout.is_flexible:
            self._tags(o, cls)
        elif self._cls.FLEXIBLE is not None:
            add(f"{o}.unknown_tags = ()")
        return o

    def _default(self, field: Field) -> str:
        if field.default == ():
            if field.is_array:
                return "[]"
            cls = self._layout.struct_class(field)
            return f"{self._source.constant(f'C_{cls.__name__}', cls)}()"
        return repr(field.default)

    def _run(self, o: str, fixed: list[Field], field: Field | None) -> None:
        """Generates one call that reads fixed-size fields, and the code for the field after them."""
        targets = [f"{o}.{each.attribute}" for each in fixed]
        codes = "".join(FIXED[each.type][0] for each in fixed)
        length = None
        if field is not None and (code := self._layout.length_code(field)):
            length = self._source.name("n")
            targets.append(length)
            codes += code
        if targets:
            self._unpack(targets, codes)
        if field is not None:
            self._variable(f"{o}.{field.attribute}", field, length)

    def _unpack(self, targets: list[str], codes: str) -> None:
        if codes == "?":
            self._source.add(f"{targets[0]} = b[p] != 0")
        else:
            layout = struct.Struct(">" + codes)
            name = self._source.constant(f"s_{codes.replace('?', 'B')}", layout.unpack_from)
            left = f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)
            self._source.add(f"{left} = {name}(b, p)")
        self._source.add(f"p += {struct.calcsize('>' + codes)}")

    def _uvarint(self) -> str:
        """Generates the code that reads an unsigned varint, and returns the name of its variable."""
        n = self._source.name("n")
        self._source.add(f"{n} = b[p]")
        self._source.add("p += 1")
        self._source.add(f"if {n} > 127: {n}, p = uvarint(b, p, {n})")
        return n

    def _value(self, target: str, field: Field, is_tagged: bool = False) -> None:
        """Generates the code that reads one separate value: an element or a tagged field."""
        if field.type in FIXED:
            self._unpack([target], FIXED[field.type][0])
            return
        length = None
        if code := self._layout.length_code(field):
            length = self._source.name("n")
            self._unpack([length], code)
        self._variable(target, field, length, is_tagged)

    def _variable(self, target: str, field: Field, length: str | None, is_tagged: bool = False) -> None:
        """Generates the code that reads a value of variable size. If the value is not compact, `length` has been read
        already.
        """
        add, source = self._source.add, self._source
        nullable = field.is_nullable_in(self._layout.version)
        if field.is_struct and not field.is_array:
            self._struct_value(target, field, nullable, is_tagged)
            return
        if length is None:
            length = self._uvarint()
            add(f"{length} -= 1")
        if nullable:
            add(f"if {length} < 0: {target} = None")
            add("else:")
            source.indent()
        if field.is_array:
            self._array(target, field, length)
        else:
            self._bytes(target, field, length)
        if nullable:
            source.dedent()

    def _bytes(self, target: str, field: Field, length: str) -> None:
        add = self._source.add
        add(f"q = p + {length}")
        is_long = f" or {length} > {STRING_BYTES_MAX}" if field.element_type == "string" else ""
        add(f"if q > e or q < p{is_long}: raise fault({field.name!r}, p)")
        slices = {"string": 'str(b[p:q], "utf-8")', "bytes": "bytes(b[p:q])", "records": "memoryview(b)[p:q]"}
        add(f"{target} = {slices[field.element_type]}")
        add("p = q")

    def _array(self, target: str, field: Field, count: str) -> None:
        add, source, layout = self._source.add, self._source, self._layout
        size = layout.element_size_min(field)
        add(f"if {count} < 0 or {count} * {size} > e - p: raise fault({field.name!r}, p)")
        if field.element_type in FIXED and field.element_type != "uuid":
            code = FIXED[field.element_type][0]
            short = source.constant(f"a_{code.replace('?', 'B')}", array_layouts(code, "unpack_from"))
            add(f"if {count} < {len(SHORT_ARRAYS)}: {target} = list({short}[{count}](b, p))")
            add("else:")
            add(f" left -= {count}")
            add(f" if left < 0: raise fault({field.name!r}, p)")
            add(f' {target} = list(unpack(f">{{{count}}}{code}", b, p))')
            add(f"p += {size} * {count}")
            return
        add(f"left -= {count}")
        add(f"if left < 0: raise fault({field.name!r}, p)")
        items = source.name("l")
        add(f"{items} = {target} = []")
        add(f"for _ in range({count}):")
        source.indent()
        if self._in_steps:
            source.count_step("p")
        if field.is_struct:
            element = self._struct(layout.struct_class(field))
        else:
            element = source.name("v")
            self._value(element, field._replace(type=field.element_type, nullable=None))
        add(f"{items}.append({element})")
        source.dedent()

    def _struct_value(self, target: str, field: Field, nullable: bool, is_tagged: bool) -> None:
        """Generates the code that reads a single struct. A nullable struct follows a byte, which is negative for null
        (KIP-893); if tagged, 0.
        """
        add, source = self._source.add, self._source
        if nullable:
            mark = source.name("n")
            add(f"{mark} = b[p]")
            add("p += 1")
            add(f"if {mark} {'== 0' if is_tagged else '> 127'}: {target} = None")
            add("else:")
            source.indent()
        add(f"{target} = {self._struct(self._layout.struct_class(field))}")
        if nullable:
            source.dedent()

    def _tags(self, o: str, cls: type[Struct]) -> None:
        """Generates the code that reads the tagged fields, which follow the other fields."""
        add, source = self._source.add, self._source
        known = self._layout.tagged_fields(cls)
        for field in known:
            add(f"{o}.{field.attribute} = {self._default(field)}")
        add(f"{o}.unknown_tags = ()")
        add("if b[p] == 0: p += 1")
        if not known:
            add(f"else: {o}.unknown_tags, p = read_tags(b, p)")
            if self._in_steps:
                add(f"done += len({o}.unknown_tags)")
            return
        add("else:")
        source.indent()
        count, unknown = self._uvarint(), source.name("u")
        add(f"if {count} * 2 > e - p or {count} > {TAGS_MAX}: raise fault('tagged fields', p)")
        add(f"{unknown} = {{}}")
        add(f"for _ in range({count}):")
        source.indent()
        tag, size, end = self._uvarint(), self._uvarint(), source.name("q")
        add(f"{end} = p + {size}")
        add(f"if {end} > e: raise fault('tagged fields', p)")
        keyword = "if"
        for field in known:
            add(f"{keyword} {tag} == {field.tag}:")
            keyword = "elif"
            source.indent()
            self._value(f"{o}.{field.attribute}", field, is_tagged=True)
            add(f"if p != {end}: raise fault({field.name!r}, p)")
            source.dedent()
        add("else:")
        add(f" if {tag} in {unknown}: raise fault('tagged fields', p)")
        add(f" {unknown}[{tag}] = bytes(b[p:{end}])")
        add(f" p = {end}")
        source.dedent()
        add(f"{o}.unknown_tags = tuple({unknown}.items())")
        if self._in_steps:
            add(f"done += len({unknown})")
        source.dedent()
