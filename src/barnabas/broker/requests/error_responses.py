"""Error responses: one error for everything in a request, for each API, as Kafka's requests build them.

They are used if no regular response is possible: nothing decided the request in time, or its handler failed. The error
is set at the top level if the response version has a field for it, and in each row if there are rows. APIs that decode
their requests themselves (Produce, Fetch, ApiVersions) have none: their connections are closed, and their clients
reconnect.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import Any, Final, NamedTuple

from barnabas.broker.requests.handler_modules import handler_module
from barnabas.broker.requests.steps import SLICE_UNITS
from barnabas.common.errors import EncodeError, ErrorCode
from barnabas.common.portions import whole
from barnabas.protocol import codec
from barnabas.protocol.api import handler_name
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.index import response_class

#: Kafka's message for UNKNOWN_SERVER_ERROR.
UNEXPECTED: Final = "The server experienced an unexpected error when processing the request."

#: The maximum length of a name in a message (that of a topic name), and of the whole message.
_NAME_LETTERS_MAX: Final = 249
_TEXT_LETTERS_MAX: Final = 2_000
#: The number of elements whose messages are shortened in one slice.
_SHORTENED_PER_STEP: Final = 50
_CUT: Final = "\N{HORIZONTAL ELLIPSIS}"
#: A pattern, because a message of 32 kB can have 16,000 words: one after the other would take 20 ms.
_LONG_NAME: Final = re.compile(rf"([^ ]{{{_NAME_LETTERS_MAX}}})[^ ]+")
_TEXTS: Final = frozenset({"error_message", "batch_index_error_message"})
_CODES: Final = ("error_code", "partition_error_code")


class ErrorRows(NamedTuple):
    """An array of the response with one element for each element of an array of the request, which can be nested
    ("dirs.topics"). The fields that identify the row are copied. If the request's element is not a struct, or names the
    row differently, `key` is the field that receives the element or its `name`.

    A handler module names the arrays of its API in `ERROR_ROWS`; those that the version lacks are skipped.
    """

    to: str
    of: str
    key: str = ""
    inner: ErrorRows | None = None


#: Arrays of partitions by topic, as most APIs have them.
PARTITIONS: Final = ErrorRows("partitions", "partitions")
TOPICS: Final = ErrorRows("topics", "topics", inner=PARTITIONS)
#: Partitions that the request names by their indexes only.
INDEXES: Final = ErrorRows("partitions", "partition_indexes", key="partition_index")

#: The fields that identify a row.
_NAMES: Final = frozenset(
    {
        "name",
        "topic",
        "topic_id",
        "partition",
        "partition_index",
        "group_id",
        "producer_id",
        "transactional_id",
        "resource_type",
        "resource_name",
        "entity_type",
        "entity_name",
    }
)


def error_response(request: Message, version: int, code: ErrorCode, text: str) -> Message | None:
    """Returns the response of this version with `code` for everything in `request`; None if it has no field for an
    error."""
    key = request.API_KEY
    assert key is not None, f"{request.NAME} is not a request"
    module = handler_module(handler_name(key))
    if hasattr(module, "handle_raw"):
        return None
    answer = response_class(key)()
    error = _Error(type(answer), version, code, text)
    is_set = error.set_error(answer)
    rows: ErrorRows
    for rows in getattr(module, "ERROR_ROWS", ()):
        is_set |= error.add_rows(answer, rows, request)
    return answer if is_set else None


def error_rows(request: Message, version: int, code: ErrorCode, text: str | None, rows: ErrorRows) -> list[Any]:
    """Returns the rows of a response that have this error for each element of an array of the request."""
    key = request.API_KEY
    assert key is not None, f"{request.NAME} is not a request"
    answer = response_class(key)()
    _Error(type(answer), version, code, text).add_rows(answer, rows, request)
    found: list[Any] = getattr(answer, rows.to)
    return found


class _Error(NamedTuple):
    """An error with the type of the response that reports it."""

    message: type[Message]
    version: int
    code: ErrorCode
    text: str | None

    def set_error(self, struct: Struct) -> bool:
        """Sets code and message if `struct` has fields for them. Returns whether it had one for the code."""
        is_set = False
        for field in struct.FIELDS:
            if field.is_in(self.version):
                if field.attribute in _CODES:
                    setattr(struct, field.attribute, self.code)
                    is_set = True
                elif field.attribute == "error_message":
                    setattr(struct, field.attribute, self.text)
        return is_set

    def add_rows(self, answer: Struct, rows: ErrorRows, request: Struct) -> bool:
        field = next((field for field in answer.FIELDS if field.attribute == rows.to), None)
        if field is None or not field.is_in(self.version):
            return False
        is_set = False
        row_class: type[Struct] = getattr(self.message, field.element_type)
        made: list[Struct] = getattr(answer, rows.to)
        for element in _elements(request, rows.of):
            row = row_class()
            self._identify(row, element, rows.key)
            is_set |= self.set_error(row)
            if rows.inner is not None:
                is_set |= self.add_rows(row, rows.inner, element)
            made.append(row)
        return is_set

    def _identify(self, row: Struct, element: Any, key: str) -> None:
        if key:
            setattr(row, key, getattr(element, "name", element))
            return
        known = {field.attribute for field in element.FIELDS}
        for field in row.FIELDS:
            if field.attribute in known & _NAMES and field.is_in(self.version):
                value = getattr(element, field.attribute)
                is_missing = value is None and not field.is_nullable_in(self.version)
                setattr(row, field.attribute, "" if is_missing else value)


def _elements(request: Any, path: str) -> Iterable[Any]:
    first, _, rest = path.partition(".")
    elements = getattr(request, first) or ()
    return (inner for element in elements for inner in _elements(element, rest)) if rest else elements


# -- errors that a response cannot hold


def encode_response(response: Message, version: int, out: bytearray) -> None:
    """Appends the encoded response. Error messages that are too long are shortened: they contain names that a client
    chose, and a name can be as long as a string can be. A top-level error that an older version has no field for is
    left out, as in Kafka: the rows report it. Raises EncodeError for anything else."""
    start = len(out)
    try:
        codec.encode_into(response, version, out)
    except EncodeError:
        is_less = _drop_unsupported(response, version)
        if not whole(_shorten(response)) and not is_less:
            raise
        del out[start:]
        codec.encode_into(response, version, out)


def encode_response_in_steps(response: Message, version: int, out: bytearray) -> Generator[int, None, None]:
    """Encodes a long response like `encode_response`, a few elements per step."""
    start = len(out)
    try:
        yield from codec.encode_in_steps(response, version, out)
    except EncodeError:
        is_less = _drop_unsupported(response, version)
        if not (yield from _shorten(response)) and not is_less:
            raise
        del out[start:]
        yield from codec.encode_in_steps(response, version, out)


def _drop_unsupported(response: Message, version: int) -> bool:
    """Resets top-level errors that the version has no field for. Returns whether there was one."""
    is_less = False
    for field in response.FIELDS:
        if field.attribute in ("error_code", "error_message") and not field.is_in(version):
            is_less |= getattr(response, field.attribute) != field.default
            setattr(response, field.attribute, field.default)
    return is_less


def _shorten(struct: Struct) -> Generator[int, None, bool]:
    """Shortens long error messages, a few elements per step. Returns whether there was one."""
    is_shorter = False
    for field in struct.FIELDS:
        value = getattr(struct, field.attribute)
        if field.attribute in _TEXTS:
            text = shortened(value) if isinstance(value, str) else value
            is_shorter |= text != value
            setattr(struct, field.attribute, text)
        elif isinstance(value, list):
            for place, each in enumerate(value):
                if place % _SHORTENED_PER_STEP == _SHORTENED_PER_STEP - 1:
                    yield SLICE_UNITS
                if isinstance(each, Struct):
                    is_shorter |= yield from _shorten(each)
        elif isinstance(value, Struct):
            is_shorter |= yield from _shorten(value)
    return is_shorter


def shortened(text: str) -> str:
    """Returns a message with names of at most 249 characters, and of limited length in total."""
    text = _LONG_NAME.sub(rf"\1{_CUT}", text)
    return text if len(text) <= _TEXT_LETTERS_MAX else text[:_TEXT_LETTERS_MAX] + _CUT
