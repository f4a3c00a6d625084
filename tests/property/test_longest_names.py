"""Every answer of a broker can be encoded, however long the names in the request are (findings 6 and 17).

Requests of every API and version are built with the longest strings that their version can carry, and with numbers that
lead into their error paths. Each is answered, or its connection ends because of its content, never because of an
internal error. No other connection is affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_request_fuzz import BOUNDED, PAIRS, check_still_well, new_broker
from tests.support.wired import WiredBroker, WiredClient

from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.index import request_class

LONGEST = 32_767
#: The characters of names: an ASCII letter, one of three bytes, a letter and a space, and one that no topic may have.
LETTERS = ("n", "\u20ac", "n ", "/", "\n")
NUMBERS: dict[str, tuple[Any, ...]] = {
    "int8": (-128, -1, 0, 1, 2, 3, 4, 16, 127),
    "int16": (-32_768, -1, 0, 1, 32_767),
    "int32": (-(1 << 31), -2, -1, 0, 1, 7, 100, (1 << 31) - 1),
    "int64": (-(1 << 63), -2, -1, 0, 1, 7, (1 << 63) - 1),
    "uint16": (0, 9092, 65_535),
    "float64": (0.0, -1.0),
    "bool": (True, False),
}
SERVED_BY_CONTROLLER = [
    (key, version)
    for key, offer in CONTROLLER_APIS.items()
    for version in range(offer.version_min, offer.version_max + 1)
]
#: The whole takes some minutes of CPU.
COUNTS = [250, pytest.param(8_000, marks=[pytest.mark.full, pytest.mark.timeout(3_600)])]
#: The number of elements, more than a handler serves in one turn.
MANY, SHORT = 1_200, 250
UNKNOWN_TAGS = (((1_000, b""),), ((100, b"x" * 300), (1 << 31, b"y")), tuple((n, b"") for n in range(500, 520)))


class Maker:
    """Requests from what hypothesis draws."""

    def __init__(
        self, draw: st.DataObject, version: int, ids: Sequence[bytes] = (), *, is_extreme: bool = False
    ) -> None:
        """Creates the maker. `ids` are those of existing topics. Extreme messages have unknown tags, and many
        elements.
        """
        self._draw = draw
        self._version = version
        self._ids = (bytes(16), bytes(range(16)), *ids)
        self._is_extreme = self._may_be_long = is_extreme
        self._longest = LONGEST

    def name(self) -> str:
        letters = self._draw.draw(st.sampled_from(LETTERS))
        length = min(self._longest, self._draw.draw(st.sampled_from([LONGEST, LONGEST, LONGEST - 1, 20_000, 250, 1])))
        return (letters * length).encode()[:length].decode(errors="ignore")

    def struct(self, message: type[Message], cls: type[Struct]) -> Any:
        struct = cls()
        for field in cls.FIELDS:
            if not field.is_in(self._version):
                continue
            if field.is_array:
                is_long = self._may_be_long and self._draw.draw(st.integers(0, 4)) == 0
                if is_long:
                    # One array of a request, with names that let it fit into a frame.
                    self._may_be_long, self._longest = False, SHORT
                count = 1 if is_long else self._draw.draw(st.sampled_from([0, 1, 1, 2]))
                value: Any = [self._one(message, field.element_type) for _ in range(count)]
                if is_long:
                    value, self._longest = value * MANY, LONGEST
            elif field.is_nullable_in(self._version) and self._draw.draw(st.integers(0, 5)) == 0:
                value = None
            else:
                value = self._one(message, field.element_type)
            setattr(struct, field.attribute, value)
        is_flexible = message.FLEXIBLE is not None and self._version >= message.FLEXIBLE
        if self._is_extreme and is_flexible and self._draw.draw(st.integers(0, 4)) == 0:
            struct.unknown_tags = self._draw.draw(st.sampled_from(UNKNOWN_TAGS))  # type: ignore[attr-defined]
        return struct

    def _one(self, message: type[Message], kind: str) -> Any:
        if kind[0].isupper():
            return self.struct(message, getattr(message, kind))
        if kind == "string":
            known = self._draw.draw(st.sampled_from([None, None, None, "orders", "", "__consumer_offsets"]))
            return self.name() if known is None else known
        if kind in ("bytes", "records"):
            return self._draw.draw(st.sampled_from([b"", b"\0" * 61, b"x" * 100]))
        if kind == "uuid":
            return self._draw.draw(st.sampled_from(self._ids))
        return self._draw.draw(st.sampled_from(NUMBERS[kind]))


def call(wired: WiredBroker, client: WiredClient, data: st.DataObject, pair: tuple[int, int]) -> None:
    cls = request_class(pair[0])
    request = Maker(data, pair[1]).struct(cls, cls)
    codec.encode(request, pair[1])
    client.send(request, pair[1])
    wired.host.time.run_for(40_000)
    client.received()  # checks that the answers can be decoded
    client.core.closed()


@pytest.mark.parametrize("count", COUNTS)
def test_whatever_is_answered_to_the_longest_names_can_be_encoded(count: int) -> None:
    @given(pair=st.sampled_from(PAIRS), data=st.data())
    def run(pair: tuple[int, int], data: st.DataObject) -> None:
        wired = new_broker()
        call(wired, wired.connect(), data, pair)
        check_still_well(wired)

    settings(BOUNDED, max_examples=count)(run)()


@pytest.mark.parametrize("count", COUNTS)
def test_on_the_controllers_listener_too(count: int) -> None:
    @given(pair=st.sampled_from(SERVED_BY_CONTROLLER), data=st.data())
    def run(pair: tuple[int, int], data: st.DataObject) -> None:
        wired = new_broker()
        client = wired.connect()
        client.core = wired.broker.dispatcher("CONTROLLER").connect(client.link, "/127.0.0.1", "CONTROLLER")
        call(wired, client, data, pair)
        assert wired.closes.errors == []
        assert [error for _, error in wired.host.faults.reported if error is not None] == []

    settings(BOUNDED, max_examples=count)(run)()


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_with_the_longest_name_is_refused_in_words_that_fit(version: int) -> None:
    """Finding 6. Through an envelope to the controller and back."""
    wired = new_broker()
    topic = CreateTopicsRequest.CreatableTopic(name="n" * LONGEST, num_partitions=1, replication_factor=1)
    answer = wired.connect().call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), version, CreateTopicsResponse)
    (row,) = answer.topics
    assert (row.name, row.error_code) == ("n" * LONGEST, 17)
    assert row.error_message is not None
    assert "n" * 248 + "\u2026" in row.error_message
    assert len(row.error_message) < 500
    check_still_well(wired)


def test_version_0_of_an_election_says_errors_in_its_rows() -> None:
    """Finding 17."""
    assert BROKER_APIS[43].version_min == 0
    wired = new_broker()
    request = ElectLeadersRequest(
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0, 9])], timeout_ms=5_000
    )
    answer = wired.connect().call(request, 0, ElectLeadersResponse)
    assert [row.error_code for row in answer.replica_election_results[0].partition_result] == [84, 3]
    wired.broker.quorum.raft.stop()
    answer = wired.connect().call(request, 0, ElectLeadersResponse, within_ms=40_000)
    assert [row.error_code for row in answer.replica_election_results[0].partition_result] == [7, 7]
    assert wired.closes.errors == []
