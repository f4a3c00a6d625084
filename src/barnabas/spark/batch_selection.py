"""Selection of the batches of a fetch response that contain the reader's records: it omits transaction markers, aborted
transactions and batches outside the range; the others are checked and decompressed.

A fetch response can begin with a batch that holds records before the requested offset, and end inside a batch.
Compaction leaves gaps: offsets are read from the batches, never counted.

Aborted transactions come with the response, each with the first offset it wrote; one is open from there to its ABORT
marker in the same log (KIP-98). Batches of an open one are not for the reader.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.common.host import Buffer
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.records import compression
from barnabas.records.batch import decode_batch, has_valid_crc, iter_headers, read_end_txn_marker
from barnabas.records.header import HEADER_BYTES, MAGIC_V2, BatchHeader, corrupt

Aborted = FetchResponse.AbortedTransaction

#: Compressed batches are decompressed together up to about this size, and decoded together.
UNPACKED_BYTES = 8 * 1024 * 1024


class Span(NamedTuple):
    """The records of one batch: data[start:end] of the chunk's buffer."""

    header: BatchHeader
    start: int
    end: int


class Chunk(NamedTuple):
    """Batches to be decoded together, and the buffer that contains their decompressed records.

    A batch of message format 0 or 1 is a separate chunk, complete and unchanged.
    """

    data: Buffer
    spans: list[Span]

    @property
    def is_legacy(self) -> bool:
        return self.spans[0].header.magic != MAGIC_V2


class Selection(NamedTuple):
    """The batches of one fetch response that the reader needs."""

    batches: list[tuple[int, BatchHeader]]
    #: The offset at which the next fetch begins; None if the response had no complete batch.
    next_offset: int | None
    #: The largest leader epoch among batches that begin inside the range, -1 if there are none.
    epoch_max: int


def select(
    records: Buffer, first_offset: int, end_offset: int, aborted: Sequence[Aborted] | None, *, check_crc: bool = True
) -> Selection:
    """Returns the batches with records in [first_offset, end_offset).

    `aborted`: as the response lists them; None reads everything (read_uncommitted).

    Raises:
        RecordsRejected: the bytes are not batches.
    """
    pending = [(each.first_offset, each.producer_id) for each in aborted or ()]
    heapq.heapify(pending)
    open_aborted: set[int] = set()
    chosen: list[tuple[int, BatchHeader]] = []
    next_offset: int | None = None
    epoch_max = -1
    for position, header in iter_headers(records):
        if header.base_offset >= end_offset:
            next_offset = max(end_offset, header.base_offset)
            break
        next_offset = max(header.next_offset, next_offset or 0)
        if header.last_offset < first_offset:
            # The batch is not needed for transactions either: those that ended before are not in the list.
            continue
        epoch_max = max(epoch_max, header.partition_leader_epoch)
        if check_crc and not has_valid_crc(records, position, header):
            raise corrupt(f"the batch at offset {header.base_offset} does not match its checksum")
        while pending and pending[0][0] <= header.last_offset:
            open_aborted.add(heapq.heappop(pending)[1])
        if header.is_control:
            if header.producer_id in open_aborted:
                _end_transaction(records, position, header, open_aborted)
            continue
        if header.is_transactional and header.producer_id in open_aborted:
            continue
        chosen.append((position, header))
    return Selection(chosen, next_offset, epoch_max)


def _end_transaction(records: Buffer, position: int, header: BatchHeader, open_aborted: set[int]) -> None:
    for record in decode_batch(records, position):
        marker = read_end_txn_marker(record)
        if marker is not None and not marker.commit:
            open_aborted.discard(header.producer_id)


def chunks(records: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> Iterator[Chunk]:
    """Yields the batches decompressed. Uncompressed ones stay in place, consecutive ones in one chunk.

    Raises:
        RecordsRejected: the data of a codec is broken.
    """
    plain: list[Span] = []
    pieces: list[bytes] = []
    packed: list[Span] = []
    size = 0
    for position, header in batches:
        is_plain = header.magic == MAGIC_V2 and header.codec == compression.Codec.NONE
        if plain and not is_plain:
            yield Chunk(records, plain)
            plain = []
        if packed and (is_plain or header.magic != MAGIC_V2 or size >= UNPACKED_BYTES):
            yield Chunk(pieces[0] if len(pieces) == 1 else b"".join(pieces), packed)
            pieces, packed, size = [], [], 0
        body, end = position + HEADER_BYTES, position + header.size_bytes
        if header.magic != MAGIC_V2:
            yield Chunk(records, [Span(header, position, end)])
        elif is_plain:
            plain.append(Span(header, body, end))
        else:
            piece = compression.decompress(compression.codec_of(header.attributes), records[body:end])
            pieces.append(piece)
            packed.append(Span(header, size, size + len(piece)))
            size += len(piece)
    if plain:
        yield Chunk(records, plain)
    if packed:
        yield Chunk(pieces[0] if len(pieces) == 1 else b"".join(pieces), packed)
