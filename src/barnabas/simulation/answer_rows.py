"""The promise of complete answers: an answer has one row for each row of its request, and no others.

Requests and answers are taken from the network and decoded by their schemas. An answer is also encoded again: it must
give the same bytes, so nothing is left over, and no field is in the wrong place. Frequent requests are sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.index import API_NAMES, FLEXIBLE_SINCE, request_class, response_class
from barnabas.simulation.exchanges import Exchange, Exchanges, Listener
from barnabas.simulation.history import Violation
from barnabas.simulation.request_frames import Request, answer_body, body_of
from barnabas.simulation.simulated_cluster import Cluster

#: A row by the keys of the structs around it, from the outside in.
Row = tuple[object, ...]


class _Rows(NamedTuple):
    """A pair of nested arrays: "topics:name partitions:partition_index". Behind the colon is the field that identifies
    an element; without one it is the element itself. `by_id`: the versions that name topics by id, from this one on.
    """

    asked: str
    answered: str
    by_id: int = 1 << 15


_SAME: Final = "topics:name partitions:partition_index"
_INDEXES: Final = "topics:name partition_indexes"
_RESOURCES: Final = "resources:resource_type,resource_name"

#: API key -> the rows of its requests and answers. Arrays that a version lacks are empty.
ROWS: Final[dict[int, tuple[_Rows, ...]]] = {
    0: (_Rows("topic_data:name partition_data:index", "responses:name partition_responses:index", 13),),
    2: (_Rows(_SAME, _SAME),),
    3: (_Rows("topics:name", "topics:name"),),
    8: (_Rows(_SAME, _SAME, 10),),
    9: (
        _Rows(_INDEXES, _SAME),
        _Rows("groups:group_id topics:name partition_indexes", f"groups:group_id {_SAME}", 10),
    ),
    10: (_Rows("coordinator_keys", "coordinators:key"),),
    13: (_Rows("members:member_id,group_instance_id", "members:member_id,group_instance_id"),),
    15: (_Rows("groups", "groups:group_id"),),
    19: (_Rows("topics:name", "topics:name"),),
    20: (_Rows("topic_names", "responses:name"),),
    21: (_Rows(_SAME, _SAME),),
    23: (_Rows("topics:topic partitions:partition", "topics:topic partitions:partition"),),
    24: (
        _Rows(
            "v3_and_below_topics:name partitions",
            "results_by_topic_v3_and_below:name results_by_partition:partition_index",
        ),
        _Rows(
            "transactions:transactional_id topics:name partitions",
            "results_by_transaction:transactional_id topic_results:name results_by_partition:partition_index",
        ),
    ),
    27: (_Rows(f"markers:producer_id {_INDEXES}", f"markers:producer_id {_SAME}"),),
    28: (_Rows(_SAME, _SAME),),
    32: (_Rows(_RESOURCES, "results:resource_type,resource_name"),),
    33: (_Rows(_RESOURCES, "responses:resource_type,resource_name"),),
    34: (_Rows("dirs: topics:name partitions", "results:topic_name partitions:partition_index"),),
    37: (_Rows("topics:name", "results:name"),),
    42: (_Rows("groups_names", "results:group_id"),),
    43: (_Rows("topic_partitions:topic partitions", "replica_election_results:topic partition_result:partition_id"),),
    44: (_Rows(_RESOURCES, "responses:resource_type,resource_name"),),
    45: (_Rows(_SAME, "responses:name partitions:partition_index"),),
    47: (_Rows(_SAME, _SAME),),
    56: (_Rows(_SAME.replace("name", "topic_name"), _SAME.replace("name", "topic_name"), 2),),
    61: (_Rows(_INDEXES, _SAME),),
    65: (_Rows("transactional_ids", "transaction_states:transactional_id"),),
    69: (_Rows("group_ids", "groups:group_id"),),
}
#: APIs whose answers do not have their own header, or are not messages.
_LEFT_OUT: Final = frozenset({17, 18, 36})
#: The only row of a part of an answer that is refused as a whole.
_REFUSED: Final = object()
#: Produce, Fetch, Metadata, OffsetCommit, Heartbeat, BrokerHeartbeat and ConsumerGroupHeartbeat: one of so many of each
#: version.
_FREQUENT: Final = frozenset({0, 1, 3, 8, 12, 63, 68})
_SAMPLED: Final = 16


class CompleteAnswers(Listener):
    """Compares the rows of each answer with those of its request."""

    api_keys = tuple(api_key for api_key in API_NAMES if api_key not in _LEFT_OUT)

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        #: The number of answers by API key and version.
        self._seen: Counter[tuple[int, int]] = Counter()
        #: The number of answers that were compared.
        self.compared = 0
        exchanges.listen(self)

    def check(self, cluster: Cluster) -> None:
        if self._exchanges.problems:
            raise self._exchanges.problems[0]

    def on_answer(self, exchange: Exchange, request: Request, frame: bytes) -> None:
        if not exchange.is_of_node:
            return
        api_key = request.api_key
        self._seen[api_key, request.version] += 1
        if api_key in _FREQUENT and self._seen[api_key, request.version] % _SAMPLED != 1:
            return
        self.compared += 1
        problem = _wrong_answer(request, frame)
        if problem:
            raise Violation(
                f"an incomplete answer: {exchange.node} answers {API_NAMES[api_key]} version {request.version} of "
                f"{exchange.client}: {problem}"
            )


def _wrong_answer(request: Request, frame: bytes) -> str:
    """Returns what is wrong with an answer, or ""."""
    api_key, version = request.api_key, request.version
    flexible_from = FLEXIBLE_SINCE[api_key]
    body = body_of(request, flexible_from=flexible_from)
    asked, _ = codec.decode(request_class(api_key), version, request.frame, body.at)
    begin = answer_body(request, frame, flexible_from=flexible_from).at
    said, end = codec.decode(response_class(api_key), version, frame, begin)
    if end != len(frame):
        return f"{len(frame) - end} bytes are left over"
    if bytes(codec.encode(said, version)) != frame[begin:]:
        return f"its bytes are not those of {said}"
    if getattr(said, "error_code", ErrorCode.NONE):
        return _content_of_a_refusal(said)
    for rows in ROWS.get(api_key, ()):
        problem = _wrong_rows(rows, asked, said, version)
        if problem:
            return problem
    return ""


#: The fields that a refusal as a whole has, besides rows with the error; and the values of all others.
_OF_REFUSALS: Final = frozenset({"error_code", "error_message", "throttle_time_ms"})
_EMPTY: Final = (None, "", 0, -1, False, b"", bytes(16))
#: APIs that explain a refusal with other fields, such as epochs and leaders.
_EXPLAINING: Final = frozenset({11, 14, 52, 53, 54, 55, 58, 59, 63, 68, 71, 78})


def _content_of_a_refusal(said: Message) -> str:
    """Returns the fields that have a value although the request was refused as a whole, or ""."""
    if said.API_KEY in _EXPLAINING:
        return ""
    excess = {}
    for field in said.FIELDS:
        value = getattr(said, field.attribute)
        if not field.is_array and field.attribute not in _OF_REFUSALS and value not in (*_EMPTY, field.default):
            excess[field.attribute] = value
    return f"it is refused, and has {excess}" if excess else ""


def _wrong_rows(rows: _Rows, asked: Struct, said: Struct, version: int) -> str:
    is_by_id = version >= rows.by_id
    wanted = Counter(_rows(asked, rows.asked.split(), is_by_id=is_by_id))
    if not wanted or any(None in row for row in wanted):
        return ""  # Everything or nothing was asked for, or some topics by their ids.
    found = Counter(_rows(said, rows.answered.split(), is_by_id=is_by_id))
    # A part that is refused as a whole has no rows.
    refused = {row for row in found if row and row[-1] is _REFUSED}
    wanted = Counter({row: count for row, count in wanted.items() if (*row[:1], _REFUSED) not in refused})
    found = Counter({row: count for row, count in found.items() if row not in refused})
    missing, excess = set(wanted) - set(found), set(found) - set(wanted)
    if missing or excess:
        return f"rows {sorted(map(str, missing))} are missing, nobody asked for {sorted(map(str, excess))}"
    twice = [row for row, count in found.items() if count > wanted[row]]
    return f"rows {twice} are there twice" if twice else ""


def _rows(struct: Any, path: list[str], *, is_by_id: bool) -> Iterator[Row]:
    array, _, key = path[0].partition(":")
    for element in getattr(struct, array) or ():
        own: Row = ()
        if ":" not in path[0]:
            own = (element,)
        elif key:
            names = ["topic_id" if is_by_id and name in ("name", "topic_name") else name for name in key.split(",")]
            own = tuple(getattr(element, name) for name in names)
        inner = path[1:]
        if not inner:
            yield own
        elif getattr(element, "error_code", ErrorCode.NONE):
            yield (*own, _REFUSED)
        else:
            yield from (own + more for more in _rows(element, inner, is_by_id=is_by_id))
