"""The check of what a broker's disk says twice: indexes, snapshots and checkpoints against the batches of each log.

Files are decoded by `log_files` and compared by `log_rules`, which share no code with the broker. The checker looks at
moments that are cheap: after each start, at each end of a process, at intervals in between, and when `check_all` ends
the run. The disk model judges each log by itself: what was written must be there after a kill, and what was synced
after a power failure, before replication mends the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.common.types import INTERNAL_TOPICS
from barnabas.simulation.history import Violation
from barnabas.simulation.log_files import LogFiles, SavedProducer, SegmentFiles, read_log, read_offsets
from barnabas.simulation.log_rules import (
    ProducerDict,
    wrong_aborted,
    wrong_epochs,
    wrong_index,
    wrong_producers,
    wrong_times,
)
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import SECOND_US
from barnabas.storage.log import Log

_INTERVAL_US = 10 * SECOND_US
_SYNCS_EACH_APPEND = 1
#: In the order of the fields of `_Checkpoints`.
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")
#: Producer id, first offset, offset of the marker, LSO.
_Aborted = tuple[int, int, int, int]


class Kept(NamedTuple):
    """What a process left of one log: its end, and the end of what was synced."""

    topic_id: bytes
    written_end: int
    synced_end: int
    log_start_offset: int


class _Checkpoints(NamedTuple):
    """The entries of one log in the checkpoints of its directory, 0 where there is none."""

    recovery_point: int
    log_start_offset: int
    cleaned_to: int


class _Life:
    """What is known about one process of a node, and what it left when it ended."""

    def __init__(self, node: Node, now_us: int) -> None:
        self.broker = node.broker
        self.checked_us = now_us
        self.crashes, self.wipes = node.disk.crashes, node.disk.wipes
        self.kept: dict[str, Kept] = {}


class StorageFiles:
    """The checker of the files of all logs."""

    def __init__(self, cluster: Cluster, interval_us: int = _INTERVAL_US) -> None:
        self._cluster = cluster
        self._interval_us = interval_us
        self._lives: dict[str, _Life] = {}
        self._found_at_an_end: list[Violation] = []
        #: The number of logs that were compared.
        self.compared = 0

    def check(self, cluster: Cluster) -> None:
        if self._found_at_an_end:
            raise self._found_at_an_end[0]
        now_us = cluster.world.now_us
        is_end = len(cluster.dirty) == len(cluster.nodes)
        for node in cluster.dirty:
            life = self._lives.get(node.name)
            if node.broker is None or not node.is_running:
                continue
            if life is None or life.broker is not node.broker:
                self._begin(node, life)
            elif is_end or now_us >= life.checked_us + self._interval_us:
                life.checked_us = now_us
                self._check_node(node)

    def _begin(self, node: Node, before: _Life | None) -> None:
        """Checks a process that has just opened its logs against what the one before left."""
        life = self._lives[node.name] = _Life(node, self._cluster.world.now_us)
        process = node.machine.process
        assert process is not None
        process.when_ended(lambda cause: self._on_end(node, life, cause))
        if before is not None and before.wipes == node.disk.wipes:
            is_crash = before.crashes != node.disk.crashes
            for name, log in _logs(node):
                kept = before.kept.get(name)
                if kept is not None and kept.topic_id == log.topic_id:
                    _check_kept(node, name, log, kept, is_crash=is_crash)
        self._check_node(node)

    def _on_end(self, node: Node, life: _Life, cause: str) -> None:
        if node.broker is not life.broker:
            return
        try:
            # A fatal error can end a process in the middle of a change.
            if not cause.startswith("fatal"):
                self._check_node(node)
            for name, log in _logs(node):
                with node.disk.without_effects():
                    files = read_log(node.disk, log.directory)
                synced_end = _synced_end(node, files)
                ends = (files.segments[-1].end_offset if files.segments else 0, synced_end)
                life.kept[name] = Kept(log.topic_id, *ends, log.log_start_offset)
                if log.config.flush_messages == _SYNCS_EACH_APPEND and synced_end < ends[0]:
                    where = f"{name} on {node.name}"
                    raise Violation(f"{where} has flush.messages=1, ends at {ends[0]} and is synced to {synced_end}")
        except Violation as found:
            self._found_at_an_end.append(found)

    # -- one look at a node

    def _check_node(self, node: Node) -> None:
        with node.disk.without_effects():
            by_root: dict[str, list[dict[str, int]]] = {}
            for name, log in _logs(node):
                root = log.directory.rpartition("/")[0]
                if root not in by_root:
                    by_root[root] = [read_offsets(node.disk, f"{root}/{file}") for file in _CHECKPOINTS]
                said = _Checkpoints(*(offsets.get(name, 0) for offsets in by_root[root]))
                problem = self._check_log(node, log, said)
                if problem is not None:
                    raise Violation(f"kept twice and not the same: {log.directory} on {node.name}: {problem}")

    def _check_log(
        self, node: Node, log: Log, said: _Checkpoints) -> str | None:
        self.compared += 1
        files = read_log(node.disk, log.directory)
        if log.segments.active.has_files and [s.base_offset for s in files.segments] != list(log.segments.bases):
            return f"the segments are {log.segments.bases}, the files {[s.base_offset for s in files.segments]}"
        if files.segments and files.segments[-1].end_offset != log.log_end_offset:
            return f"the LEO is {log.log_end_offset}, the last batch ends at {files.segments[-1].end_offset}"
        if said.log_start_offset > log.log_start_offset:
            return f"the log start offset is {log.log_start_offset}, its checkpoint says {said.log_start_offset}"
        for place, point in (("checkpoint", said.recovery_point), ("log", log.recovery_point)):
            unsynced = _first_unsynced(node, files, point)
            if unsynced is not None:
                return f"the recovery point of the {place} is {point}, the batch at {unsynced} is not synced"
        # Compaction removes what the replay of producers needs. A log that was just opened has the default settings.
        is_compacted = log.config.is_compacted or log.topic_partition.topic in INTERNAL_TOPICS
        is_cleaned = said.cleaned_to > 0 or (is_compacted and len(files.segments) > 1)
        wrong = _wrong_epochs(log, files) or _wrong_segments(log, files)
        return wrong or (None if is_cleaned else _wrong_producers(node, log, files))


def _logs(node: Node) -> list[tuple[str, Log]]:
    """Returns the current logs in directories that work, by the names of their directories."""
    assert node.broker is not None
    logs, offline = node.broker.logs, node.broker.logs.offline_directories
    found = ((log.directory.rpartition("/"), log) for log in logs)
    return [(name, log) for (root, _, name), log in found if root not in offline and node.disk.is_dir(log.directory)]


def _check_kept(node: Node, name: str, log: Log, kept: Kept, *, is_crash: bool) -> None:
    expected = kept.synced_end if is_crash else kept.written_end
    if log.log_end_offset < expected:
        what = "was synced before the power failed" if is_crash else "was written before the process ended"
        raise Violation(
            f"a disk kept less than it must: {name} on {node.name} ends at {log.log_end_offset} after its start; "
            f"{expected} {what}"
        )
    if not is_crash and log.log_start_offset > max(kept.log_start_offset, log.segments.bases[0]):
        raise Violation(
            f"{name} on {node.name} starts at {log.log_start_offset}, before the restart at {kept.log_start_offset}"
        )


def _synced_end(node: Node, files: LogFiles) -> int:
    """Returns the end of the batches that a power failure leaves, without a gap."""
    end = files.segments[0].base_offset if files.segments else 0
    for segment in files.segments:
        safe = node.disk.durable_bytes(segment.path)
        for batch in segment.batches:
            if batch.position + batch.size > safe:
                return end
            end = batch.last_offset + 1
    return end


def _first_unsynced(node: Node, files: LogFiles, recovery_point: int) -> int | None:
    """Returns the first batch below the recovery point that a power failure can take."""
    for segment in files.segments:
        if segment.base_offset >= recovery_point or not segment.batches:
            continue
        safe = node.disk.durable_bytes(segment.path)
        if safe < segment.whole_bytes:
            for batch in segment.batches:
                if batch.base_offset < recovery_point and batch.position + batch.size > safe:
                    return batch.base_offset
    return None


def _wrong_epochs(log: Log, files: LogFiles) -> str | None:
    first = max(log.log_start_offset, files.segments[0].base_offset) if files.segments else 0
    known = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
    wrong = wrong_epochs(known, files.batches(), first, log.log_end_offset)
    if wrong is not None:
        return f"in memory, {wrong}"
    wrong = wrong_epochs(files.epochs, files.batches(), first, log.recovery_point)
    return None if wrong is None else f"in leader-epoch-checkpoint, {wrong}"


def _wrong_segments(log: Log, files: LogFiles) -> str | None:
    for segment, own in zip(files.segments, log.segments, strict=False):
        if segment.whole_bytes != segment.log_bytes or own.size_bytes != segment.log_bytes:
            return f"{segment.path} has {segment.log_bytes} bytes, {segment.whole_bytes} in batches, {own.size_bytes} known"
        # Without space, the last entries of a rolled segment wait in memory.
        is_complete = own is not log.segments.active and not own.time_index.is_loaded
        wrong = wrong_index(segment) or wrong_times(segment, is_complete=is_complete)
        if wrong is not None:
            return f"{segment.base_offset}: {wrong}"
    return None


def _wrong_producers(node: Node, log: Log, files: LogFiles) -> str | None:
    """Compares producer snapshots, aborted transactions and the producers in memory with a replay of the log."""
    if not files.segments:
        return None
    known = ProducerDict(files.segments[0].base_offset)
    waiting = sorted(files.snapshots)
    start = log.log_start_offset

    def check_snapshots(end: int) -> str | None:
        while waiting and waiting[0] <= end:
            offset = waiting.pop(0)
            said = {producer.producer_id: producer for producer in files.snapshots[offset]}
            path = f"{log.directory}/{offset:020d}.snapshot"
            expires_ms = node.disk.modified_ms(path) - log.producers.expiration_ms
            if (wrong := wrong_producers(said, known, start, expires_ms)) is not None:
                return f"{path}: {wrong}"
        return None

    for batch in files.batches():
        if waiting and (wrong := check_snapshots(batch.base_offset)) is not None:
            return wrong
        known.add(batch)
    if (wrong := check_snapshots(log.log_end_offset)) is not None:
        return wrong
    if waiting:
        return f"there are producer snapshots of {waiting}, the log ends at {log.log_end_offset}"
    expires_ms = node.machine.clock.wall_ms() - log.producers.expiration_ms
    wrong = wrong_producers(_producers_of(log), known, start, expires_ms)
    return f"in memory, {wrong}" if wrong is not None else _wrong_aborted(log, files, known)


def _wrong_aborted(log: Log, files: LogFiles, known: ProducerDict) -> str | None:
    for segment, own in zip(files.segments, log.segments, strict=False):
        if not known.aborted and not segment.aborted:
            continue
        said = _aborted_of(segment, own.txn_index.entries() if own.txn_index.is_loaded else [])
        wrong = wrong_aborted(segment, said, known.aborted, log.log_start_offset, is_complete=True)
        if wrong is not None:
            return f"{segment.base_offset}: {wrong}"
    return None


def _aborted_of(segment: SegmentFiles, in_memory: Sequence[tuple[int, int, int, int]]) -> list[_Aborted]:
    """Returns the entries of the file, and those that wait in memory for space on the disk."""
    return [*segment.aborted, *(tuple(entry) for entry in in_memory[len(segment.aborted) :])]


def _producers_of(log: Log) -> dict[int, SavedProducer]:
    """Returns the producers in memory, as a snapshot would have them."""
    found = {}
    for producer_id, entry in log.producers.producers.items():
        batch = entry.batches[-1] if entry.batches else None
        found[producer_id] = SavedProducer(
            producer_id,
            entry.epoch,
            entry.last_sequence,
            -1 if batch is None else batch.last_offset,
            0 if batch is None else batch.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.txn_first_offset is None else entry.txn_first_offset,
        )
    return found
