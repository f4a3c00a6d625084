"""Reads elements of DER, the encoding of certificates and keys, as far as the node needs it without a library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

INTEGER: Final = 0x02
OCTETS: Final = 0x04
IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31


class Element(NamedTuple):
    tag: int
    content: bytes
    #: The element with its tag and length.
    whole: bytes

    @property
    def parts(self) -> list[Element]:
        """Returns the elements within this one. Raises ValueError if its content is not a series of elements."""
        return list(elements(self.content))


def elements(data: bytes) -> Iterator[Element]:
    """Yields the elements of `data` one after the other. Raises ValueError for data that is not DER."""
    position = 0
    while position < len(data):
        begin = position
        if position + 2 > len(data) or data[position] & 0x1F == 0x1F:
            raise ValueError("not DER")
        length = data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4 or position + size > len(data):
                raise ValueError("not DER: a length is malformed")
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        if position + length > len(data):
            raise ValueError("not DER: an element is longer than the data")
        yield Element(data[begin], data[position : position + length], data[begin : position + length])
        position += length


def only(data: bytes) -> Element:
    """Returns the one element of `data`; what follows it is ignored. Raises ValueError if there is none."""
    for element in elements(data):
        return element
    raise ValueError("not DER: no element")


def dotted(content: bytes) -> str:
    """Returns an object identifier as numbers with dots."""
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("not DER: an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
