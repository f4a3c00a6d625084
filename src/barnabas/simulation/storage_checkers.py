"""The check of redundant data on a broker's disk: indexes, snapshots and checkpoints against the batches of each log.

Files are decoded by `log_files` and compared by `log_rules`, which share no code with the broker. Checks run when they
are cheap: after each start, at each end of a process, at intervals in between, and when `check_all` ends the run. The
disk model judges each log by itself: what was written must be there after a kill, and what was synced after a power
failure, before replication mends the log.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.replication.partition import Role
from barnabas.simulation.faulty_disk import has_durable_name
from barnabas.simulation.history import Violation
from barnabas.simulation.log_comparison import Checkpoints, synced_end, wrong_log
from barnabas.simulation.log_files import LogFiles, read_log, read_offsets
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import SECOND_US
from barnabas.storage.log import Log

_INTERVAL_US = 10 * SECOND_US
_SYNCS_EACH_APPEND = 1
#: The files of the fields of `Checkpoints`, in their order.
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")


class LogRemains(NamedTuple):
    """The remains of one log at the end of a process: its end, and the end of what was synced."""

    topic_id: bytes
    written_end: int
    synced_end: int
    log_start_offset: int


class _NodeProcess:
    """One process of a node, and the remains of its logs when it ended."""

    def __init__(self, node: Node, now_us: int) -> None:
        self.broker = node.broker
        self.checked_us = self.noted_us = now_us
        self.crashes, self.wipes = node.disk.crashes, node.disk.wipes
        self.kept: dict[str, LogRemains] = {}
        #: The end of each log whose appends are synced one by one, when that was first found.
        self.syncs_from: dict[str, int] = {}

    def note_syncs(self, node: Node) -> None:
        """Finds the logs whose appends are synced one by one. Records from before such a setting need not be synced
        until the next append.
        """
        ends = {name: log.log_end_offset for name, log in _logs(node) if _syncs_each_append(log)}
        self.syncs_from = {name: min(end, self.syncs_from.get(name, end)) for name, end in ends.items()}


class StorageFiles:
    """Checks the files of all logs."""

    def __init__(self, cluster: Cluster, interval_us: int = _INTERVAL_US) -> None:
        self._cluster = cluster
        self._interval_us = interval_us
        self._processes: dict[str, _NodeProcess] = {}
        self._found_at_an_end: list[Violation] = []
        #: The number of logs that were compared.
        self.compared = 0

    def check(self, cluster: Cluster) -> None:
        if self._found_at_an_end:
            raise self._found_at_an_end[0]
        now_us = cluster.world.now_us
        is_end = cluster.checks_all
        for node in cluster.dirty:
            current = self._processes.get(node.name)
            if node.broker is None or not node.is_running:
                continue
            if current is None or current.broker is not node.broker:
                current = self._begin(node, current)
            elif is_end or now_us >= current.checked_us + self._interval_us:
                current.checked_us = now_us
                self._check_node(node)
            if now_us >= current.noted_us + SECOND_US:
                current.noted_us = now_us
                current.note_syncs(node)

    def _begin(self, node: Node, before: _NodeProcess | None) -> _NodeProcess:
        """Checks a process that has just opened its logs against what the one before left."""
        current = self._processes[node.name] = _NodeProcess(node, self._cluster.world.now_us)
        process = node.machine.process
        assert process is not None
        process.when_ended(lambda cause: self._on_end(node, current, cause))
        if before is not None and before.wipes == node.disk.wipes:
            is_crash = before.crashes != node.disk.crashes
            for name, log in _logs(node):
                kept = before.kept.get(name)
                if kept is not None and kept.topic_id == log.topic_id:
                    _check_kept(node, name, log, kept, is_crash=is_crash)
        self._check_node(node)
        current.note_syncs(node)
        return current

    def _on_end(self, node: Node, current: _NodeProcess, cause: str) -> None:
        if node.broker is not current.broker:
            return
        try:
            # A fatal error can end a process in the middle of a change.
            if not cause.startswith("fatal"):
                self._check_node(node)
            for name, log in _logs(node):
                with node.disk.without_effects():
                    files = read_log(node.disk, log.directory)
                safe_end = synced_end(node.disk, files)
                end = files.segments[-1].end_offset if files.segments else 0
                kept_end = 0 if _is_begun_anew(node, log, files) else safe_end
                current.kept[name] = LogRemains(log.topic_id, end, kept_end, log.log_start_offset)
                if _syncs_each_append(log) and safe_end < end > current.syncs_from.get(name, end):
                    where = f"{name} on {node.name}"
                    raise Violation(f"{where} has flush.messages=1, ends at {end} and is synced to {safe_end}")
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
                said = Checkpoints(*(offsets.get(name, 0) for offsets in by_root[root]))
                self.compared += 1
                problem = wrong_log(node.disk, node.machine.clock.wall_ms(), log, said)
                if problem is not None:
                    raise Violation(f"kept twice and not the same: {log.directory} on {node.name}: {problem}")


def _logs(node: Node) -> list[tuple[str, Log]]:
    """Returns the current logs in directories that work, by the names of their directories."""
    assert node.broker is not None
    logs, offline = node.broker.logs, node.broker.logs.offline_directories
    found = ((log.directory.rpartition("/"), log) for log in logs)
    return [(name, log) for (root, _, name), log in found if root not in offline and node.disk.is_dir(log.directory)]


def _syncs_each_append(log: Log) -> bool:
    return log.config.flush_messages == _SYNCS_EACH_APPEND


def _is_begun_anew(node: Node, log: Log, files: LogFiles) -> bool:
    """Returns whether a follower has begun its log at the leader's start offset, in a file that a power failure can
    take: then it begins again after the power failure, with an empty log.
    """
    assert node.broker is not None
    replica = node.broker.replicas.find(*log.topic_partition)
    is_follower = replica is not None and replica.role is Role.FOLLOWER
    return is_follower and bool(files.segments) and not has_durable_name(node.disk, files.segments[0].path)


def _check_kept(node: Node, name: str, log: Log, kept: LogRemains, *, is_crash: bool) -> None:
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
