"""Parts of a broker that handle requests of any API, each against a plain computation: responses with one error for
everything, requests in pieces, the search for an error in a response, and the throttling of one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from tests.support.broker_parts import Connection

from barnabas.broker.handlers.envelope import has_not_controller_error
from barnabas.broker.requests import pieces
from barnabas.broker.requests.error_responses import ErrorRows, encode_response, error_response
from barnabas.broker.requests.handler_modules import handler_module
from barnabas.broker.throttling.request_throttle import RequestThrottle
from barnabas.common.errors import ErrorCode
from barnabas.common.portions import whole
from barnabas.controller.requests.topics import MAX_PARTITIONS_PER_REQUEST
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, handler_name
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.index import request_class, response_class
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost

_APIS: Final = sorted({**BROKER_APIS, **CONTROLLER_APIS})
_OFFERS: Final = {**CONTROLLER_APIS, **BROKER_APIS}
_IDENTITIES: Final = (
    *("name", "topic", "topic_id", "partition", "partition_index", "group_id", "producer_id", "transactional_id"),
    *("resource_type", "resource_name", "entity_type", "entity_name"),
)
#: The rows that may be read in one step.
_ROWS_PER_STEP: Final = 200


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"requests: {what} is {found!r}, it should be {expected!r}")


def random_struct(random: Random, message: type[Message], cls: type[Struct], version: int, rows: int = 3) -> Any:
    """Returns a struct with random values for the fields of a version."""
    struct = cls()
    for field in cls.FIELDS:
        if not field.is_in(version) or field.is_tagged_in(version):
            continue
        if field.is_nullable_in(version) and random.random() < 0.3:
            setattr(struct, field.attribute, None)
            continue
        made = [_random_value(random, message, field, version, rows) for _ in range(random.randint(0, rows))]
        value = made if field.is_array else _random_value(random, message, field, version, rows)
        setattr(struct, field.attribute, value)
    return struct


def _random_value(random: Random, message: type[Message], field: Any, version: int, rows: int) -> Any:
    kind = field.element_type
    if field.is_struct:
        return random_struct(random, message, getattr(message, kind), version, min(rows, 3))
    if kind == "string":
        return random.choice(("a", "b", f"c{random.randrange(100)}", "n" * random.choice((249, 250, 3_000))))
    if kind in ("bytes", "records"):
        return random.randbytes(random.randrange(3))
    if kind == "uuid":
        return random.randbytes(16)
    if kind == "bool":
        return random.random() < 0.5
    return random.random() if kind == "float64" else random.randrange(100)


# -- one error for everything


def explore_errors(random: Random) -> None:
    for key in random.sample(_APIS, 12):
        offer = _OFFERS[key]
        version = random.randint(offer.version_min, offer.version_max)
        cls = request_class(key)
        request = random_struct(random, cls, cls, version)
        code = random.choice((ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER))
        text = "x" * random.choice((3, 300, 40_000))
        answer = error_response(request, version, code, text)
        module = handler_module(handler_name(key))
        if answer is None:
            continue
        made: dict[str, list[ErrorRows]] = {}
        for rows in getattr(module, "ERROR_ROWS", ()):
            made.setdefault(rows.to, []).append(rows)
        for same in made.values():
            _compare_rows(type(answer), answer, request, version, same, code)
        for field in answer.FIELDS:
            if field.attribute == "error_code" and field.is_in(version):
                check(f"the error of {cls.__name__} {version}", getattr(answer, field.attribute), code)
        out = bytearray(b"head")
        encode_response(answer, version, out)
        _, end = codec.decode(type(answer), version, bytes(out), 4)
        check(f"the end of the encoded response to {cls.__name__} {version}", (end, out[:4]), (len(out), b"head"))


def _compare_rows(
    message: type[Message], answer: Struct, request: Any, version: int, same: list[ErrorRows], code: ErrorCode
) -> None:
    """Compares the rows of one array of a response with the elements of the request."""
    field = next((field for field in answer.FIELDS if field.attribute == same[0].to), None)
    found = getattr(answer, same[0].to)
    if field is None or not field.is_in(version):
        return
    asked: list[tuple[ErrorRows, Any]] = []
    for rows in same:
        elements = [request]
        for name in rows.of.split("."):
            elements = [inner for element in elements for inner in getattr(element, name) or ()]
        asked += ((rows, element) for element in elements)
    check(f"the number of rows of {message.__name__} {version}", len(found), len(asked))
    for row, (rows, element) in zip(found, asked, strict=True):
        fields = {each.attribute: each for each in row.FIELDS if each.is_in(version)}
        if rows.key:
            identity = element if not isinstance(element, Struct) else element.name  # type: ignore[attr-defined]
            check(f"the key of a row of {message.__name__}", getattr(row, rows.key), identity)
        for name in () if rows.key else _IDENTITIES:
            if name in fields and any(each.attribute == name for each in element.FIELDS):
                wanted = getattr(element, name)
                if wanted is None and not fields[name].is_nullable_in(version):
                    wanted = ""
                check(f"{name} in {message.__name__} {version}", getattr(row, name), wanted)
        for name in ("error_code", "partition_error_code"):
            if name in fields:
                check(f"the error of a row of {message.__name__}", getattr(row, name), code)
        if rows.inner is not None:
            _compare_rows(message, row, element, version, [rows.inner], code)


# -- requests in pieces


class CountedRows(list[Any]):
    """Rows that count how many of them are read."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        for row in super().__iter__():
            self.read += 1
            yield row


