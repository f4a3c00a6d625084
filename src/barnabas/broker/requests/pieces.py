"""Requests of many rows, served as several requests of few rows, whose responses are joined.

This is for APIs whose rows are independent: each partition, topic, group or resource has its own result. Each piece
goes through the API's handler as a request of its own, in a turn of its own; a piece that has to wait (for a commit,
for replicas) does not delay the next one. The controller also decides piece by piece: if it loses its leadership in
between, it has decided some pieces, and the others get NOT_CONTROLLER.

Rows with the same key stay together, because handlers refuse duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from copy import copy
from typing import Any, Final, NamedTuple

from barnabas.broker.requests.steps import SLICE_UNITS
from barnabas.controller.requests.topics import MAX_PARTITIONS_PER_REQUEST
from barnabas.protocol.message import Message


class Pieces(NamedTuple):
    """The division of a request: its rows, and those of its response. A handler module has it as `PIECES`."""

    #: The weight of rows that one turn can serve.
    at_once: int
    rows: str
    answers: str
    #: The array within a row whose elements are counted ("partitions"), and that of the response.
    inner: str = ""
    inner_answers: str = ""
    #: The field that identifies a row, in the request and in the response; "" if the row itself is the key.
    key: str = ""
    answer_key: str = ""
    #: Whether duplicates get one result.
    answers_once: bool = False
    #: The weight of a row; 1 if there is no function.
    weight_of: Callable[[Any, int], int] | None = None
    #: Returns the key of a row that no single field identifies.
    key_of: Callable[[Any], Hashable] | None = None


def new_partitions(topic: Any, by_default: int) -> int:
    """Returns the number of partitions that a topic to be created will have."""
    return len(topic.assignments) or (by_default if topic.num_partitions < 0 else topic.num_partitions)


def topics(at_once: int, *, key: str = "name", inner: str = "partitions") -> Pieces:
    """Returns the division of a request whose rows are topics with their partitions."""
    return Pieces(at_once, "topics", "topics", inner, "partitions", key, key)


_TOP_LEVEL_ERRORS: Final = ("error_code", "error_message")


def is_long(message: Message, shape: Pieces, default_partitions: int) -> bool:
    """Returns whether a request has more rows than one turn can serve. `default_partitions` is the number of partitions
    of a new topic that specifies none."""
    rows = getattr(message, shape.rows)
    if not rows or (len(rows) == 1 and not shape.inner):
        return False
    if len(rows) > shape.at_once:
        return True
    if shape.weight_of is not None:
        return sum(shape.weight_of(row, default_partitions) for row in rows) > shape.at_once
    return bool(shape.inner) and sum(len(getattr(row, shape.inner) or ()) for row in rows) > shape.at_once


def serve(
    message: Message,
    shape: Pieces,
    default_partitions: int,
    handle: Callable[[Message, Callable[[Message], None]], None],
) -> Generator[int, None, PieceResponses]:
    """Passes each piece of `message` to `handle`, with the function that takes its response, immediately or later.
    Returns the responses, which can still be incomplete."""
    answers = PieceResponses(shape)
    cut = _split_rows(message, shape) if shape.inner else _rows(message, shape, default_partitions)
    for rows in cut:
        if rows:
            handle(_with(message, shape.rows, rows), answers.expect())
            yield SLICE_UNITS
        else:
            yield 1
    return answers


#: Rows that are read between two steps.
_ROWS_PER_STEP: Final = 200


def _split_rows(message: Message, shape: Pieces) -> Iterator[list[Any]]:
    """Yields the rows for one turn each, splitting the elements of long rows. Yields an empty list now and then,
    because splitting takes time too."""
    piece: list[Any] = []
    room = shape.at_once
    for place, row in enumerate(getattr(message, shape.rows)):
        if place % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
            yield []
        elements = getattr(row, shape.inner) or ()
        begin = 0
        while begin == 0 or begin < len(elements):
            taken = elements[begin : begin + room]
            piece.append(row if len(taken) == len(elements) else _with(row, shape.inner, taken))
            begin += max(len(taken), 1)
            room -= max(len(taken), 1)
            if room <= 0:
                yield piece
                piece, room = [], shape.at_once
    if piece:
        yield piece


def _rows(message: Message, shape: Pieces, default_partitions: int) -> Iterator[list[Any]]:
    """Yields the rows for one turn each, keeping those with the same key together. Yields an empty list now and
    then."""
    piece: list[Any] = []
    room, budget = shape.at_once, MAX_PARTITIONS_PER_REQUEST
    for place, found in enumerate(_grouped_by_key(getattr(message, shape.rows), shape)):
        if found is None or place % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
            yield []
        if found is None:
            continue
        row, may_begin = found
        weight = 1
        if shape.weight_of is not None:
            weight = max(shape.weight_of(row, default_partitions), 1)
            budget -= weight
            if budget < 0 and shape.weight_of is new_partitions and not row.assignments:
                # The request is above its limit: the controller refuses this topic with its error for whole requests.
                row, weight = _with(row, "num_partitions", MAX_PARTITIONS_PER_REQUEST + 1), 1
        if room < weight and piece and may_begin:
            yield piece
            piece, room = [], shape.at_once
        piece.append(row)
        room -= weight
    if piece:
        yield piece


def _with(struct: Any, attribute: str, value: Any) -> Any:
    changed = copy(struct)
    setattr(changed, attribute, value)
    return changed


def _grouped_by_key(rows: list[Any], shape: Pieces) -> Iterator[tuple[Any, bool] | None]:
    """Yields each row with whether a piece can begin with it. Rows with the same key follow each other, and none of
    them is alone in a piece, so that its handler detects the duplicate. Yields None now and then, because comparing
    keys takes time too."""
    by_key: dict[Any, list[Any]] = {}
    for place, row in enumerate(rows):
        by_key.setdefault(_key(row, shape), []).append(row)
        if place % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
            yield None
    if len(by_key) == len(rows):
        yield from ((row, True) for row in rows)
        return
    for same in by_key.values():
        if shape.answers_once:
            del same[2:]
        for place, row in enumerate(same):
            yield row, place == 0 or (place % 2 == 0 and place < len(same) - 1)


def _key(row: Any, shape: Pieces) -> Hashable:
    if shape.key_of is not None:
        return shape.key_of(row)
    if not shape.key:
        key: Hashable = row
        return key
    return getattr(row, shape.key), getattr(row, "topic_id", None), getattr(row, "resource_type", None)


class PieceResponses:
    """The responses to the pieces of one request, in the order of the pieces."""

    def __init__(self, shape: Pieces) -> None:
        self._shape = shape
        self._responses: list[Message | None] = []
        self._missing = 0
        self._when_complete: Callable[[], None] | None = None

    def expect(self) -> Callable[[Message], None]:
        """Returns the function that takes the next piece's response."""
        place = len(self._responses)
        self._responses.append(None)
        self._missing += 1

        def answered(answer: Message) -> None:
            assert self._responses[place] is None, "a piece is answered once"
            self._responses[place] = answer
            self._missing -= 1
            if not self._missing and self._when_complete is not None:
                self._when_complete()

        return answered

    def when_complete(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when all responses have arrived, possibly now. All pieces must have been passed on
        before."""
        if self._missing:
            self._when_complete = callback
        else:
            callback()

    def joined(self) -> Generator[int, None, Message]:
        """Joins the responses. A top-level error of one piece becomes that of the whole."""
        shape = self._shape
        whole: Any = self._responses[0]
        assert whole is not None, "there is a first piece"
        rows = getattr(whole, shape.answers)
        for answer in self._responses[1:]:
            more: Any = answer
            for attribute in _TOP_LEVEL_ERRORS:
                if not getattr(whole, attribute, None) and getattr(more, attribute, None):
                    setattr(whole, attribute, getattr(more, attribute))
            if getattr(more, "throttle_time_ms", 0) > getattr(whole, "throttle_time_ms", 0):
                whole.throttle_time_ms = more.throttle_time_ms
            found = getattr(more, shape.answers)
            if shape.inner and rows and found and self._is_continued(rows[-1], found[0]):
                getattr(rows[-1], shape.inner_answers).extend(getattr(found[0], shape.inner_answers))
                found = found[1:]
            rows.extend(found)
            yield 1
        message: Message = whole
        return message

    def _is_continued(self, last: Any, first: Any) -> bool:
        key = self._shape.answer_key
        return bool(key) and getattr(last, key) == getattr(first, key)
