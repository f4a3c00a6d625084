"""JSON in znodes: strict reading with errors that name the path, and writing as Jackson writes it for Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NoReturn, TypeVar

from barnabas.common.host import Buffer

#: A JSON value that is written: text, numbers, None, lists, and dicts in the order of their keys.
JsonValue = object

#: The characters that Jackson escapes and how it does it. Characters above the basic plane become two UTF-16 units.
_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(0x20)},
    **{ord(char): "\\" + letter for char, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)},
}
_ABOVE_BASIC_PLANE: Final = re.compile("[\U00010000-\U0010ffff]")
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1

_V = TypeVar("_V")


class ZnodeError(Exception):
    """The error for a znode whose content is invalid. `path` is the znode, `problem` the reason."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"znode {path}: {problem}")
        self.path = path
        self.problem = problem


def write_text(text: str) -> str:
    """Returns a JSON string with its quotes, escaped as Jackson escapes it."""
    escaped = text.translate(_ESCAPES)
    return f'"{_ABOVE_BASIC_PLANE.sub(_as_surrogates, escaped)}"'


def _as_surrogates(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return f"\\u{units[:2].hex().upper()}\\u{units[2:].hex().upper()}"


def write_json(value: JsonValue) -> str:
    """Returns a value as JSON without spaces, dicts in their own order."""
    match value:
        case str():
            return write_text(value)
        case None:
            return "null"
        case int():
            return str(value)
        case Mapping():
            return "{" + ",".join(f"{write_text(key)}:{write_json(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(write_json, value)) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} does not occur in znodes")


def json_bytes(value: JsonValue) -> bytes:
    return write_json(value).encode()


def reordered(values: Mapping[str, _V], order: Callable[[Iterable[str]], list[str]]) -> dict[str, _V]:
    """Returns the values in the order that `order` gives to their keys."""
    return {key: values[key] for key in order(values)}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def text_of(path: str, data: Buffer | None) -> str:
    """Returns the content as text. Raises ZnodeError if there is no content, or if it is not UTF-8."""
    if data is None or not len(data):
        raise ZnodeError(path, "has no content")
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ZnodeError(path, f"is not UTF-8: {error}") from error


def read_object(path: str, data: Buffer | None) -> JsonObject:
    """Returns the JSON object that the znode holds. Raises ZnodeError if it holds anything else."""
    text = text_of(path, data)
    try:
        value = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half of a UTF-16 pair alone is not text
    except (ValueError, RecursionError) as error:
        raise ZnodeError(path, f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ZnodeError(path, f"holds {_kind(value)} instead of an object")
    return JsonObject(path, "", value)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number", bool: "a boolean"}
    return names.get(type(value), "null")


class JsonObject:
    """A JSON object of a znode, whose fields are read with their types. Each method raises ZnodeError for a wrong type.

    `path` is the znode, `place` the position inside its JSON for messages ("" for the whole). Fields that are not read
    are ignored, as Kafka ignores them.
    """

    __slots__ = ("_place", "_values", "path")

    def __init__(self, path: str, place: str, values: dict[str, object]) -> None:
        self.path = path
        self._place = place
        self._values = values

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of the fields, in the order of the znode."""
        return iter(self._values)

    def has(self, key: str) -> bool:
        """Returns whether the field is present and not null."""
        return self._values.get(key) is not None

    def wrong(self, key: str, problem: str) -> ZnodeError:
        """Returns the error for a field."""
        return ZnodeError(self.path, f"{self._place}{key} {problem}")

    def _get(self, key: str) -> object:
        if key not in self._values:
            raise self.wrong(key, "is missing")
        return self._values[key]

    def _number(self, key: str, limit: int) -> int:
        value = self._get(key)
        if type(value) is not int:
            raise self.wrong(key, f"is {_kind(value)} instead of a whole number")
        if not -limit - 1 <= value <= limit:
            raise self.wrong(key, f"is {value}, outside the range of {limit.bit_length() + 1} bits")
        return value

    def int32(self, key: str) -> int:
        return self._number(key, _INT32_MAX)

    def int64(self, key: str) -> int:
        return self._number(key, _INT64_MAX)

    def int64_text(self, key: str) -> int:
        """Returns a number that is written as text."""
        text = self.text(key)
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII) or not -_INT64_MAX - 1 <= int(text) <= _INT64_MAX:
            raise self.wrong(key, f"is {text!r} instead of a whole number of 64 bits")
        return int(text)

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str):
            raise self.wrong(key, f"is {_kind(value)} instead of text")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def nested(self, key: str) -> JsonObject:
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, f"is {_kind(value)} instead of an object")
        return JsonObject(self.path, f"{self._place}{key}.", value)

    def _list(self, key: str) -> list[object]:
        value = self._get(key)
        if not isinstance(value, list):
            raise self.wrong(key, f"is {_kind(value)} instead of a list")
        return value

    def nested_list(self, key: str) -> list[JsonObject]:
        found = []
        for index, value in enumerate(self._list(key)):
            if not isinstance(value, dict):
                raise self.wrong(f"{key}[{index}]", f"is {_kind(value)} instead of an object")
            found.append(JsonObject(self.path, f"{self._place}{key}[{index}].", value))
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self.wrong(key, "holds a value that is not text")
        return tuple(str(value) for value in values)

    def broker_ids(self, key: str) -> tuple[int, ...]:
        """Returns a list of broker ids. Raises ZnodeError for an invalid id, and for one that is repeated."""
        ids = []
        for value in self._list(key):
            if type(value) is not int or not 0 <= value <= _INT32_MAX:
                raise self.wrong(key, f"holds {value!r}, which is not a broker id")
            ids.append(value)
        if len(set(ids)) != len(ids):
            raise self.wrong(key, "names a broker twice")
        return tuple(ids)

    def version(self, lowest: int, highest: int) -> int:
        """Returns the version of the znode. Raises ZnodeError if it is outside these limits."""
        version = self.int32("version")
        if not lowest <= version <= highest:
            raise self.wrong("version", f"is {version}, expected {lowest} to {highest}")
        return version
