"""Finding 5: a search by time over batches whose records cannot be decoded ends, and finds later records.

Other tests cover their refusal at produce; here they are in the log already, from before or from Apache Kafka.
"""

from __future__ import annotations

import pytest
from tests.support.batches import NOW_MS, with_right_crc
from tests.support.log_world import LogWorld
from tests.support.poisoned import forms
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, produce

from barnabas.common.errors import RecordsRejected
from barnabas.common.log_config import LogConfig
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.records.batch import read_header
from barnabas.records.header import HEADER, HEADER_BYTES
from barnabas.storage.log import Log

LATE = NOW_MS + 60_000
FORMS = {name: form.batch for name, form in forms().items() if len(form.batch) >= HEADER_BYTES}


def placed(batch: bytes, offset: int) -> bytes:
    """Returns the batch at this offset of a log, with a header that claims a late record."""
    out = bytearray(batch)
    header = read_header(batch)
    HEADER.pack_into(out, 0, *header._replace(base_offset=offset, partition_leader_epoch=0, max_timestamp=LATE))
    return bytes(with_right_crc(bytearray(out)))


def appended(log: Log, name: str) -> bool:
    """Returns whether a log accepts it at all, as a follower does."""
    try:
        log.append_as_follower(placed(FORMS[name], log.log_end_offset))
    except RecordsRejected:
        return False
    return True


def searched(log: Log, timestamp: int | None) -> tuple[int, int, int] | None:
    search = log.search_time(timestamp)
    search.load()
    return log.found(search)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_search_by_time_ends_and_finds_what_is_behind(name: str) -> None:
    world = LogWorld(LogConfig())
    world.append(NOW_MS, NOW_MS + 1)
    if not appended(world.log, name):
        return
    first = world.log.log_end_offset
    if first > 1 << 30:
        return  # nothing fits after it
    world.append(LATE, LATE + 1)
    found = searched(world.log, LATE)
    assert found is not None
    assert 2 <= found[1] <= first
    assert found[0] >= LATE
    assert searched(world.log, LATE + 1) == (LATE + 1, first + 1, found[2])
    latest = searched(world.log, None)
    assert latest is not None
    assert latest[0] >= LATE + 1
    assert searched(world.log, (1 << 63) - 1) is None


def test_most_forms_are_looked_at() -> None:
    taken = [name for name in FORMS if appended(LogWorld(LogConfig()).log, name)]
    assert len(taken) >= 55, taken


@pytest.mark.parametrize("timestamp", [0, LATE, -3])
def test_nothing_on_the_connection_waits_behind_it(timestamp: int) -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    client = wired.connect()
    produce(wired, client, batch_of(b"x"))
    log = wired.broker.replicas.leader("orders", 0).log
    taken = [name for name in sorted(FORMS) if log.log_end_offset < 1 << 30 and appended(log, name)]
    assert taken
    partition = wired.broker.replicas.leader("orders", 0)
    partition.high_watermark = log.log_end_offset
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="orders",
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
            )
        ],
    )
    row = client.call(request, 7, ListOffsetsResponse).topics[0].partitions[0]
    assert row.error_code == 0
    assert row.offset >= -1
    assert wired.closes.errors == []
    assert produce(wired, client, batch_of(b"y"))[0] == 0


def test_a_record_below_the_log_start_is_not_the_latest() -> None:
    """The record's segment still exists and is not damaged, so the header of its batch must not answer for it."""
    world = LogWorld(LogConfig())
    world.append(LATE)
    world.log.delete_records_before(1)
    assert world.log.max_timestamp() is None
    assert searched(world.log, None) is None
    world.append(NOW_MS)
    assert world.log.max_timestamp() in (None, (NOW_MS, 1, 0))
