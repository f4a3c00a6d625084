"""A log whose files are damaged, and what verification, repair, dump and the next start make of it.

Each seed writes a log with small segments, idempotent and transactional batches, codecs and leader epochs, and damages
a few of its files. The promises: an intact log has no faults; each damaged file is reported; after a repair nothing is
reported, a second repair has nothing to do, and the log has the batches that it had, or those before the damage; a
start after a kill rebuilds each index near the recovery point that is missing, torn or wrong at its end. Files are
decoded by independent code (`log_files`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, encode_batch, encode_end_txn_marker
from barnabas.records.checksum import crc32c
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.log_files import Batch, LogFiles, read_batches, read_log
from barnabas.simulation.log_rules import ProducerDict, wrong_aborted, wrong_epochs, wrong_index, wrong_times
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.worlds.plain_dump import index_complaints
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.log import Log, Origin
from barnabas.storage.offline.dump import DumpedFile, DumpFailed, DumpOptions, dump_files
from barnabas.storage.offline.repair import Repair, is_repairable
from barnabas.storage.offline.verify import PartitionVerification
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.segments import LogServices

_NOW_MS: Final = 1_800_000_000_000
_PARTITION: Final = TopicPartition("orders", 0)
_DIRECTORY: Final = f"/logs/{_PARTITION}"
_TOPIC_ID: Final = bytes(range(16))
_PRODUCERS: Final = (7, 8, 9)
_KEPT: Final = "repaired"
#: The position of the first producer's last offset in a snapshot: after version 2, checksum 4, count 4.
_CRC_AT, _CHECKED_FROM, _LAST_OFFSET_AT = 2, 6, 10 + 14
_INDEXES: Final = (".index", ".timeindex")
_CRC_COVERS_FROM, _RECORDS_FROM = 21, 61
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")

Files = dict[str, bytes]


class Damage(NamedTuple):
    """A damaged file. `must_be_named`: a verification must name this very file."""

    path: str
    what: str
    must_be_named: bool


class DamagedFiles:
    """The run of one seed. `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"damaged files {seed}")
        self.damages: list[Damage] = []

    def run(self) -> None:
        with second_decisions().judging():
            self._run()

    def _run(self) -> None:
        disk = MemoryDisk()
        end = self._write(disk)
        files = _files_of(disk)
        written = read_log(disk, _DIRECTORY)
        self._intact(disk, written, end)
        self._complaints(_disk_of(files), written)
        self._wrong_entries(_disk_of(files), written)
        for damage_one in (self._damage_index, self._damage_anything):
            damaged = _disk_of(files)
            self.damages = []
            for _ in range(self._random.choice((1, 1, 2))):
                damage_one(damaged)
            if self.damages:
                after = _files_of(damaged)
                self._verify(_disk_of(after))
                self._repair(_disk_of(after), written)
                _dump(_disk_of(after), may_fail=True)
                if damage_one == self._damage_index:
                    self._start(_disk_of(after), written, end)

    def _wrong(self, text: str) -> Violation:
        damages = "; ".join(f"{damage.path.rpartition('/')[2]}: {damage.what}" for damage in self.damages)
        return Violation(f"damaged files: {text} ({damages or 'nothing is damaged'})")

    # -- the log

    def _write(self, disk: MemoryDisk) -> int:
        """Writes a log and closes it. Returns its end."""
        random = self._random
        disk.make_dirs(_DIRECTORY)
        config = LogConfig(
            segment_bytes=random.choice((400, 700, 1500)),
            index_interval_bytes=random.choice((1, 100, 200)),
            segment_index_bytes=random.choice((60, 120)),
            max_message_bytes=300,
        )
        log = _opened(disk, config, clean=True)
        epoch, at_ms = 0, _NOW_MS
        sequences = dict.fromkeys(_PRODUCERS, 0)
        for _ in range(random.choice((6, 20, 45))):
            epoch += random.random() < 0.1
            at_ms += random.choice((-5, 0, 1, 10, 1000))
            records = [
                Record(i, at_ms + i, b"k%d" % i, b"v" * random.randrange(20)) for i in range(random.choice((1, 1, 3)))
            ]
            more: dict[str, Any] = {}
            producer = random.choice((None, *_PRODUCERS))
            if producer is not None:
                more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
                more["transactional"] = producer > _PRODUCERS[0]
                sequences[producer] += len(records)
            batch = encode_batch(records, codec=random.choice((0, 0, 1, 2, 3, 4)), **more)
            log.append_as_leader(memoryview(batch), epoch, wall_ms=at_ms, origin=Origin.CLIENT)
            if more.get("transactional") and random.random() < 0.5:
                marker = encode_end_txn_marker(
                    commit=random.random() < 0.5,
                    coordinator_epoch=0,
                    timestamp=at_ms,
                    producer_id=more["producer_id"],
                    producer_epoch=0,
                )
                log.append_as_leader(memoryview(marker), epoch, wall_ms=at_ms, origin=Origin.COORDINATOR)
        log.close(clean=True)
        return log.log_end_offset

    def _intact(self, disk: MemoryDisk, written: LogFiles, end: int) -> None:
        verification = PartitionVerification(disk, _DIRECTORY)
        report = verification.run()
        batches = list(written.batches())
        if report.faults:
            raise self._wrong(f"faults {report.faults}")
        found = (report.segments, report.batches, report.records, report.size_bytes, report.log_end_offset)
        sizes = sum(segment.log_bytes for segment in written.segments)
        records = sum(batch.last_offset - batch.base_offset + 1 for batch in batches)
        if found != (len(written.segments), len(batches), records, sizes, end):
            raise self._wrong(f"the report says {found}")
        if Repair(disk, verification).steps:
            raise self._wrong("a repair has something to do")
        lines, complaints = _dump(disk, may_fail=False)
        shown = sum(line.startswith("baseOffset: ") for line in lines)
        if complaints or shown != len(batches):
            raise self._wrong(f"the dump shows {shown} of {len(batches)} batches, and says {complaints}")
        self._check_rules(disk, written, end, "written")

    def _complaints(self, disk: MemoryDisk, written: LogFiles) -> None:
        """Damages the log of one segment and the time index of another: a dump complains about both, and about the
        indexes first, as in Kafka."""
        long = next((segment for segment in written.segments if len(segment.batches) > 2), None)
        other = next((segment for segment in written.segments if segment is not long and segment.times), None)
        if long is None or other is None:
            return
        stem, gone, data = long.path.removesuffix(".log"), long.batches[1], disk.read(long.path)
        disk.write(long.path, data[: gone.position] + data[gone.position + gone.size :])
        for suffix in _INDEXES:
            disk.write(stem + suffix, b"")
        path = other.path.removesuffix(".log") + ".timeindex"
        data = disk.read(path)
        timestamp, offset = _TIME_ENTRY.unpack_from(data, len(data) - _TIME_ENTRY.size)
        disk.write(path, data[: -_TIME_ENTRY.size] + _TIME_ENTRY.pack(timestamp + 1, offset))
        _, complaints = _dump(disk, may_fail=False)
        headings = [line.partition(" in ")[0] for line in complaints if not line.startswith("  ")]
        if headings != ["Found timestamp mismatch", "Non-consecutive offsets"]:
            raise self._wrong(f"a dump of a gap and of a wrong time index says {complaints}")

    def _wrong_entries(self, disk: MemoryDisk, written: LogFiles) -> None:
        """Changes entries of the indexes: a dump complains about each entry that does not fit to the log."""
        random = self._random
        expected: list[str] = []
        for segment in written.segments:
            base, stem = segment.base_offset, segment.path.removesuffix(".log")
            offsets, times = list(segment.offsets), list(segment.times)
            positions = [batch.position for batch in segment.batches]
            if offsets and random.random() < 0.5:
                place = random.randrange(len(offsets))
                offsets[place] = offsets[place][0], random.choice(positions)
            if times and random.random() < 0.7:
                place = random.randrange(len(times))
                timestamp, offset = times[place]
                ways = (timestamp + 1, offset), (timestamp - 2_000, offset), (timestamp, offset + 1)
                times[place] = random.choice((*ways, (timestamp, max(offset - 1, base + 1))))
            disk.write(f"{stem}.index", b"".join(_OFFSET_ENTRY.pack(each - base, at) for each, at in offsets))
            disk.write(f"{stem}.timeindex", b"".join(_TIME_ENTRY.pack(at, each - base) for at, each in times))
            expected += index_complaints(segment._replace(offsets=offsets, times=times))
        _, complaints = _dump(disk, may_fail=False)
        if sorted(line.rstrip("\n") for line in complaints) != sorted(expected):
            raise self._wrong(f"a dump of wrong indexes says {complaints} instead of {expected}")

    # -- damages

    def _damage_index(self, disk: MemoryDisk) -> None:
        """Damages an index in a way that a start must notice: removes it, tears it, or changes one of its last
        entries.
        """
        name = self._random.choice([name for name in disk.list_dir(_DIRECTORY) if name.endswith(_INDEXES)])
        path = f"{_DIRECTORY}/{name}"
        if not disk.exists(path):
            return
        data = disk.read(path)
        entry = _TIME_ENTRY if name.endswith(".timeindex") else _OFFSET_ENTRY
        way = self._random.choice(("gone", "torn", "wrong", "wrong"))
        if way == "gone":
            disk.remove(path)
        elif way == "torn":
            disk.write(path, data + b"\1" * self._random.randrange(1, entry.size))
        elif not data:
            return
        else:
            place = len(data) - entry.size * self._random.randrange(1, min(4, len(data) // entry.size) + 1)
            first, second = entry.unpack_from(data, place)
            changed = entry.pack(first, second + 1) if entry is _OFFSET_ENTRY else entry.pack(first + 1, second)
            disk.write(path, data[:place] + changed + data[place + entry.size :])
        self.damages.append(Damage(path, way, must_be_named=True))

    def _damage_anything(self, disk: MemoryDisk) -> None:
        random = self._random
        name = random.choice([name for name in disk.list_dir(_DIRECTORY) if name != "partition.metadata"])
        path = f"{_DIRECTORY}/{name}"
        data = disk.read(path)
        way = random.choice(("bit", "cut", "later", "offset"))
        must_be_named = name.endswith(".snapshot")
        if name.endswith(".snapshot") and way == "later" and len(data) > _LAST_OFFSET_AT + 8:
            # The checksum is right, but one of the snapshot's producers has written beyond the snapshot's offset.
            offset = int(name.partition(".")[0]).to_bytes(8, "big")
            changed = data[:_LAST_OFFSET_AT] + offset + data[_LAST_OFFSET_AT + 8 :]
            checksum = crc32c(changed[_CHECKED_FROM:]).to_bytes(4, "big")
            disk.write(path, changed[:_CRC_AT] + checksum + changed[_CHECKED_FROM:])
        elif not data:
            return
        elif name.endswith(".log") and way == "later":
            # A record inside a batch is wrong, and the checksum of the batch is right.
            batch = random.choice(read_batches(data) or [None])
            if batch is None or batch.marker is not None:
                return
            place, end = batch.position + _RECORDS_FROM, batch.position + batch.size
            changed = data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
            checked = crc32c(changed[batch.position + _CRC_COVERS_FROM : end]).to_bytes(4, "big")
            crc_at = batch.position + _CRC_COVERS_FROM - 4
            disk.write(path, changed[:crc_at] + checked + changed[crc_at + 4 :])
        elif name.endswith(".log") and way == "offset":
            # No checksum covers the first offset of a batch.
            batches = read_batches(data)
            place = random.randrange(len(batches) + 1) - 1
            before = batches[place - 1].last_offset + 1 if place > 0 else int(name.partition(".")[0])
            moved = random.choice((before - 1, before - 1, before + 1, before + 1_000))
            if place < 0 or moved in (batches[place].base_offset, -1):
                return
            at = batches[place].position
            disk.write(path, data[:at] + moved.to_bytes(8, "big") + data[at + 8 :])
            must_be_named = moved < before
        elif way == "cut":
            disk.write(path, data[: random.randrange(len(data))])
        else:
            place = random.randrange(len(data))
            disk.write(path, data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :])
        self.damages.append(Damage(path, way, must_be_named))

    # -- promises

    def _verify(self, disk: MemoryDisk) -> None:
        faults = PartitionVerification(disk, _DIRECTORY).run().faults
        named = {fault.path for fault in faults}
        for damage in self.damages:
            if damage.must_be_named and damage.path not in named and not any(path.endswith(".log") for path in named):
                raise self._wrong(f"the verification does not name {damage.path}, only {sorted(named)}")

    def _repair(self, disk: MemoryDisk, written: LogFiles) -> None:
        verification = PartitionVerification(disk, _DIRECTORY)
        before = verification.run()
        repair = Repair(disk, verification)
        if bool(repair.steps) != bool(before.faults):
            raise self._wrong(f"a repair of {before.faults} has the steps {repair.steps}")
        repair.apply(_KEPT)
        again = PartitionVerification(disk, _DIRECTORY)
        left = again.run().faults
        if not all(map(is_repairable, before.faults)):
            raise self._wrong(f"some of {before.faults} are said to be beyond repair")
        if left or Repair(disk, again).steps:
            raise self._wrong(f"after the repair there are still {left or Repair(disk, again).steps}")
        found = list(read_log(disk, _DIRECTORY).batches())
        is_log_damaged = any(damage.path.endswith(".log") for damage in self.damages)
        kept, had = ([_plain(batch, is_log_damaged) for batch in each] for each in (found, written.batches()))
        if kept != had[: len(kept)] or (len(kept) < len(had) and not before.is_damaged):
            raise self._wrong(f"the repair leaves {len(kept)} of {len(had)} batches")
        if len(kept) < len(had) and not is_log_damaged:
            raise self._wrong("the repair cuts a log that is not damaged")
        self._check_rules(disk, read_log(disk, _DIRECTORY), found[-1].last_offset + 1 if found else 0, "repaired")

    def _start(self, disk: MemoryDisk, written: LogFiles, end: int) -> None:
        """Opens the log as after a kill."""
        first = min(int(damage.path.rpartition("/")[2].partition(".")[0]) for damage in self.damages)
        following = [segment.base_offset for segment in written.segments if segment.base_offset > first]
        recovery_point = self._random.choice((0, following[0] if following else end))
        log = _opened(disk, LogConfig(), clean=False, recovery_point=recovery_point)
        if log.log_end_offset != end or [*read_log(disk, _DIRECTORY).batches()] != [*written.batches()]:
            raise self._wrong(f"after a start the log ends at {log.log_end_offset} instead of {end}")
        log.close(clean=True)
        self._check_rules(disk, read_log(disk, _DIRECTORY), end, "opened again")

    def _check_rules(self, disk: MemoryDisk, found: LogFiles, end: int, state: str) -> None:
        """Compares the redundant data in the files of the log."""
        names = set(disk.list_dir(_DIRECTORY))
        producers = ProducerDict(0)
        for batch in found.batches():
            producers.add(batch)
        for segment in found.segments:
            stem = segment.path.removesuffix(".log")
            problem = wrong_index(segment) or wrong_times(segment, is_complete=state != "repaired")
            problem = problem or wrong_aborted(segment, segment.aborted, producers.aborted, 0, is_complete=True)
            if {f"{stem}.index".rpartition("/")[2], f"{stem}.timeindex".rpartition("/")[2]} - names:
                problem = "an index is missing"
            if problem:
                raise self._wrong(f"the log is {state}, {segment.path}: {problem}")
        if problem := wrong_epochs(found.epochs, found.batches(), 0, end):
            raise self._wrong(f"the log is {state}: {problem}")


def _plain(batch: Batch, is_log_damaged: bool) -> Batch:
    """Returns what a repair must leave as it is. The checksum of a batch does not cover its first offset, before which
    there can be a gap."""
    plain = batch._replace(epoch=0, position=0)
    if not is_log_damaged:
        return plain
    # A batch whose records cannot be read is emptied.
    return plain._replace(base_offset=0, last_offset=0, size=0, max_timestamp=0)


def _opened(disk: MemoryDisk, config: LogConfig, *, clean: bool, recovery_point: int = 0) -> Log:
    services = LogServices(disk, lambda: _NOW_MS, lambda bound: 0, Descriptors(2))
    opening = Opening(
        _DIRECTORY, _PARTITION, config, _TOPIC_ID, clean=clean, recovery_point=recovery_point, log_start_offset=0
    )
    return open_log(services, opening)


def _dump(disk: MemoryDisk, *, may_fail: bool) -> tuple[list[str], list[str]]:
    """Dumps all files. Returns the lines and the complaints."""
    lines: list[str] = []
    complaints: list[str] = []
    out: Callable[[str], None] = lines.append
    paths = [f"{_DIRECTORY}/{name}" for name in disk.list_dir(_DIRECTORY) if name[0].isdigit()]
    try:
        dump_files(
            disk, [DumpedFile(path, path) for path in paths], DumpOptions(deep_iteration=True), out, complaints.append
        )
    except DumpFailed as failure:
        if not may_fail:
            raise Violation(f"damaged files: a dump of an intact log fails: {failure}") from failure
    return "".join(lines).splitlines(), complaints


def _files_of(disk: MemoryDisk) -> Files:
    return {name: disk.read(f"{_DIRECTORY}/{name}") for name in disk.list_dir(_DIRECTORY)}


def _disk_of(files: Files) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs(_DIRECTORY)
    for name, data in files.items():
        disk.write(f"{_DIRECTORY}/{name}", data)
    return disk