def explore_pieces(random: Random) -> None:
    names = [key for key in sorted(BROKER_APIS) if hasattr(handler_module(handler_name(key)), "PIECES")]
    for key in random.sample(names, 5):
        shape: pieces.Pieces = handler_module(handler_name(key)).PIECES
        PieceWorld(random, key, shape._replace(at_once=random.choice((1, 2, 5, 20)))).run()


class PieceWorld:
    """A request that is served in pieces, which are answered in any order."""

    def __init__(self, random: Random, key: int, shape: pieces.Pieces) -> None:
        self._random, self._shape = random, shape
        cls = request_class(key)
        field = next(field for field in cls.FIELDS if field.attribute == shape.rows)
        version = _OFFERS[key].version_max
        if not field.is_in(version):
            version = field.until
        self._name = f"the pieces of {cls.__name__}"
        self._request = random_struct(random, cls, cls, version, 1)
        count = random.choice((0, 1, 3, 30, 30, 250))
        rows = [_random_value(random, cls, field, version, 4) for _ in range(count)]
        key_field = "" if not field.is_struct else shape.key
        if random.random() < 0.6:  # All rows differ.
            for place, row in enumerate(rows):
                if not field.is_struct:
                    rows[place] = f"r{place}"
                elif key_field:
                    setattr(row, key_field, f"r{place}")
        if shape.weight_of is pieces.new_partitions:
            for row in rows:
                row.num_partitions = random.choice((-1, 1, 1, 2, 9, 9_000))
        if shape.inner:
            for row in rows:
                elements = getattr(row, shape.inner)
                if elements:
                    setattr(row, shape.inner, elements * random.choice((1, 1, 4, 9)))
        self._rows = CountedRows(rows)
        setattr(self._request, shape.rows, self._rows)
        self._default = random.choice((1, 3))
        self._answers: list[tuple[Callable[[Any], None], Any]] = []
        self._pieces: list[list[Any]] = []

    def run(self) -> None:
        shape, random = self._shape, self._random
        steps = pieces.serve(self._request, shape, self._default, self._handle)
        while True:
            self._rows.read = 0
            try:
                next(steps)
            except StopIteration as end:
                responses: pieces.PieceResponses = end.value
                break
            check(f"{self._name}: whether a step reads few rows", self._rows.read <= _ROWS_PER_STEP, True)
        self._compare()
        if not self._pieces:
            return
        complete: list[bool] = []
        at = random.randint(0, len(self._answers))
        random.shuffle(self._answers)
        for place, (reply, response) in enumerate(self._answers):
            if place == at:
                responses.when_complete(lambda: complete.append(True))
                check(f"{self._name}: whether it is complete too early", complete, [])
            reply(response)
        if at == len(self._answers):
            responses.when_complete(lambda: complete.append(True))
        check(f"{self._name}: how often it is complete", complete, [True])
        self._compare_joined(whole(responses.joined()))

    def _handle(self, piece: Any, reply: Callable[[Any], None]) -> None:
        shape, random = self._shape, self._random
        rows = getattr(piece, shape.rows)
        self._pieces.append(list(rows))
        answers = [self._answered(row) for row in rows]
        code = random.choice((0, 0, 0, 41))
        response = SimpleNamespace(
            throttle_time_ms=random.randrange(3),
            error_code=code,
            **{shape.answers: answers},
        )
        self._answers.append((reply, response))
        self._responses = getattr(self, "_responses", [])
        self._responses.append((response.throttle_time_ms, code))

    def _answered(self, row: Any) -> Any:
        shape = self._shape
        if not shape.inner:
            return SimpleNamespace(row=row)
        answer = SimpleNamespace(**{shape.inner_answers: list(getattr(row, shape.inner) or ())})
        if shape.answer_key:
            setattr(answer, shape.answer_key, getattr(row, shape.key))
        return answer

    def _key(self, row: Any) -> Any:
        if self._shape.key_of is not None:
            return self._shape.key_of(row)
        if not self._shape.key:
            return row
        return getattr(row, self._shape.key), getattr(row, "topic_id", None), getattr(row, "resource_type", None)

    def _weight(self, row: Any) -> int:
        return max(self._shape.weight_of(row, self._default), 1) if self._shape.weight_of is not None else 1

    def _elements(self, row: Any) -> list[Any]:
        return list(getattr(row, self._shape.inner) or ())

    def _compare(self) -> None:
        shape, rows = self._shape, list(self._rows)
        if shape.inner:
            self._compare_split(rows)
            return
        keys = [self._key(row) for row in rows]
        is_long = len(rows) > 1 and (
            len(rows) > shape.at_once or sum(self._raw_weight(row) for row in rows) > shape.at_once
        )
        check(f"{self._name}: whether it is long", pieces.is_long(self._request, shape, self._default), is_long)
        found = [row for piece in self._pieces for row in piece]
        if len(set(keys)) == len(keys):
            check(f"{self._name}: the rows", [self._key(row) for row in found], keys)
            self._compare_weights(rows)
            return
        most = 2 if shape.answers_once else len(rows)
        counts = {key: min(keys.count(key), most) for key in keys}
        for key, count in counts.items():
            in_each = [sum(self._key(row) == key for row in piece) for piece in self._pieces]
            check(f"{self._name}: how often {key} comes", sum(in_each), count)
            check(f"{self._name}: whether a duplicate of {key} is alone", count > 1 and 1 in in_each, False)

    def _raw_weight(self, row: Any) -> int:
        return 1 if self._shape.weight_of is None else self._shape.weight_of(row, self._default)

    def _compare_weights(self, rows: list[Any]) -> None:
        """Pieces are as long as they may be, and not longer."""
        shape, left = self._shape, MAX_PARTITIONS_PER_REQUEST
        expected: list[int] = []
        room = 0
        for row in rows:
            weight = self._weight(row)
            left -= weight
            if left < 0 and shape.weight_of is pieces.new_partitions and not row.assignments:
                weight = 1
            if not expected or weight > room:
                expected.append(0)
                room = shape.at_once
            expected[-1] += 1
            room -= weight
        check(f"{self._name}: the sizes", [len(piece) for piece in self._pieces], expected)

    def _compare_split(self, rows: list[Any]) -> None:
        total = sum(max(len(self._elements(row)), 1) for row in rows)
        sizes = [sum(max(len(self._elements(row)), 1) for row in piece) for piece in self._pieces]
        at_once = self._shape.at_once
        expected = [at_once] * (total // at_once) + ([total % at_once] if total % at_once else [])
        check(f"{self._name}: the sizes", sizes, expected)
        is_long = len(rows) > at_once or sum(len(self._elements(row)) for row in rows) > at_once
        check(f"{self._name}: whether it is long", pieces.is_long(self._request, self._shape, 1), is_long)
        given = [(self._key(row), each) for row in rows for each in self._elements(row) or [None]]
        served = [
            (self._key(row), each) for piece in self._pieces for row in piece for each in self._elements(row) or [None]
        ]
        check(f"{self._name}: the elements", served, given)

    def _compare_joined(self, joined: Any) -> None:
        shape = self._shape
        served = [row for piece in self._pieces for row in piece]
        codes = [code for _, code in self._responses if code]
        found = (joined.throttle_time_ms, joined.error_code)
        check(f"{self._name}: the top level", found, (max(time for time, _ in self._responses), (codes or [0])[0]))
        answers = getattr(joined, shape.answers)
        if not shape.inner:
            check(f"{self._name}: the joined rows", [answer.row for answer in answers], served)
            return
        elements = [each for answer in answers for each in getattr(answer, shape.inner_answers)]
        check(f"{self._name}: the joined elements", elements, [each for row in served for each in self._elements(row)])
        keys = [getattr(answer, shape.answer_key) for answer in answers] if shape.answer_key else []
        rows = list(self._rows)
        if shape.answer_key and len({getattr(row, shape.key) for row in rows}) == len(rows):
            check(f"{self._name}: the joined rows", keys, [getattr(row, shape.key) for row in rows])


# -- the search for an error in a response


def explore_searches(random: Random) -> None:
    for key in random.sample(_APIS, 6):
        cls = response_class(key)
        version = random.randint(_OFFERS[key].version_min, _OFFERS[key].version_max)
        response = random_struct(random, cls, cls, version)
        places = list(_error_places(response))
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if cls.NAME == "DescribeQuorumResponse" else ErrorCode.NOT_CONTROLLER
        for place in places:
            place.error_code = random.choice((0, 3))
        arrays = [
            field.attribute
            for field in cls.FIELDS
            if field.is_array and field.is_struct and getattr(response, field.attribute)
        ]
        if arrays and random.random() < 0.7:
            name = random.choice(arrays)
            rows = CountedRows(getattr(response, name) * random.choice((1, 30, 150)))
            setattr(response, name, rows)
            _compare_search(response, code, rows, False)
        else:
            _compare_search(response, code, CountedRows(), False)
        if places:
            random.choice(places).error_code = code
            _compare_search(response, code, CountedRows(), True)


def _compare_search(response: Any, code: ErrorCode, rows: CountedRows, expected: bool) -> None:
    steps = has_not_controller_error(response)
    while True:
        rows.read = 0
        try:
            next(steps)
        except StopIteration as end:
            check(f"whether {type(response).__name__} has error {code}", end.value, expected)
            break
        check("whether a step of a search reads few rows", rows.read <= _ROWS_PER_STEP, True)
    check("whether the last step of a search reads few rows", rows.read <= _ROWS_PER_STEP, True)


def _error_places(struct: Any) -> Iterator[Any]:
    if any(field.attribute == "error_code" for field in struct.FIELDS):
        yield struct
    for field in struct.FIELDS:
        value = getattr(struct, field.attribute)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from _error_places(each)


# -- the throttling of one request


class Quotas:
    """The quotas of a client: they note what is charged, and return random throttle times."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.produce, self.fetch = random.random() < 0.7, random.random() < 0.7
        self.measures_cpu = random.random() < 0.8
        self.calls: list[tuple[str, int]] = []
        self.times: list[int] = []

    def _note(self, what: str, amount: int) -> int:
        self.calls.append((what, amount))
        self.times.append(self._random.choice((0, 0, 7, 30, 200)))
        return self.times[-1]

    def produced(self, client: Any, size_bytes: int) -> int:
        return self._note("produced", size_bytes)

    def fetched(self, client: Any, size_bytes: int) -> int:
        return self._note("fetched", size_bytes)

    def forget_fetched(self, client: Any, size_bytes: int) -> None:
        self.calls.append(("forgotten", size_bytes))

    def used_cpu(self, client: Any, used_ns: int) -> int:
        return self._note("cpu", used_ns)

    def fetch_bytes_max(self, client: Any) -> int:
        return 77


def explore_throttle(random: Random) -> None:
    for _ in range(4):
        ThrottleWorld(random).run()


class ThrottleWorld:
    """A request that is served in turns, and a model of the CPU time that it must be charged for."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cpu_ns = random.randrange(1 << 40)
        host: Any = MemoryHost(seed=1)
        host.cpu_ns = lambda: self._cpu_ns
        self._quotas = Quotas(random)
        self._connection = Connection()
        self._is_exempt = random.random() < 0.2
        quotas: Any = self._quotas
        self._throttle = RequestThrottle(quotas, self._connection, "User:a", "app", host, is_exempt=self._is_exempt)
        self._is_measured = self._quotas.measures_cpu
        #: The CPU time of this request that is not charged.
        self._open_ns = 0
        self._time_ms = 0

    def run(self) -> None:
        for _ in range(20):
            used_ns = self._random.choice((0, 5, 1_000_000))
            self._cpu_ns += used_ns
            if self._is_measured:
                self._open_ns += used_ns
            self._quotas.calls.clear()
            self._quotas.times.clear()
            self._step(self._random.random())
            check("the throttle time", self._throttle.time_ms, self._time_ms)
            check("the longest fetch", self._throttle.fetch_bytes_max, 77 if self._quotas.fetch else 1 << 31)
        paused = [call for call in self._connection.calls if call[0] == "pause"]
        check("whether the connection is muted", bool(paused), self._time_ms > 0)

    def _respond(self) -> None:
        """Sends a response of any API, which has the throttle time if its version has a field for it."""
        random, key = self._random, self._random.choice(_APIS)
        cls = response_class(key)
        version = random.randint(_OFFERS[key].version_min, _OFFERS[key].version_max)
        response: Any = random_struct(random, cls, cls, version)
        given = codec.encode(response, version)
        has_field = any(field.attribute == "throttle_time_ms" and field.is_in(version) for field in cls.FIELDS)
        found: Any = self._throttle.with_throttle_time(response, version)
        check("the response that was given", codec.encode(response, version), given)
        self._time_ms = max(self._time_ms, getattr(response, "throttle_time_ms", 0))
        if has_field:
            shown = max(self._time_ms, *self._quotas.times, 0)
            check(f"the throttle time in {cls.__name__} {version}", found.throttle_time_ms, shown)
            found.throttle_time_ms = response.throttle_time_ms
        check(f"the rest of {cls.__name__} {version}", codec.encode(found, version), given)

    def _charged(self) -> list[tuple[str, int]]:
        if not self._is_measured or self._is_exempt:
            return []
        charged, self._open_ns = self._open_ns, 0
        return [("cpu", charged)]

    def _step(self, kind: float) -> None:
        random, quotas, throttle = self._random, self._quotas, self._throttle
        if kind < 0.2:
            begins = quotas.measures_cpu and not self._is_measured
            check("whether the time begins", throttle.enter(), begins)
            if begins:
                self._is_measured, self._open_ns = True, 0
            return
        if kind < 0.4:
            throttle.leave()
            expected = self._charged()
            self._is_measured = False
        elif kind < 0.55:
            throttle.produced(9)
            expected = [("produced", 9)] if quotas.produce else []
        elif kind < 0.75:
            expected = self._charged()
            is_late = throttle.fetched(8)
            cpu_ms = quotas.times[0] if expected else 0
            if quotas.fetch:
                expected.append(("fetched", 8))
                if cpu_ms and not quotas.times[-1]:
                    expected.append(("forgotten", 8))
            check("whether an empty response is sent", is_late, max(self._time_ms, *quotas.times, 0) > 0)
        elif kind < 0.87:
            expected = self._charged()
            more_ms = random.choice((0, 0, 50))
            found = throttle.answered(more_ms)
            self._time_ms = max(self._time_ms, more_ms)
            check("the time of the response", found, max(self._time_ms, *quotas.times, 0))
        else:
            expected = self._charged()
            self._respond()
        check("what is charged", quotas.calls, expected)
        self._time_ms = max(self._time_ms, *quotas.times, 0)
