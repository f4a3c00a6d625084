"""ListOffsets with replica id -2: the end of this replica's log, whatever its role, committed or not."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.simulation.worlds.replicated import Replicated, list_offsets_request

EARLIEST, LATEST = -2, -1
CONSUMER, DEBUGGER = -1, -2


def requested(world: Replicated, at: int, replica_id: int, timestamp: int = LATEST, epoch: int = -1) -> tuple[int, int]:
    request = list_offsets_request("orders", 0, timestamp, epoch=epoch)
    request.replica_id = replica_id
    row = world.client.call(f"broker{at}", request, ListOffsetsResponse).topics[0].partitions[0]
    return row.error_code, row.offset


def test_a_follower_returns_its_own_log_end() -> None:
    world = Replicated()
    world.create_topic("orders", [[1, 2]])
    world.await_isr((1, 2))
    world.produce(b"a", b"b", to=1)
    world.await_equal(numbers=(1, 2))
    assert requested(world, 2, CONSUMER) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert requested(world, 2, DEBUGGER) == (0, 2)
    assert requested(world, 2, DEBUGGER, EARLIEST) == (0, 0)
    assert requested(world, 2, DEBUGGER, epoch=7)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert requested(world, 3, DEBUGGER)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_also_returns_uncommitted_offsets() -> None:
    world = Replicated()
    world.create_topic("orders", [[1, 2]])
    world.await_isr((1, 2))
    world.produce(b"a", to=1)
    world.await_equal(numbers=(1, 2))
    world.node(2).kill()
    world.produce(b"b", to=1, acks=1)
    assert requested(world, 1, CONSUMER) == (0, 1)
    assert requested(world, 1, DEBUGGER) == (0, 2)
