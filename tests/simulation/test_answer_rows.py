"""Complete answers: each row of a request is answered once, and nothing else is in an answer."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.broker.handlers import list_offsets
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.protocol.messages.index import API_NAMES, FLEXIBLE_SINCE, request_class, response_class
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.simulation.answer_rows import ROWS, CompleteAnswers
from barnabas.simulation.exchanges import Exchange, Exchanges
from barnabas.simulation.history import Violation
from barnabas.simulation.promises import promises
from barnabas.simulation.request_frames import Request
from barnabas.simulation.scenario import Run, Settings
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import Process, World

_LIST_OFFSETS, _ALLOCATE = 2, 67


def _frame(head: bytes, body: Message, version: int) -> bytes:
    data = head + bytes(codec.encode(body, version))
    return struct.pack(">i", len(data)) + data


def _answer(asked: Message, said: Message, version: int, more: bytes = b"") -> None:
    """Passes a request and its answer to the check."""
    cluster = Cluster(World(1), Layout(1))
    owner = Exchanges(cluster)
    check = CompleteAnswers(owner)
    exchange = Exchange(owner, ("client", "broker1"), Process(cluster.world, "broker1"), lambda: 0, is_of_node=True)
    api_key = asked.API_KEY
    assert api_key is not None
    tags = b"\x00" if version >= FLEXIBLE_SINCE[api_key] else b""
    frame = _frame(struct.pack(">hhih", api_key, version, 7, -1) + tags, asked, version)
    answer = _frame(struct.pack(">i", 7) + tags, said, version) + more
    check.on_answer(exchange, Request(0, api_key, version, 7, frame), answer)
    assert check.compared == 1


def _asked(*indexes: int) -> ListOffsetsRequest:
    rows = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index) for index in indexes]
    return ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=rows)])


def _said(*indexes: int, name: str = "orders") -> ListOffsetsResponse:
    rows = [ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=index) for index in indexes]
    return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=rows)])


@pytest.mark.parametrize("version", [1, 5, 6, 8])
def test_an_answer_with_all_rows_is_complete_in_any_order(version: int) -> None:
    _answer(_asked(0, 1, 2), _said(2, 0, 1), version)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (_said(0, 1), "rows .*orders.*2.* are missing"),
        (_said(0, 1, 2, 3), "nobody asked for .*3"),
        (_said(0, 1, 2, name="clicks"), "nobody asked for .*clicks"),
        (_said(0, 1, 2, 2), "are there twice"),
    ],
)
def test_rows_that_are_missing_or_too_many_are_found(said: ListOffsetsResponse, problem: str) -> None:
    with pytest.raises(Violation, match=f"an incomplete answer: broker1 answers ListOffsets version 7.*{problem}"):
        _answer(_asked(0, 1, 2), said, 7)


def test_bytes_behind_an_answer_are_found() -> None:
    with pytest.raises(Violation, match="1 bytes are left over"):
        _answer(_asked(0), _said(0), 7, b"\x00")


def test_a_refusal_has_no_content() -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
    _answer(request, AllocateProducerIdsResponse(error_code=41), 0)
    with pytest.raises(Violation, match=r"it is refused, and has .*producer_id_start.*1000"):
        _answer(request, AllocateProducerIdsResponse(error_code=41, producer_id_start=1000), 0)


def test_every_row_of_the_table_is_in_the_messages() -> None:
    for api_key, pairs in ROWS.items():
        for rows in pairs:
            for message, path in ((request_class(api_key), rows.asked), (response_class(api_key), rows.answered)):
                struct_class: Any = message
                for part in path.split():
                    array, _, keys = part.partition(":")
                    field = next((each for each in struct_class.FIELDS if each.attribute == array), None)
                    assert field is not None, (API_NAMES[api_key], part)
                    if field.is_struct:
                        struct_class = getattr(message, field.element_type)
                        known = {each.attribute for each in struct_class.FIELDS}
                        assert not [key for key in keys.split(",") if key and key not in known], (api_key, part)


def test_a_run_finds_a_handler_that_answers_a_row_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = list_offsets.handle

    def twice(context: Any, request: Any, services: Any) -> Any:
        request.topics *= 2
        return real(context, request, services)

    monkeypatch.setattr(list_offsets, "handle", twice)
    run = Run(Settings(1, Layout(1), 1, schedule=(), operations=()), [])
    run.watch.use(promises(run.cluster, run.decided, lambda: run.work.acked))
    problems = run.execute().problems
    assert problems
    assert problems[0].startswith("an incomplete answer: broker1 answers ListOffsets")
