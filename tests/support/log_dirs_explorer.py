"""All logs of a broker in two directories in memory: created, written, truncated and deleted, with stops and kills.

A plain model knows where each log begins and ends, and a disk says when files are removed and checkpoints are
written. The promises: a log is created where that was requested, also by a later attempt; what is deleted stays for
`file.delete.delay.ms` and not much longer, and until its recovery point is in no checkpoint; a truncation leaves no
higher recovery point on the disk, and writes the checkpoint only if it has one; a start finds what the last stop left,
knows whether that was clean, and says what is lost, and only that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.support.log_world import encode_records

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import StorageFault
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost, VirtualTime
from barnabas.simulation.log_files import read_batches
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.storage.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    parse_dir_name,
    read_offsets,
)
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

_STEPS = 60
_ROOTS = ("/d1", "/d2")
_PARTITIONS = tuple(TopicPartition(topic, index) for topic in ("a", "b") for index in range(3))
#: The time for what runs in the background once a removal is due.
_SLACK_MS = 2_000
_LOST = "the high watermark was"


class WatchingDisk(MemoryDisk):
    """A disk that tells what is deleted and which checkpoints are written, and on which a directory can be full."""

    full: tuple[str, ...] = ()
    checkpoints = 0
    #: The callbacks of the world: a path is deleted, it is removed, and a directory gets another name.
    condemned: Callable[[str], None]
    removed: Callable[[str], None]
    moved: Callable[[str], None]

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.is_dir(target):
            self.moved(source)
        if target.endswith((".deleted", "-delete")):
            self.condemned(target)
        self.checkpoints += target.endswith(f"/{RECOVERY_POINT_CHECKPOINT}")

    def remove(self, path: str) -> None:
        super().remove(path)
        self.removed(path)

    def remove_tree(self, path: str) -> None:
        self.removed(path)
        super().remove_tree(path)

    def make_dirs(self, path: str) -> None:
        if not self.is_dir(path) and path.startswith(self.full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().make_dirs(path)


@dataclass
class Part:
    """The expected log of a partition."""

    topic_id: bytes
    root: str
    start: int = 0
    end: int = 0
    high_watermark: int = 0


class LogDirsExplorer:
    """The run of one seed. `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"log dirs {seed}")
        self._disk = WatchingDisk()
        self._disk.condemned, self._disk.removed = self._on_condemned, self._on_removed
        self._disk.moved = self._on_moved
        self._delay_ms = self._random.choice((0, 1_000, 60_000))
        self._config = BrokerConfig.from_properties(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:9093",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": ",".join(_ROOTS),
                "log.segment.delete.delay.ms": str(self._delay_ms),
                "log.flush.offset.checkpoint.interval.ms": "3000",
            }
        )
        self._log_config = LogConfig(segment_bytes=500, file_delete_delay_ms=self._delay_ms, index_interval_bytes=1)
        self._parts: dict[TopicPartition, Part] = {}
        self._requested: dict[TopicPartition, str] = {}
        #: Deleted path -> when it can be removed, and the time until when it must be.
        self._condemned: dict[str, tuple[int, int]] = {}
        self._is_starting = False
        self._noted: list[tuple[str, object, object]] = []
        self._host = MemoryHost(seed=1, disk=self._disk)
        self._manager: LogManager
        self._ids = 0

    def run(self) -> None:
        with second_decisions().judging():
            self._start(-1)
            steps = [self._create] * 4 + [self._append] * 5 + [self._truncate] * 3 + [self._pass_time] * 4
            steps += [
                self._delete,
                self._delete_records,
                self._flush,
                self._flush,
                self._commit,
                self._stop,
                self._kill,
            ]
            for _ in range(_STEPS):
                self._random.choice(steps)()
                self._compare()

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"log dirs: {what} is {found!r}, it should be {expected!r}")

    def _note(self, what: str, found: object, expected: object) -> None:
        """Checks within a call of the product, which could take the violation for an error of the disk."""
        if found != expected:
            self._noted.append((what, found, expected))

    # -- what the disk tells

    def _on_condemned(self, path: str) -> None:
        due_ms = self._host.clock.now_ms() + self._delay_ms
        self._condemned[path] = due_ms, due_ms + _SLACK_MS

    def _on_removed(self, path: str) -> None:
        if path not in self._condemned:
            return
        due_ms, _ = self._condemned.pop(path)
        # A start removes deleted segments at once, because nobody reads them.
        if not self._is_starting or path.endswith("-delete"):
            self._note(f"whether {path} is due", self._host.clock.now_ms() >= due_ms, True)
        root, _, name = path.rpartition("/")
        found = parse_dir_name(name)
        if found is not None:
            part = self._parts.get(found.topic_partition)
            if part is None or part.root != root:
                saved = self._saved(root, RECOVERY_POINT_CHECKPOINT)
                self._note(f"the recovery point of {path}", saved.get(found.topic_partition, 0), 0)

    def _on_moved(self, directory: str) -> None:
        """Forgets deleted files that are removed with their directory."""
        for path in [path for path in self._condemned if path.startswith(f"{directory}/")]:
            del self._condemned[path]

    def _saved(self, root: str, name: str) -> dict[TopicPartition, int]:
        return dict(read_offsets(self._disk, f"{root}/{name}"))

    # -- starts and stops

    def _start(self, broker_epoch: int) -> None:
        """Starts after a clean stop with this epoch; -1 if there was none."""
        now_ms = self._host.clock.now_ms()
        self._host = MemoryHost(seed=self._random.getrandbits(32), disk=self._disk, time=VirtualTime(now_ms))
        for path in self._condemned:
            due_ms = now_ms + self._delay_ms
            self._condemned[path] = self._condemned[path][0], due_ms + _SLACK_MS
        self._manager = LogManager(self._host, self._config)
        self._is_starting = True
        saved = {root: self._saved(root, HIGH_WATERMARK_CHECKPOINT) for root in _ROOTS if self._disk.is_dir(root)}
        self._manager.start(high_watermark_of=self._high_watermark_of)
        self._is_starting = False
        is_clean = broker_epoch >= 0
        self._check("the epoch of the last stop", self._manager.previous_broker_epoch, broker_epoch)
        self._check("clean directories", [self._manager.roots.at(root).clean for root in _ROOTS], [is_clean] * 2)
        said = [text.partition(":")[0] for text in self._host.faults.informed if _LOST in text]
        lost = [
            str(each) for each, part in self._parts.items() if not is_clean and saved[part.root].get(each, 0) > part.end
        ]
        self._check("the logs that are said to have lost records", sorted(said), sorted(lost))

    def _high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        part = self._parts.get(topic_partition)
        return None if part is None else part.high_watermark

    def _stop(self) -> None:
        epoch = self._random.randrange(100)
        self._manager.shutdown(epoch)
        self._requested.clear()
        self._start(epoch)

    def _kill(self) -> None:
        """Ends the process. What it wrote is there; the end of a log that was not synced can be torn."""
        self._disk.locked.clear()
        for each, part in self._parts.items():
            log = self._log(each)
            active = log.segments.active
            log.segments.release()
            if self._random.random() < 0.5 and active.has_files:
                data = self._disk.read(active.log_path)
                batches = read_batches(data)
                saved = self._saved(part.root, RECOVERY_POINT_CHECKPOINT).get(each, 0)
                if batches and batches[-1].base_offset >= max(saved, part.start):
                    self._disk.write(active.log_path, data[: -self._random.randrange(1, batches[-1].size + 1)])
                    part.end = batches[-1].base_offset
                    part.high_watermark = min(part.high_watermark, part.end)
        self._requested.clear()
        # The log start offset is in a checkpoint that is possibly not written yet.
        self._start(-1)
        for each, part in self._parts.items():
            part.start = min(part.start, self._log(each).log_start_offset)

    # -- comparison

    def _log(self, topic_partition: TopicPartition) -> Log:
        log = self._manager.get(topic_partition)
        if log is None:
            raise Violation(f"log dirs: {topic_partition} has no log")
        return log

    def _compare(self) -> None:
        for what, value, wanted in self._noted:
            self._check(what, value, wanted)
        found = {
            log.topic_partition: (log.directory.rpartition("/")[0], log.log_start_offset, log.log_end_offset)
            for log in self._manager
        }
        expected = {each: (part.root, part.start, part.end) for each, part in self._parts.items()}
        self._check("the logs", found, expected)
        now_ms = self._host.clock.now_ms()
        late = [path for path, (_, until_ms) in self._condemned.items() if until_ms < now_ms]
        self._check("what should have been removed", late, [])

    # -- steps

    def _any(self) -> TopicPartition | None:
        return self._random.choice(list(self._parts)) if self._parts else None

    def _create(self) -> None:
        each = self._random.choice(_PARTITIONS)
        known = self._parts.get(each)
        if self._random.random() < 0.5:
            root = self._random.choice(_ROOTS)
            self._manager.futures.request(each, root)
            if known is None:
                self._requested[each] = root
        if known is not None:
            self._manager.futures.request_done(each)
            same = self._manager.get_or_create(each, known.topic_id, self._log_config)
            self._check("a log that exists", same, self._log(each))
            return
        self._disk.full = self._random.choice(((), (), ("/d1/",), ("/d2/",), ("/d1/", "/d2/")))
        requested = self._requested.get(each)
        self._ids += 1
        topic_id = self._ids.to_bytes(16, "big")
        try:
            log = self._manager.get_or_create(each, topic_id, self._log_config)
        except StorageFault:
            is_full = any(requested is None or full.startswith(requested) for full in self._disk.full)
            self._check("whether a log can be refused", is_full, True)
            self._check("the requested directory", self._manager.futures.requested(each), requested)
            return
        finally:
            self._disk.full = ()
        root = log.directory.rpartition("/")[0]
        self._check("the directory of a new log", requested in (None, root), True)
        self._check("a request that is done", self._manager.futures.requested(each), None)
        self._requested.pop(each, None)
        self._parts[each] = Part(topic_id, root)

    def _append(self) -> None:
        each = self._any()
        if each is None:
            return
        for _ in range(self._random.choice((1, 3, 9))):
            count = self._random.choice((1, 2))
            wall_ms = self._host.clock.wall_ms()
            batch = encode_records(*range(wall_ms, wall_ms + count))
            self._log(each).append_as_leader(memoryview(batch), 0, wall_ms=wall_ms)
            self._parts[each].end += count

    def _commit(self) -> None:
        for part in self._parts.values():
            part.high_watermark = self._random.randint(max(part.high_watermark, part.start), part.end)

    def _flush(self) -> None:
        each = self._any()
        if each is not None:
            self._log(each).flush()

    def _truncate(self) -> None:
        each = self._any()
        if each is None:
            return
        part, log = self._parts[each], self._log(each)
        directory = self._manager.roots.at(part.root)
        offset = self._random.randint(max(part.start, part.end - 4), part.end)
        is_settled = offset < part.end and not directory.drafts and not directory.unsynced_names
        before, written = self._saved(part.root, RECOVERY_POINT_CHECKPOINT).get(each, 0), self._disk.checkpoints
        log.truncate_to(offset)
        end = log.log_end_offset
        self._check("the end of a truncated log", end <= offset and offset - end < 2, True)
        part.end, part.high_watermark, part.start = end, min(part.high_watermark, end), min(part.start, end)
        saved = self._saved(part.root, RECOVERY_POINT_CHECKPOINT).get(each, 0)
        self._check("whether the recovery point on disk is too high", saved > end, False)
        if is_settled:
            is_written = self._disk.checkpoints > written
            self._check("whether a truncation writes a checkpoint", is_written, before > log.recovery_point)

    def _delete_records(self) -> None:
        each = self._any()
        if each is not None:
            part = self._parts[each]
            part.start = self._random.randint(part.start, max(part.start, part.high_watermark))
            self._log(each).delete_records_before(part.start)

    def _delete(self) -> None:
        each = self._any()
        if each is not None:
            self._manager.delete(each)
            del self._parts[each]
            self._requested.pop(each, None)

    def _pass_time(self) -> None:
        self._host.time.run_for(self._random.choice((1, 900, 1_000, 3_100, 65_000)))
