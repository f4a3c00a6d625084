"""Generator of the function that encodes one version of one message.

In the generated text `out` is the bytearray appended to, `o...` a struct, `v...` a value, `n...` a length, `t...`
tagged fields. A value that does not fit makes `struct`, `encode` or `len` fail; one place turns that into EncodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import cast

from barnabas.common.errors import EncodeError
from barnabas.protocol.layout import FIXED, SHORT_ARRAYS, Layout, Source, array_layouts
from barnabas.protocol.message import Field, Message, Struct
from barnabas.protocol.wire import STRING_BYTES_MAX, write_tagged_fields, write_unsigned_varint


def compile_encoder(cls: type[Message], version: int) -> Callable[[Message, bytearray], None]:
    """Returns the encoder of a version that the message has."""
    return cast("Callable[[Message, bytearray], None]", _EncoderWriter(cls, version, in_steps=False).compile())


def compile_encoder_in_steps(
    cls: type[Message], version: int
) -> Callable[[Message, bytearray], Generator[int, None, None]]:
    """Returns the encoder as a generator, which yields 1 after every `ELEMENTS_PER_STEP` elements of arrays, or
    `BYTES_PER_STEP` bytes."""
    return cast(
        "Callable[[Message, bytearray], Generator[int, None, None]]",
        _EncoderWriter(cls, version, in_steps=True).compile(),
    )


class _EncoderWriter:
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool) -> None:
        self._in_steps = in_steps
        self._cls = cls
        self._layout = Layout(cls, version)
        self._label = f"{cls.NAME} v{version}"
        self._source = Source()

    def compile(self) -> object:
        label = self._label

        def refuse(field: str, reason: str) -> EncodeError:
            return EncodeError(f"{label} {reason} {field}")

        source, add = self._source, self._source.add
        source.namespace |= {
            "refuse": refuse,
            "EncodeError": EncodeError,
            "struct_error": struct.error,
            "pack": struct.pack,
            "uvarint": write_unsigned_varint,
            "write_tags": write_tagged_fields,
            "LABEL": label,
        }
        add("def encode(o, out):")
        source.indent()
        if self._in_steps:
            source.begin_steps("len(out)")
        add("try:")
        source.indent()
        # A `yield` makes the function a generator even if the message has no loop.
        add("if False: yield" if self._in_steps else "pass")
        self._struct("o", self._cls, "out")
        source.dedent()
        # A null or a wrong type, a number out of range, text with lone surrogates.
        add("except (struct_error, AttributeError, TypeError, ValueError, OverflowError) as error:")
        add(' raise EncodeError(f"{LABEL}: {error}") from error')
        return source.function("encode", f"encode {label}")

    def _struct(self, o: str, cls: type[Struct], out: str) -> None:
        layout = self._layout
        for field in layout.absent_fields(cls):
            if not field.ignorable:
                reason = "has no"
                self._source.add(
                    f"if {self._is_set(f'{o}.{field.attribute}', field)}: raise refuse({field.name!r}, {reason!r})"
                )
        for fixed, last in layout.runs(cls):
            self._run(o, fixed, last, out)
        if layout.is_flexible:
            self._tags(o, cls, out)
        elif self._cls.FLEXIBLE is not None:
            self._source.add(f"if {o}.unknown_tags: raise refuse('tagged fields', 'has no')")

    def _is_set(self, value: str, field: Field) -> str:
        """Returns the generated expression that tests whether a field differs from its default."""
        if field.default is None:
            if field.is_struct and not field.is_array and field.nullable is None:
                return f"{value} is not None and {value} != {self._fresh(field)}"
            return f"{value} is not None"
        if field.default == () and not field.is_array:
            return f"{value} != {self._fresh(field)}"
        if field.default in ((), "", b"", False, 0) and field.type != "uuid":
            return f"({value} or {value} is None)" if field.nullable is not None else value
        return f"{value} != {field.default!r}"

    def _fresh(self, field: Field) -> str:
        """Returns a constant for a struct with its defaults, for comparison."""
        cls = self._layout.struct_class(field)
        return self._source.constant(f"D_{cls.__name__}", cls())

    def _run(self, o: str, fixed: list[Field], field: Field | None, out: str) -> None:
        """Generates one call that writes fixed-size fields and the length of the next field."""
        values = [f"{o}.{each.attribute}" for each in fixed]
        codes = "".join(FIXED[each.type][0] for each in fixed)
        for each in fixed:
            if each.type == "uuid":
                self._check_uuid(f"{o}.{each.attribute}", each)
        if field is None:
            self._pack(values, codes, out)
            return
        code = self._layout.length_code(field)
        if not code:
            self._pack(values, codes, out)
            self._compact(f"{o}.{field.attribute}", field, out)
            return
        value, length = self._measure(f"{o}.{field.attribute}", field)
        self._pack([*values, length], codes + code, out)
        self._content(value, field, out)

    def _check_uuid(self, value: str, field: Field) -> None:
        self._source.add(f"if len({value}) != 16: raise refuse({field.name!r}, 'needs 16 bytes in')")

    def _pack(self, values: list[str], codes: str, out: str) -> None:
        if not values:
            return
        name = self._source.constant(f"s_{codes.replace('?', 'B')}", struct.Struct(">" + codes).pack)
        self._source.add(f"{out} += {name}({', '.join(values)})")

    def _measure(self, expression: str, field: Field) -> tuple[str, str]:
        """Generates the variables for a value as it will be appended and for its length, which is -1 for null."""
        source, add = self._source, self._source.add
        value, length = source.name("v"), source.name("n")
        add(f"{value} = {expression}")
        nullable = field.is_nullable_in(self._layout.version)
        if nullable or field.type == "records":
            null = f"{length} = -1; {value} = ()" if field.is_array else f"{length} = -1; {value} = b''"
            if not nullable:
                null = f"raise refuse({field.name!r}, 'needs')"
            add(f"if {value} is None: {null}")
            add("else:")
            source.indent()
        if field.type == "string":
            add(f"{value} = {value}.encode()")
        add(f"{length} = len({value})")
        if nullable or field.type == "records":
            source.dedent()
        return value, length

    def _compact(self, expression: str, field: Field, out: str, is_tagged: bool = False) -> None:
        """Generates the code that writes a value with a compact length, or a single struct."""
        if field.is_struct and not field.is_array:
            self._struct_value(expression, field, out, is_tagged)
            return
        value, length = self._measure(expression, field)
        if field.type == "string":
            self._source.add(f"if {length} > {STRING_BYTES_MAX}: raise refuse({field.name!r}, 'has too long a')")
        self._append_uvarint(f"{length} + 1", f"{length} < 127", out)
        self._content(value, field, out)

    def _append_uvarint(self, value: str, is_short: str, out: str) -> None:
        self._source.add(f"if {is_short}: {out}.append({value})")
        self._source.add(f"else: uvarint({out}, {value})")

    def _content(self, value: str, field: Field, out: str) -> None:
        """Generates the code that writes the content after a length."""
        source, add = self._source, self._source.add
        if not field.is_array:
            add(f"{out} += {value}")
            return
        if field.element_type in FIXED and field.element_type != "uuid":
            code = FIXED[field.element_type][0]
            short = source.constant(f"a_{code.replace('?', 'B')}", array_layouts(code, "pack"))
            add(f"if len({value}) < {len(SHORT_ARRAYS)}: {out} += {short}[len({value})](*{value})")
            add(f'else: {out} += pack(f">{{len({value})}}{code}", *{value})')
            return
        element = source.name("o")
        add(f"for {element} in {value}:")
        source.indent()
        if self._in_steps:
            source.count_step("len(out)")
        if field.is_struct:
            add("pass")
            self._struct(element, self._layout.struct_class(field), out)
        else:
            self._value(element, field._replace(type=field.element_type, nullable=None), out)
        source.dedent()

    def _value(self, expression: str, field: Field, out: str, is_tagged: bool = False) -> None:
        """Generates the code that writes one separate value: an element or a tagged field."""
        if field.type == "uuid":
            self._check_uuid(expression, field)
        if field.type in FIXED:
            self._pack([expression], FIXED[field.type][0], out)
        elif code := self._layout.length_code(field):
            value, length = self._measure(expression, field)
            self._pack([length], code, out)
            self._content(value, field, out)
        else:
            self._compact(expression, field, out, is_tagged)

    def _struct_value(self, expression: str, field: Field, out: str, is_tagged: bool) -> None:
        """Generates the code that writes a single struct. A nullable one has a byte before it: 1, or -1 for null
        (KIP-893); when tagged, 0 for null.
        """
        source, add = self._source, self._source.add
        value = source.name("o")
        add(f"{value} = {expression}")
        nullable = field.is_nullable_in(self._layout.version)
        if nullable:
            add(f"if {value} is None: {out}.append({0 if is_tagged else 255})")
            add("else:")
            source.indent()
            add(f"{out}.append(1)")
        self._struct(value, self._layout.struct_class(field), out)
        if nullable:
            source.dedent()

    def _tags(self, o: str, cls: type[Struct], out: str) -> None:
        """Generates the code that writes tagged fields that differ from their defaults, and unknown ones that were
        decoded.
        """
        source, add = self._source, self._source.add
        known = self._layout.tagged_fields(cls)
        if not known:
            add(f"if {o}.unknown_tags: write_tags({out}, {o}.unknown_tags)")
            add(f"else: {out}.append(0)")
            return
        tags = source.name("t")
        add(f"{tags} = [*{o}.unknown_tags]")
        for field in known:
            add(f"if {self._is_set(f'{o}.{field.attribute}', field)}:")
            source.indent()
            part = source.name("w")
            add(f"{part} = bytearray()")
            self._value(f"{o}.{field.attribute}", field, part, is_tagged=True)
            add(f"{tags}.append(({field.tag}, {part}))")
            source.dedent()
        add(f"if {tags}: write_tags({out}, {tags})")
        add(f"else: {out}.append(0)")
