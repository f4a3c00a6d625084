"""The division of a request of many rows into pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.handlers.create_topics import PIECES as CREATIONS
from barnabas.broker.handlers.delete_topics import PIECES as DELETIONS
from barnabas.broker.requests.pieces import Pieces, serve
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest


def pieces_of(request: Message, shape: Pieces) -> list[list[str]]:
    """Returns the names in each piece."""
    found: list[list[str]] = []

    def handle(piece: Message, reply: Callable[[Message], None]) -> None:
        found.append([row.name for row in getattr(piece, shape.rows)])

    for _ in serve(request, shape, 1, handle):
        pass
    return found


def deletion(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names])


def test_a_piece_has_as_many_rows_as_one_turn_can_serve() -> None:
    names = [f"t{number}" for number in range(120)]
    assert pieces_of(deletion(*names), DELETIONS) == [names[:50], names[50:100], names[100:]]


def test_rows_with_the_same_key_stay_together() -> None:
    names = [f"t{number}" for number in range(60)]
    found = pieces_of(deletion(*names, "t3", "t59"), DELETIONS)
    assert sorted(name for piece in found for name in piece) == sorted([*names, "t3", "t59"])
    assert [sum("t3" in piece for piece in found), sum("t59" in piece for piece in found)] == [1, 1]


@pytest.mark.parametrize(
    ("partitions", "sizes"), [([1] * 120, [50, 50, 20]), ([30, 30, 20, 50, 1], [1, 2, 1, 1]), ([200, 1], [1, 1])]
)
def test_a_topic_weighs_as_much_as_its_partitions(partitions: list[int], sizes: list[int]) -> None:
    rows = [
        CreateTopicsRequest.CreatableTopic(name=f"t{place}", num_partitions=count, replication_factor=1)
        for place, count in enumerate(partitions)
    ]
    assert [len(piece) for piece in pieces_of(CreateTopicsRequest(topics=rows), CREATIONS)] == sizes
