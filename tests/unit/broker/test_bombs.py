"""Compressed batches that would unpack to hundreds of megabytes or gigabytes: refused at the limit, in a thread, and
harmless where a log has them already.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from tests.support.batches import with_right_crc
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, produce, produce_request

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.batch import encode_batch, read_header
from barnabas.records.compression import Codec, compress
from barnabas.records.header import HEADER
from barnabas.records.record import Record
from barnabas.simulation.host import EPOCH_WALL_MS

GIGABYTE = 1 << 30
#: The largest memory that one request can need: the limit of 100 MiB, while it grows and is copied once.
GROWTH_BYTES_MAX = 350 * 1024 * 1024


def gzip_bomb() -> bytes:
    """Returns a megabyte that unpacks to a gigabyte. It repeats one compressed block of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + again * (GIGABYTE // (1 << 24) - 1)


def zstd_bomb() -> bytes:
    """Returns 32 kB that unpack to a gigabyte: each block of four bytes stands for 128 kB."""
    frame_header = b"\x28\xb5\x2f\xfd\x00\x58"
    size = 1 << 17
    block = (size << 3 | 0b010).to_bytes(3, "little") + b"x"
    last = (size << 3 | 0b011).to_bytes(3, "little") + b"x"
    return frame_header + block * (GIGABYTE // size - 1) + last


def lz4_bomb() -> bytes:
    """Returns a frame of 900 kB that unpacks to 230 MB."""
    return compress(Codec.LZ4, bytes(230_000_000))


def snappy_bomb() -> bytes:
    """Returns a block that claims two gigabytes."""
    return b"\xff\xff\xff\xff\x07" + b"\xfe\x01\x00" * 1000


BOMBS = {Codec.GZIP: gzip_bomb, Codec.ZSTD: zstd_bomb, Codec.LZ4: lz4_bomb, Codec.SNAPPY: snappy_bomb}


def batch_with(codec: Codec, packed: bytes) -> bytes:
    """Returns a batch of one record whose compressed part is `packed`."""
    made = bytearray(encode_batch([Record(0, EPOCH_WALL_MS, b"k", b"v")], codec=codec))
    made[HEADER.size :] = packed
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    return bytes(with_right_crc(made))


def peak_bytes(*, resets: bool = False) -> int:
    """Returns the largest resident memory of this process since the last reset, whatever other tests took before."""
    if resets:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("codec", BOMBS)
def test_a_bomb_is_refused_when_it_arrives(codec: Codec) -> None:
    """Guard S20 (Kafka #23429): the limit ends the unpacking; the connection and the log continue to work."""
    wired = WiredBroker()
    wired.create_topic("orders", max_message_bytes="20000000")
    client = wired.connect()
    data = batch_with(codec, BOMBS[codec]())
    assert len(data) < 2_000_000
    before = peak_bytes(resets=True)
    response = client.call(produce_request(wired, data, 11), 11, ProduceResponse)
    row = response.responses[0].partition_responses[0]
    assert row.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
    assert peak_bytes() - before < GROWTH_BYTES_MAX
    assert wired.broker.replicas.leader("orders", 0).log.log_end_offset == 0
    assert produce(wired, client, batch_of(b"y")) == (0, 0)


def test_the_peak_is_that_since_the_reset() -> None:
    size = 64 << 20
    before = peak_bytes(resets=True)
    # Memory of the system itself: the heap may have room that earlier tests have left.
    held = mmap.mmap(-1, size)
    held.write(b"x" * size)
    assert peak_bytes() - before > size * 3 // 4
    held.close()
    assert peak_bytes(resets=True) - before < size // 2


def _look_up(wired: WiredBroker) -> None:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=EPOCH_WALL_MS + 1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[partition])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    row = wired.connect().call(request, 7, ListOffsetsResponse, within_ms=60_000).topics[0].partitions[0]
    assert row.error_code == 0


def _compact(wired: WiredBroker) -> None:
    log = wired.broker.replicas.leader("orders", 0).log
    before = log.size_bytes
    wired.host.time.run_for(600_000)
    assert log.size_bytes < before, "the other records are compacted"
    assert any("unreadable batches" in message for message, _ in wired.host.faults.reported)


@pytest.mark.parametrize(("codec", "work"), list(product(BOMBS, (_look_up, _compact))))
def test_a_bomb_in_a_log_harms_nobody(codec: Codec, work: Callable[[WiredBroker], None]) -> None:
    """Guard S20: a log of Apache Kafka can have one. Look-ups by time and the cleaner stop at the limit."""
    wired = WiredBroker()
    wired.create_topic("orders", max_message_bytes="20000000", cleanup_policy="compact", segment_bytes="2097152")
    client = wired.connect()
    data = bytearray(batch_with(codec, BOMBS[codec]()))
    header = read_header(data)
    HEADER.pack_into(data, 0, *header._replace(partition_leader_epoch=0, max_timestamp=EPOCH_WALL_MS + 1))
    partition = wired.broker.replicas.leader("orders", 0)
    partition.log.append_as_follower(bytes(with_right_crc(data)))
    partition.high_watermark = 1
    for offset in range(1, 8):
        assert produce(wired, client, batch_of(b"y" * 600_000)) == (0, offset)
    before = peak_bytes(resets=True)
    work(wired)
    assert peak_bytes() - before < 2 * GROWTH_BYTES_MAX
    assert wired.closes.errors == []
    assert produce(wired, client, batch_of(b"z"))[0] == 0
