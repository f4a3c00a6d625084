"""Encoding and decoding of all declared messages in all versions; bodies only, headers are in `header`.

The first use of a (class, version) generates and compiles a Python function for exactly that layout (`decoding`,
`encoding`): later calls look up no field by name and compare no version.

    decode   untrusted bytes. The result is always a message or DecodeError; a count is accepted only if the remaining
             bytes can hold that many elements, and all arrays together have a bounded number of elements
    encode   our own values. EncodeError if the version cannot carry one: a field it lacks (unless it is ignorable or
             has its default), a null, a number out of range
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar, cast

from barnabas.common.errors import DecodeError, EncodeError
from barnabas.protocol.decoding import compile_decoder, compile_decoder_in_steps
from barnabas.protocol.encoding import compile_encoder, compile_encoder_in_steps
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.wire import Buffer

M = TypeVar("M", bound=Message)
Decoder = Callable[[Buffer, int], tuple[Any, int]]
Encoder = Callable[[Message, bytearray], None]
Work = Generator[int, None, Any]

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def encode(message: Message, version: int) -> bytearray:
    """Returns the body of a message in one version."""
    out = bytearray()
    encode_into(message, version, out)
    return out


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Appends the body to `out`; after an EncodeError `out` contains only a part of it."""
    try:
        function = _encoders[type(message), version]
    except KeyError:
        function = encoder(type(message), version)
    function(message, out)


def decode(cls: type[M], version: int, data: Buffer, offset: int = 0) -> tuple[M, int]:
    """Returns the message that begins at `offset`, and the offset after it. Record fields are views into `data`."""
    try:
        function = _decoders[cls, version]
    except KeyError:
        function = decoder(cls, version)
    return function(data, offset)


def encoder(cls: type[Message], version: int) -> Encoder:
    """Returns the specialised function that `encode_into` calls."""
    found = _encoders.get((cls, version))
    if found is None:
        if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
            raise EncodeError(f"{cls.NAME} has no version {version}")
        found = _encoders[cls, version] = compile_encoder(cls, version)
    return found


def decoder(cls: type[Message], version: int) -> Decoder:
    """Returns the specialised function that `decode` calls."""
    found = _decoders.get((cls, version))
    if found is None:
        if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
            raise DecodeError(f"{cls.NAME} has no version {version}")
        found = _decoders[cls, version] = compile_decoder(cls, version)
    return found


# -- long messages, a few elements at a time: these generators yield where other work can run


def decode_in_steps(cls: type[M], version: int, data: Buffer, offset: int = 0) -> Generator[int, None, tuple[M, int]]:
    """Decodes like `decode`, in a version that the message has."""
    function = _decoders_in_steps.get((cls, version))
    if function is None:
        function = _decoders_in_steps[cls, version] = compile_decoder_in_steps(cls, version)
    return cast("Generator[int, None, tuple[M, int]]", function(data, offset))


def encode_in_steps(message: Message, version: int, out: bytearray) -> Generator[int, None, None]:
    """Encodes like `encode_into`, in a version that the message has."""
    cls = type(message)
    function = _encoders_in_steps.get((cls, version))
    if function is None:
        function = _encoders_in_steps[cls, version] = compile_encoder_in_steps(cls, version)
    return function(message, out)


_decoders_in_steps: dict[tuple[type[Message], int], Callable[[Buffer, int], Work]] = {}
_encoders_in_steps: dict[tuple[type[Message], int], Callable[[Message, bytearray], Work]] = {}


def is_longer(message: Message, elements_max: int) -> bool:
    """Returns whether all arrays of `message` together have more than `elements_max` elements."""
    return _count(type(message), message, elements_max) > elements_max


def _count(message: type[Message], struct: Struct, enough: int) -> int:
    found = 0
    for attribute, has_arrays in _arrays(message, type(struct)):
        values = getattr(struct, attribute)
        if values:
            found += len(values)
            if has_arrays:
                for each in values:
                    if found > enough:
                        return found
                    found += _count(message, each, enough - found)
    return found


_known_arrays: dict[tuple[type[Message], type[Struct]], tuple[tuple[str, bool], ...]] = {}


def _arrays(message: type[Message], struct: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """Returns the array fields of a struct, each with whether its elements contain arrays."""
    found = _known_arrays.get((message, struct))
    if found is None:
        found = _known_arrays[message, struct] = tuple(
            (field.attribute, field.is_struct and bool(_arrays(message, getattr(message, field.element_type))))
            for field in struct.FIELDS
            if field.is_array
        )
    return found


#: Elements that are freed in a step, which takes about a quarter of a millisecond.
_FREED_IN_STEP: Final = 128


def freed_in_steps(*values: object) -> Generator[int, None, None]:
    """Returns work that frees the elements of lists, and of all arrays of structs, in steps, after the caller has
    dropped them. A million elements that are freed with their message take half a second.

    The work holds the elements and changes no array, so that others may still use the values.
    """
    kept: list[object] = []
    for value in values:
        _keep_elements(value, kept, 0)
    return _freed(kept)


def _freed(kept: list[object]) -> Generator[int, None, None]:
    freed = 0
    while kept:
        _keep_elements(kept.pop(), kept, _FREED_IN_STEP)
        freed += 1
        if freed % _FREED_IN_STEP == 0:
            yield 1


def _keep_elements(value: object, kept: list[object], more_than: int) -> None:
    """Adds the elements of a list, or of the arrays of a struct, to `kept` if there are more than that."""
    if isinstance(value, list):
        if len(value) > more_than:
            kept.extend(value)
    elif isinstance(value, Struct):
        for attribute in _array_attributes(type(value)):
            _keep_elements(getattr(value, attribute), kept, more_than)


_known_attributes: dict[type[Struct], tuple[str, ...]] = {}


def _array_attributes(struct: type[Struct]) -> tuple[str, ...]:
    """Returns the names of the array fields of a struct."""
    found = _known_attributes.get(struct)
    if found is None:
        found = _known_attributes[struct] = tuple(field.attribute for field in struct.FIELDS if field.is_array)
    return found
