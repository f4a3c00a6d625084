"""Second decisions about fetches from a leader: which answers do not wait for more data, what is still to be loaded,
which positions of followers are noted, and which replicas can have a log here.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas.replication.fetch_items import FetchResult
from barnabas.replication.fetching import FetchRound
from barnabas.simulation.second_decisions import Arguments, SecondDecision

_NOT_WAITED_FOR: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
_CODES: Final = (*_NOT_WAITED_FOR, ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_UNKNOWN: Final = -1
_ONLINE, _LOST = b"\x05" * 16, b"\x06" * 16


# -- answers


def _counted(outcome: Any, result: Any) -> object:
    """Returns the size of an answer with one more result, whether it can wait, and whether it must not."""
    size = outcome.size_bytes + len(result.data)
    if result.error in _NOT_WAITED_FOR:
        return size, outcome.can_wait, outcome.is_urgent
    reasons = [outcome.is_urgent, result.is_urgent, result.error is not ErrorCode.NONE, result.diverging is not None]
    return size, True, any(reasons)


def _count_state(_: Any, outcome: Any, result: Any) -> object:
    return outcome.size_bytes, outcome.can_wait, outcome.is_urgent


def _near_counts(outcome: Any, result: Any) -> Iterator[Arguments]:
    for code, diverging, urgent, before in product(_CODES, (None, (3, 9)), (False, True), (False, True)):
        made, one = FetchRound((), outcome.plan), FetchResult(code)
        made.is_urgent, one.is_urgent, one.diverging, one.data = before, urgent, diverging, bytes(7)
        yield made, one


def _reserved(outcome: Any, item: Any, read: Any, remaining: int, min_one_batch: bool) -> object:
    """Returns the bytes that a partition takes before its data are loaded, and its place in the answer."""
    budget = min(item.max_bytes, remaining)
    places = [cold.place for cold in outcome.cold]
    return min(budget, read.size_bytes_max), [*places, len(outcome.results)], len(outcome.results) + 1, budget


def _reserved_state(result: int, outcome: Any, *more: Any) -> object:
    last = outcome.cold[-1].budget if outcome.cold else None
    return result, [cold.place for cold in outcome.cold], len(outcome.results), last


def _near_reserved(outcome: Any, item: Any, read: Any, remaining: int, min_one_batch: bool) -> Iterator[Arguments]:
    for most, size, left, count in product((0, 5, 10), (3, 5, 20), (0, 4, 5, 6, 30), (0, 2)):
        made = FetchRound((), outcome.plan)
        made.results = [FetchResult() for _ in range(count)]
        asked: Any = SimpleNamespace(max_bytes=most, offset=7)
        yield made, asked, SimpleNamespace(size_bytes_max=size), left, min_one_batch


# -- positions of followers


def _noted(partition: Any, item: Any, plan: Any) -> object:
    """Returns the end of the follower's log as the leader knows it after the fetch."""
    known = None if partition.leadership is None else partition.leadership.followers.get(plan.replica_id)
    places = range(partition.log.log_start_offset, partition.log.log_end_offset + 1)
    if not plan.is_first_read or item.offset not in places:
        return None if known is None else known.leo
    epoch = plan.reader.replica_epoch
    if known is None or (epoch != _UNKNOWN and known.broker_epoch > epoch):
        raise RequestFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return item.offset


def _known_end(_: Any, partition: Any, item: Any, plan: Any) -> object:
    known = None if partition.leadership is None else partition.leadership.followers.get(plan.replica_id)
    return None if known is None else known.leo


# -- logs of replicas


def _may_be_here(replicas: Any, topic_partition: Any, image: Any) -> bool:
    """Returns whether a new log cannot hide an older one in a directory that is offline."""
    log = replicas.logs.get(topic_partition)
    offline = set(replicas._roots.offline)
    if log is not None:
        return log.directory.rpartition("/")[0] not in offline
    directory = image.directory_of(replicas._node_id)
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return not offline
    is_here = any(each.id == directory and each.path not in offline for each in replicas._roots._open.values())
    return is_here or (not offline and len(image.replicas) > 1)


class _Roots:
    """The directories of probes: one is online, another one possibly offline."""

    def __init__(self, offline: Any) -> None:
        self.offline = offline
        self._open = {"/a": SimpleNamespace(path="/a", id=_ONLINE)}

    def has_online(self, directory_id: bytes) -> bool:
        return directory_id == _ONLINE

    def is_offline(self, directory: str) -> bool:
        return directory.rpartition("/")[0] in self.offline


def _near_directories(replicas: Any, topic_partition: Any, image: Any) -> Iterator[Arguments]:
    node_id = replicas._node_id
    ids = UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, _ONLINE, _LOST
    for offline, found, directory, others in product(({}, {"/b": 1}), (None, "/a", "/b"), ids, ((), (98, 99))):
        other = copy(replicas)
        other._roots = _Roots(set(offline))
        log = None if found is None else SimpleNamespace(directory=f"{found}/orders-0")
        other.logs = {} if log is None else {TopicPartition("orders", 0): log}
        replica_ids = (node_id, *others)
        changed = image._replace(replicas=replica_ids, directories=(directory,) * len(replica_ids))
        yield other, TopicPartition("orders", 0), changed


FETCH_DECISIONS: Final = (
    SecondDecision("replication.fetching:_count", _counted, _near_counts, _count_state),
    SecondDecision("replication.fetching:_take_cold", _reserved, _near_reserved, _reserved_state),
    SecondDecision("replication.fetching:_note_follower", _noted, shown=_known_end),
    SecondDecision(
        "replication.replica_manager:ReplicaManager._may_have_log", _may_be_here, _near_directories, judged_every=50
    ),
)
