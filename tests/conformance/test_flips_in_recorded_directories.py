"""A byte of a recorded directory is changed: the broker starts nevertheless, logs what it cannot read, and answers as
before or not at all.

The directories are Apache Kafka's own. A reader finds a flip inside a batch by the checksum; `barnabas log verify`
reports, as far as possible, flips in what the checksum leaves out (base offset, leader epoch) and in transaction
indexes. Damaged indexes never make an answer wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from tests.support import golden
from tests.support.clean_world import broker_config
from tests.support.damage import Files, disk_of

from barnabas.common.errors import ConfigError, RecordsRejected, RequestFailed, StorageFault
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, decode_batch, has_valid_crc, iter_headers, read_header
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN_FILE, LOG_START_CHECKPOINT
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.offline.verify import PartitionReport, check_directory, partition_dirs, verify_partition

ROOT = "/data"
NAMES = ("stage1-clean-shutdown", "stage2-cleaned", "stage3-killed")
#: Files of which no wrong byte may change what is answered.
HINTS = (".index", ".timeindex", ".snapshot")
_BATCHES_MAX = 2000


class Answers(NamedTuple):
    """The answers of a log to its readers."""

    start: int
    end: int
    records: tuple[Record, ...]
    times: tuple[tuple[int, int, int] | None, ...]
    newest: tuple[int, int, int] | None
    aborted: tuple[tuple[int, int], ...]


@cache
def recorded(name: str) -> Files:
    return {
        f"{ROOT}/{path.removeprefix(name + '/')}": data
        for path, data in golden.files().items()
        if path.startswith(name + "/") and "__cluster_metadata" not in path
    }


def answers_of(log: Log, times: list[int]) -> Answers:
    """Raises RecordsRejected where a reader would find a batch damaged."""
    records: list[Record] = []
    aborted: list[tuple[int, int]] = []
    offset = log.log_start_offset
    for _ in range(_BATCHES_MAX):
        read = log.read(offset, 1, up_to=log.log_end_offset)
        if not read.data:
            break
        header = read_header(memoryview(read.data))
        if not has_valid_crc(memoryview(read.data), 0, header):
            raise RecordsRejected(87, "checksum")  # type: ignore[arg-type]
        records += decode_batch(read.data)
        aborted += log.aborted_transactions(offset, read)
        offset = max(offset, header.next_offset)
    else:
        raise AssertionError("no end of the log")
    found = tuple(log.offset_for_timestamp(time) for time in times)
    return Answers(
        log.log_start_offset,
        log.log_end_offset,
        tuple(records),
        found,
        log.max_timestamp(),
        tuple(sorted(set(aborted))),
    )


class Started(NamedTuple):
    answers: dict[TopicPartition, Answers | None]
    #: The reports about files that could not be read.
    reported: list[str]


def start(files: Files, times: dict[TopicPartition, list[int]]) -> Started:
    host = MemoryHost(disk=disk_of(files))
    manager = LogManager(host, broker_config(log_dirs=ROOT))
    reported: list[str] = []
    try:
        manager.start(high_watermark_of=lambda _: None)
    except ConfigError as error:
        reported.append(str(error))
    answers: dict[TopicPartition, Answers | None] = {}
    for log in manager:
        try:
            answers[log.topic_partition] = answers_of(log, times.get(log.topic_partition, []))
        except (RecordsRejected, RequestFailed, StorageFault):
            answers[log.topic_partition] = None
    reported += [f"{message}: {error}" for message, error in host.faults.reported]
    return Started(answers, reported)


@cache
def sound(name: str) -> tuple[Started, dict[TopicPartition, list[int]]]:
    first = start(recorded(name), {})
    times: dict[TopicPartition, list[int]] = {}
    for topic_partition, answers in first.answers.items():
        assert answers is not None
        stamps = sorted({record.timestamp for record in answers.records})
        times[topic_partition] = [time + step for time in stamps[:: max(1, len(stamps) // 6)] for step in (0, 1)]
    return start(recorded(name), times), times


def named_by_verify(files: Files) -> bool:
    disk = disk_of(files)
    reports: dict[TopicPartition, PartitionReport] = {}
    for directory in partition_dirs(disk, ROOT)[0]:
        topic, _, number = directory.rpartition("/")[2].rpartition("-")
        reports[TopicPartition(topic, int(number))] = verify_partition(disk, directory)
    return any(report.faults for report in reports.values()) or bool(check_directory(disk, ROOT, reports))


def flips(name: str, count: int) -> Iterator[tuple[str, int, int]]:
    """Yields some flips for every file; small files are flipped byte by byte if there are enough."""
    chance = random.Random(name)
    for path, data in recorded(name).items():
        places = range(len(data)) if len(data) <= count else sorted(chance.sample(range(len(data)), count))
        for place in places:
            yield path, place, 1 << chance.randrange(8)


def sweep(name: str, count: int, most: int | None = None) -> dict[str, int]:
    """Flips bytes, starts the broker and reads; returns the number of each outcome."""
    expected, times = sound(name)
    chosen = list(flips(name, count))
    if most is not None and len(chosen) > most:
        chosen = random.Random(count).sample(chosen, most)
    outcomes = {"as before": 0, "reported": 0, "refused": 0, "named by verify": 0}
    for path, place, bit in chosen:
        data = bytearray(recorded(name)[path])
        data[place] ^= bit
        files = recorded(name) | {path: bytes(data)}
        found = start(files, times)
        if found.reported:
            assert any(path.rpartition("/")[2 if path.count("/") == 2 else 0] in text for text in found.reported), found
            outcomes["reported"] += 1
        elif found.answers == expected.answers:
            outcomes["as before"] += 1
        else:
            assert not path.endswith(HINTS), f"byte {place} of {path} changed an answer"
            refused = [tp for tp, answers in found.answers.items() if answers is None]
            if refused:
                outcomes["refused"] += 1
            else:
                assert (
                    named_by_verify(files)
                    or is_shorter(found, expected)
                    or is_unchecked(path, recorded(name)[path], place)
                ), (path, place)
                outcomes["named by verify"] += 1
    return outcomes


def is_unchecked(path: str, data: bytes, place: int) -> bool:
    """Returns whether no checksum covers the byte: base offset and leader epoch of a batch, which the leader writes,
    and log start offsets.
    """
    if path.endswith(LOG_START_CHECKPOINT):
        return True
    for position, header in iter_headers(data) if path.endswith(".log") else ():
        if position <= place < position + header.size_bytes:
            inside = place - position
            return inside < 8 or 12 <= inside < 16
    return False


def is_shorter(found: Started, expected: Started) -> bool:
    """Returns whether each log has a prefix of its records: after a kill the end of the log is scanned, and truncated
    at the first damaged batch.
    """
    for topic_partition, answers in found.answers.items():
        before = expected.answers[topic_partition]
        if (
            answers is not None
            and before is not None
            and not set(map(str, answers.records)) <= set(map(str, before.records))
        ):
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_no_flip_makes_a_wrong_answer(name: str) -> None:
    outcomes = sweep(name, 4, most=60)
    assert outcomes["as before"] > 10
    assert sum(outcomes.values()) >= 40


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_no_flip_of_many_makes_a_wrong_answer(name: str) -> None:
    assert sum(sweep(name, 30).values()) > 500


def test_the_sweep_starts_from_sound_directories() -> None:
    for name in NAMES:
        expected, _ = sound(name)
        assert expected.reported == []
        assert all(answers is not None for answers in expected.answers.values())
        assert sum(len(answers.records) for answers in expected.answers.values() if answers) >= 30
    assert f"{ROOT}/{CLEAN_SHUTDOWN_FILE}" in recorded("stage1-clean-shutdown")
