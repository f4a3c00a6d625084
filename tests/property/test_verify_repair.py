"""Damage at one place of a log: verify reports it, and repair keeps all before it and sets everything else aside."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import damage
from tests.support.damage import DIRECTORY, Files

from barnabas.records.batch import iter_headers
from barnabas.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, decode_epochs
from barnabas.storage.index import OffsetIndex
from barnabas.storage.offline.dump import DumpedFile, DumpFailed, DumpOptions, dump_files
from barnabas.storage.producer_entries import AppendedBatch, ProducerEntry
from barnabas.storage.producer_snapshots import encode_snapshot

log = cache(damage.varied_log)


def in_partition(suffixes: tuple[str, ...]) -> list[str]:
    return [path for path, data in log().items() if path.startswith(DIRECTORY) and path.endswith(suffixes) and data]


class Damage(NamedTuple):
    """One bit of a file changed, or all from a byte on gone."""

    path: str
    position: int
    bit: int | None

    def files(self) -> Files:
        data = bytearray(log()[self.path])
        if self.bit is None:
            del data[self.position :]
        else:
            data[self.position] ^= 1 << self.bit
        return log() | {self.path: bytes(data)}


@st.composite
def damages(draw: st.DrawFn, *suffixes: str, with_cuts: bool = False) -> Damage:
    path = draw(st.sampled_from(in_partition(suffixes)))
    position = draw(st.integers(0, len(log()[path]) - 1))
    return Damage(path, position, draw(st.integers(0, 7) | (st.none() if with_cuts else st.nothing())))


def test_nothing_is_wrong_with_the_whole_log() -> None:
    verification, faults = damage.verified(damage.disk_of(log()))
    assert faults == []
    assert verification.report.notes == []
    assert len(verification.scans) > 3
    assert len(in_partition((".txnindex",))) > 2
    assert damage.repaired(damage.disk_of(log())) == []


@settings(max_examples=200, deadline=None)
@given(damages(".log", with_cuts=True))
def test_damage_of_a_log_is_named_and_repair_keeps_what_is_before_it(damaged: Damage) -> None:
    path, position, _ = damaged
    files = damaged.files()
    disk = damage.disk_of(files)
    _, faults = damage.verified(disk)
    assert faults
    damage.repaired(disk)
    _, left = damage.verified(disk)
    assert left == []
    after = damage.files_in(disk, damage.ROOT)
    assert damage.lost_bytes(files, after) == []
    whole = damage.batches(log())
    intact = [b for b in whole if (b[0], b[1] + len(b[2])) <= (path, position)]
    kept = damage.batches(after)
    assert kept[: len(intact)] == intact
    assert damage.records(kept[: len(intact)]) == damage.records(intact)


@settings(max_examples=120, deadline=None)
@given(damages(".snapshot", ".txnindex", ".timeindex", ".index", LEADER_EPOCH_CHECKPOINT))
def test_damage_next_to_a_log_is_named_or_harmless_and_repair_keeps_the_log(damaged: Damage) -> None:
    path, files = damaged.path, damaged.files()
    disk = damage.disk_of(files)
    _, faults = damage.verified(disk)
    assert faults or is_harmless(path, files)
    damage.repaired(disk)
    _, left = damage.verified(disk)
    assert left == []
    after = damage.files_in(disk, damage.ROOT)
    assert damage.lost_bytes(files, after) == []
    if path.endswith(LEADER_EPOCH_CHECKPOINT):
        assert damage.records(damage.batches(after)) == damage.records(damage.batches(log()))
    else:
        assert damage.batches(after) == damage.batches(log())


def is_harmless(path: str, files: Files) -> bool:
    """Returns whether the index leads a reader to the same place."""
    if path.endswith(LEADER_EPOCH_CHECKPOINT):
        # The first epoch may begin later than the first batch: there a log start may have been moved to.
        told, before = decode_epochs(path, files[path]), decode_epochs(path, log()[path])
        return (
            told[1:] == before[1:] and told[0].epoch == before[0].epoch and told[0].start_offset < told[1].start_offset
        )
    if path.endswith(".timeindex"):
        return harmless_times(path, files)
    if not path.endswith(".index"):
        return False
    base = int(path.rpartition("/")[2][:20])
    index = OffsetIndex(damage.disk_of(files), path, base)
    inside = [b for b in damage.batches(files) if b[0] == path.replace(".index", ".log")]
    return all(
        index.lookup(record.offset)[1] <= at for _, at, batch in inside for record in damage.records([("", 0, batch)])
    )


def harmless_times(path: str, files: Files) -> bool:
    """Returns whether an entry is correct: nothing up to its offset is later, and one record is as late."""
    inside = [b for b in damage.batches(files) if b[0] == path.replace(".timeindex", ".log")]
    found = damage.records(inside)
    base, data = int(path.rpartition("/")[2][:20]), files[path]
    for at in range(0, len(data), 12):
        timestamp = int.from_bytes(data[at : at + 8], "big", signed=True)
        offset = base + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if max(record.timestamp for record in found if record.offset <= offset) > timestamp:
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(damages(".log", ".snapshot", ".txnindex", ".timeindex", ".index", with_cuts=True), st.booleans())
def test_dump_of_damaged_files_ends_in_text_or_in_a_named_failure(damaged: Damage, sanity: bool) -> None:
    disk = damage.disk_of(damaged.files())
    lines: list[str] = []
    options = DumpOptions(deep_iteration=True, print_data_log=True, index_sanity_check=sanity)
    with suppress(DumpFailed):
        dump_files(disk, [DumpedFile(damaged.path, damaged.path)], options, lines.append, lines.append)
    assert lines[0] == f"Dumping {damaged.path}\n"


def test_a_producer_snapshot_with_a_batch_of_later_offsets_is_reported() -> None:
    (path, *_) = in_partition((".snapshot",))
    offset = int(path.rpartition("/")[2].removesuffix(".snapshot"))
    for last_offset, expected in ((offset - 1, []), (offset, [f"producer 7 has a batch at or above offset {offset}"])):
        entry = ProducerEntry(7, 0, batch=AppendedBatch(0, last_offset, 0, 0))
        _, faults = damage.verified(damage.disk_of(log() | {path: encode_snapshot([entry])}))
        assert [fault.message for fault in faults] == expected


def test_a_dump_reports_wrong_indexes_before_gaps_in_logs() -> None:
    """The order of Kafka's own tool, whichever file is dumped first."""
    logs = in_partition((".log",))
    index = next(path for path in in_partition((".index",)) if path.replace(".index", ".log") != logs[-1])
    whole = log()[logs[-1]]
    first, second = (header.size_bytes for _, header in islice(iter_headers(memoryview(whole)), 2))
    relative, position = struct.unpack_from(">ii", log()[index])
    files = log() | {
        logs[-1]: whole[:first] + whole[first + second :],
        index: struct.pack(">ii", relative + 1, position) + log()[index][8:],
    }
    lines: list[str] = []
    dumped = [DumpedFile(path, path) for path in (logs[-1], index)]
    dump_files(damage.disk_of(files), dumped, DumpOptions(deep_iteration=True), lambda line: None, lines.append)
    heads = [line.split(" in ")[0] for line in lines if not line.startswith("  ")]
    assert heads == ["Mismatches", "Non-consecutive offsets"]


def test_a_dump_names_the_batch_that_is_found_instead_of_an_indexed_offset() -> None:
    path = next(path for path in in_partition((".timeindex",)) if len(log()[path]) >= 12)
    inside = [header for _, header in iter_headers(memoryview(log()[path.replace(".timeindex", ".log")]))]
    long = next(header for header in inside if header.last_offset_delta)
    base_offset = DumpedFile(path, path).base_offset()
    entry = struct.pack(">qi", long.max_timestamp, long.base_offset - base_offset)
    files = log() | {path: entry}
    lines: list[str] = []
    dump_files(damage.disk_of(files), [DumpedFile(path, path)], DumpOptions(), lambda line: None, lines.append)
    last_offset = long.base_offset + long.last_offset_delta
    assert lines == [
        "The following indexed offsets are not found in the log.\n",
        f"Indexed offset: {long.base_offset}, found log offset: {last_offset}\n",
    ]
