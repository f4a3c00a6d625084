"""Encode and decode any declared message in any of its versions; bodies only, headers are in `header`.

The first use of a (class, version) writes a Python function for exactly that layout (`decoding`, `encoding`), compiles
it and keeps it: no field is looked up by name, no version is compared while a message passes.

    decode   bytes from outside. Whatever they are, the outcome is a message or DecodeError; a count is believed only as
             far as the bytes that are left could hold it, and all arrays together have a bounded number of elements
    encode   values of ours. EncodeError for what the version cannot carry: a field it lacks (unless it is ignorable or
             has its default), a null, a number out of range
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from barnabas.common.errors import DecodeError, EncodeError
from barnabas.protocol.decoding import compile_decoder
from barnabas.protocol.encoding import compile_encoder
from barnabas.protocol.message import Message
from barnabas.protocol.wire import Buffer

M = TypeVar("M", bound=Message)
Decoder = Callable[[Buffer, int], tuple[Message, int]]
Encoder = Callable[[Message, bytearray], None]

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def encode(message: Message, version: int) -> bytearray:
    """The body of a message in one version."""
    out = bytearray()
    encode_into(message, version, out)
    return out


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Append the body to `out`; after an EncodeError `out` holds a part of it and is of no use."""
    try:
        function = _encoders[type(message), version]
    except KeyError:
        function = encoder(type(message), version)
    function(message, out)


def decode(cls: type[M], version: int, data: Buffer, offset: int = 0) -> tuple[M, int]:
    """The message that starts at `offset`, and the offset behind it. Record fields are views into `data`."""
    try:
        function = _decoders[cls, version]
    except KeyError:
        function = decoder(cls, version)
    return cast("tuple[M, int]", function(data, offset))


def encoder(cls: type[Message], version: int) -> Encoder:
    """The specialised function behind `encode_into`."""
    found = _encoders.get((cls, version))
    if found is None:
        if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
            raise EncodeError(f"{cls.NAME} has no version {version}")
        found = _encoders[cls, version] = compile_encoder(cls, version)
    return found


def decoder(cls: type[Message], version: int) -> Decoder:
    """The specialised function behind `decode`."""
    found = _decoders.get((cls, version))
    if found is None:
        if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
            raise DecodeError(f"{cls.NAME} has no version {version}")
        found = _decoders[cls, version] = compile_decoder(cls, version)
    return found
