"""The damage table of log directories: every file flipped, cut, zeroed and missing, after clean and unclean stops.

Each committed record of each partition is served, or its offset is reported: answered with CORRUPT_MESSAGE, in a batch
with a wrong checksum, logged as cut off above the recovery point, or reported by `barnabas log verify` where no
checksum covers the damage. An undamaged partition loses nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest
from tests.support.damage import Files, disk_of
from tests.support.damaged_world import DAMAGED, ROOT, SOUND, killed, started, stopped, taken_up

from barnabas.common.errors import ConfigError, RecordsRejected, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.records.batch import decode_batch, has_valid_crc, iter_headers, read_header
from barnabas.storage.log import Log
from barnabas.storage.offline.verify import check_directory, verify_partition

COUNT = 40
#: The offsets to read: each one once, and those of a batch that one flipped bit has moved.
_READS_MAX = 2 * COUNT
STOPS: dict[str, Callable[[], Files]] = {"clean": stopped, "unclean": killed}


class Damage(NamedTuple):
    path: str
    kind: str
    place: int

    def apply(self, files: Files) -> Files:
        data = bytearray(files[self.path])
        if self.kind == "missing":
            return {path: old for path, old in files.items() if path != self.path}
        if self.kind == "flipped":
            data[self.place] ^= 1 << self.place % 8
        elif self.kind == "cut":
            del data[self.place :]
        elif self.kind == "zeroed":
            data[self.place :] = bytes(len(data) - self.place)
        else:
            data += b"\x00\x01junk" * 9
        return files | {self.path: bytes(data)}


@cache
def files_after(stop: str) -> Files:
    return STOPS[stop]()


def damages(stop: str, places: int) -> Iterator[Damage]:
    """Yields damages at some places of every file of one partition and of the directory; at all of them if `places` is
    large enough.
    """
    chance = random.Random(stop)
    for path, data in sorted(files_after(stop).items()):
        if path.startswith(f"{ROOT}/{SOUND}/") or path.endswith(".lock"):
            continue
        yield Damage(path, "missing", 0)
        yield Damage(path, "longer", 0)
        for kind in ("flipped", "cut", "zeroed"):
            chosen = range(len(data)) if len(data) <= places else sorted(chance.sample(range(len(data)), places))
            yield from (Damage(path, kind, place) for place in chosen)


class Found(NamedTuple):
    served: dict[int, bytes]
    #: Offsets from which on a reader was refused, and those in a batch whose checksum is wrong.
    refused: set[int]


def read_all(log: Log) -> Found:
    """Returns what a consumer finds that continues after each refusal, behind the lost range if one is reported."""
    found = Found({}, set())
    offset = log.log_start_offset
    for _ in range(_READS_MAX):
        if offset >= log.log_end_offset:
            return found
        try:
            data = memoryview(log.read(offset, 1, up_to=log.log_end_offset).data)
            if not len(data):
                return found
            header = read_header(data)
            if not has_valid_crc(data, 0, header) or header.next_offset <= offset:
                raise RecordsRejected(2, "checksum")  # type: ignore[arg-type]
        except (RequestFailed, RecordsRejected):
            following = max(log.skip_hole(offset), offset + 1)
            found.refused.update(range(offset, min(following, COUNT)))
            offset = following
            continue
        found.served.update((record.offset, record.value or b"") for record in decode_batch(data))
        offset = header.next_offset
    raise AssertionError(f"after {_READS_MAX} reads, a consumer is at {offset} of {log.log_end_offset}")


def outcome(stop: str, damage: Damage) -> str:
    """Returns how the start ended. Raises AssertionError if something was lost without a report."""
    files = damage.apply(files_after(stop))
    try:
        manager, host = started(files)
    except ConfigError as error:
        return "refused" if damage.path in str(error) else pytest.fail(str(error))
    assert manager.offline_directories == set(), host.faults.reported
    result = "whole"
    for topic_partition in (SOUND, DAMAGED):
        log = taken_up(manager, topic_partition)
        found = read_all(log)
        wrong = {at for at, value in found.served.items() if value != b"record %d" % at}
        missing = set(range(COUNT)) - set(found.served) - found.refused
        if topic_partition == SOUND:
            assert not wrong | missing | found.refused, "a partition that nobody touched"
            continue
        if wrong or missing:
            told = [text for text, _ in host.faults.reported] + host.faults.informed
            is_told = any("cut off" in text or " are lost" in text for text in told)
            is_unsynced = stop == "unclean" and min(wrong | missing) >= 36
            assert is_named_by_verify(files) or (is_told and is_unsynced), (damage, wrong, missing, told)
            result = "told" if is_told else "named by verify"
        elif found.refused:
            result = "corrupt"
        assert log.log_end_offset >= 36 or is_named_by_verify(files), (damage, log.log_end_offset)
    return result


def is_named_by_verify(files: Files) -> bool:
    disk = disk_of(files)
    reports = {tp: verify_partition(disk, f"{ROOT}/{tp}") for tp in (DAMAGED, SOUND)}
    return any(report.faults for report in reports.values()) or bool(check_directory(disk, ROOT, reports))


@pytest.mark.parametrize("stop", STOPS)
def test_a_sample_of_the_damage_table(stop: str) -> None:
    outcomes: Counter[str] = Counter()
    kinds: set[tuple[str, str]] = set()
    for damage in damages(stop, 3):
        outcomes[outcome(stop, damage)] += 1
        kinds.add((damage.path.rpartition(".")[2], damage.kind))
    assert outcomes["whole"] > 50
    assert outcomes["corrupt"] > 5
    assert len(kinds) > 30, "every file, every kind"


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stop", STOPS)
def test_the_whole_damage_table(stop: str) -> None:
    outcomes = Counter(outcome(stop, damage) for damage in damages(stop, 1 << 30))
    assert sum(outcomes.values()) > 10_000
    assert outcomes["corrupt"] > 100


def test_the_files_are_those_that_are_meant() -> None:
    found = {path.rpartition("/")[2].lstrip("0123456789") for path in files_after("clean")}
    assert {".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"} <= found
    assert {".kafka_cleanshutdown", "barnabas-inventory", "recovery-point-offset-checkpoint"} <= found
    for stop in STOPS:
        assert outcome(stop, Damage(f"{ROOT}/.lock", "longer", 0)) == "whole"
    batches = [path for path in files_after("clean") if path.endswith(".log")]
    assert sum(1 for path in batches for _ in iter_headers(files_after("clean")[path])) == 2 * COUNT
    assert TopicPartition("orders", 0) == DAMAGED
