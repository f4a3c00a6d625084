"""A JSON text parsed by a schema, as Spark's `from_json` does, including its errors and leniency.

    broken syntax            Malformed; text after the object is not read
    a value of another type  null for the nearest field of an object, and the rest of the row is kept (`is_whole` is
                             then false)
    a repeated key           the last one that fits
    also accepted            single quotes, NaN, Infinity, -Infinity, +INF

It creates an object for everything and is slow: `typed_values` uses it only for texts that a faster parser refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyspark.sql import types as spark

from barnabas.spark.json_scalars import NOT_NUMBERS, NUMBER, STRING, WORD, Mismatch, Token, converter

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ESCAPE: Final = r"\\(?:[\"\\/bfnrt']|u[0-9a-fA-F]{4})"
_STRING: Final = re.compile(rf"\"((?:[^\"\\\x00-\x1f]|{_ESCAPE})*)\"|'((?:[^'\\\x00-\x1f]|{_ESCAPE})*)'")
_SCALAR: Final = re.compile(
    r"(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|"
    + "|".join(map(re.escape, sorted(NOT_NUMBERS, key=len, reverse=True)))
    + r")(?=[ \t\r\n,\]}]|$)",
    re.ASCII,
)
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Malformed(Exception):
    """The error for a text that is not a JSON object."""


class Row(NamedTuple):
    """The result of parsing one JSON text. `values`: None for an empty text."""

    values: dict[str, Any] | None
    is_whole: bool


Reader = Callable[["_Text"], Any]


class RowReader:
    """The reader of texts by one schema. Raises ValueError for a type that is not supported in JSON here."""

    def __init__(self, schema: spark.StructType) -> None:
        self._reader = _struct_reader(schema)

    def read(self, text: str) -> Row:
        """Parses one text. Raises Malformed."""
        source = _Text(text)
        source.skip_space()
        if source.at == len(text):
            return Row(None, True)
        if source.peek() != "{":
            raise Malformed
        try:
            values = self._reader(source)
        except RecursionError:
            raise Malformed from None
        return Row(values, source.is_whole)


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.is_whole = True

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def token(self) -> Token:
        """Reads a JSON scalar. Raises Malformed."""
        if self.peek() in ('"', "'"):
            return Token(STRING, self.string())
        match = _SCALAR.match(self.text, self.at)
        if match is None:
            raise Malformed
        self.at = match.end()
        text = match[1]
        return Token(NUMBER if text[-1].isdigit() else WORD, text)

    def string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise Malformed
        self.at = match.end()
        found = match[1] if match[1] is not None else match[2]
        return _unescaped(found) if "\\" in found else found

    def key(self) -> str:
        self.skip_space()
        key = self.string()
        self.skip_space()
        if self.peek() != ":":
            raise Malformed
        self.at += 1
        self.skip_space()
        return key

    def opens(self, bracket: str) -> bool:
        """Passes the opening bracket of an object or array, and returns whether it has elements."""
        self.at += 1
        self.skip_space()
        if self.peek() == bracket:
            self.at += 1
            return False
        return True

    def has_more(self, bracket: str) -> bool:
        self.skip_space()
        found = self.peek()
        if found not in (",", bracket) or not found:
            raise Malformed
        self.at += 1
        if found == ",":
            self.skip_space()
        return found == ","

    def skip_value(self) -> None:
        first = self.peek()
        if first == "{":
            more = self.opens("}")
            while more:
                self.key()
                self.skip_value()
                more = self.has_more("}")
        elif first == "[":
            more = self.opens("]")
            while more:
                self.skip_value()
                more = self.has_more("]")
        else:
            self.token()


def _unescaped(text: str) -> str:
    found = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2]), text)
    # Two halves of a pair are one character; a lone one is invalid, and Java writes a question mark for it.
    whole = found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _LONE_SURROGATE.sub("?", whole)


def _reader(kind: spark.DataType) -> Reader:
    if isinstance(kind, spark.StructType):
        return _or_null(_struct_reader(kind))
    if isinstance(kind, spark.ArrayType):
        return _or_null(_array_reader(_reader(kind.elementType)))
    if isinstance(kind, spark.MapType):
        if type(kind.keyType) is not spark.StringType:
            raise ValueError(f"{kind.simpleString()}: keys of JSON are strings")
        return _or_null(_map_reader(_reader(kind.valueType)))
    convert = converter(kind)
    if convert is None:
        raise ValueError(f"{kind.simpleString()} is not read from JSON here")
    takes_all = isinstance(kind, spark.StringType)

    def read(source: _Text) -> Any:
        if source.peek() in ("{", "["):
            if not takes_all:
                raise Mismatch
            start = source.at
            source.skip_value()
            return source.text[start : source.at]
        token = source.token()
        return None if token == (WORD, "null") else convert(token)

    return read


def _or_null(reader: Reader) -> Reader:
    """Wraps `reader`, which expects an opening bracket, so that null is accepted instead."""

    def read(source: _Text) -> Any:
        if source.peek() in ("{", "["):
            return reader(source)
        if source.token() != (WORD, "null"):
            raise Mismatch
        return None

    return read


def _struct_reader(kind: spark.StructType) -> Reader:
    readers = {field.name: _reader(field.dataType) for field in kind.fields}

    def read(source: _Text) -> dict[str, Any]:
        if source.peek() != "{":
            raise Mismatch
        values: dict[str, Any] = {}
        more = source.opens("}")
        while more:
            name = source.key()
            reader, start = readers.get(name), source.at
            try:
                if reader is None:
                    source.skip_value()
                else:
                    values[name] = reader(source)
            except Mismatch:
                source.is_whole = False
                source.at = start
                source.skip_value()
            more = source.has_more("}")
        return values

    return read


def _array_reader(element: Reader) -> Reader:
    def read(source: _Text) -> list[Any]:
        if source.peek() != "[":
            raise Mismatch
        values = []
        more = source.opens("]")
        while more:
            values.append(element(source))
            more = source.has_more("]")
        return values

    return read


def _map_reader(value: Reader) -> Reader:
    def read(source: _Text) -> list[tuple[str, Any]]:
        if source.peek() != "{":
            raise Mismatch
        pairs = []
        more = source.opens("}")
        while more:
            pairs.append((source.key(), value(source)))
            more = source.has_more("}")
        return pairs

    return read
