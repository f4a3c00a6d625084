"""Reports to the controller in which of `log.dirs` the replicas of this broker are (KIP-858, AssignReplicasToDirs).

    assign -> ready, the newest directory of each replica -> one request at a time -> done, or ready after a backoff

Invariants
- An assignment is sent until the controller has accepted it, a newer one replaces it, or the replica is no longer on
  this broker.
- `done` is called once, when the controller has accepted the assignment; never for one that was replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host, Timer
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

#: The maximum number of replicas in one request, as in Kafka.
REPLICAS_PER_REQUEST: Final = 2250
_BACKOFF_MS: Final = 100
_BACKOFF_MS_MAX: Final = 10_000
#: Consecutive failures before one is logged.
_QUIET_FAILURES: Final = 3

#: Sends a request to the active controller; the response is None if none arrived.
SendRequest = Callable[[AssignReplicasToDirsRequest, Callable[[Message | None], None]], None]
#: (topic id, partition)
_Replica = tuple[bytes, int]


class _Assignment(NamedTuple):
    directory_id: bytes
    done: Callable[[], None]


class DirectoryAssignments:
    """The directory assignments to report. `send` sends a request; `epoch` returns the broker epoch, -1 before it is
    registered."""

    def __init__(
        self, host: Host, node_id: int, store: MetadataStore, epoch: Callable[[], int], send: SendRequest
    ) -> None:
        self._host = host
        self._node_id = node_id
        self._store = store
        self._epoch = epoch
        self._send_request = send
        self._ready: dict[_Replica, _Assignment] = {}
        self._sent: dict[_Replica, _Assignment] = {}
        self._timer: Timer | None = None
        self._failures = 0
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of replicas whose directory the controller has not accepted yet."""
        return len(self._ready) + sum(replica not in self._ready for replica in self._sent)

    def close(self) -> None:
        """Stops sending assignments. After its next start, the broker reports those that the metadata lacks."""
        self._closed = True
        self._ready.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, done: Callable[[], None]) -> None:
        """Queues the assignment of a replica to a directory; one request soon reports it together with the others of
        the same event.
        """
        replica = (topic_id, partition)
        if self._closed:
            return
        self._ready[replica] = _Assignment(directory_id, done)
        self._send_later(0)

    def _send_later(self, delay_ms: int) -> None:
        if self._timer is None and not self._sent and self._ready and not self._closed:
            self._timer = self._host.timers.call_later(delay_ms, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._closed:
            return
        for replica in [replica for replica in self._ready if not self._is_ours(replica)]:
            del self._ready[replica]
        if self._ready and self._epoch() < 0:
            self._send_later(_BACKOFF_MS)
            return
        chosen = list(self._ready)[:REPLICAS_PER_REQUEST]
        if not chosen:
            return
        self._sent = {replica: self._ready.pop(replica) for replica in chosen}
        directories = {replica: assignment.directory_id for replica, assignment in self._sent.items()}
        self._send_request(build_request(self._node_id, self._epoch(), directories), self._on_answer)

    def _is_ours(self, replica: _Replica) -> bool:
        topic = self._store.image.topics_by_id.get(replica[0])
        if topic is None or replica[1] >= len(topic.partitions):
            return False
        return self._node_id in topic.partitions[replica[1]].replicas

    def _on_answer(self, response: Message | None) -> None:
        sent, self._sent = self._sent, {}
        if self._closed:
            return
        codes = _codes_of(response)
        decided = [assignment for replica, assignment in sent.items() if codes.get(replica) == ErrorCode.NONE]
        refused = {replica: assignment for replica, assignment in sent.items() if codes.get(replica) != ErrorCode.NONE}
        for replica, assignment in refused.items():
            self._ready.setdefault(replica, assignment)
        if refused:
            self._failures += 1
            if self._failures > _QUIET_FAILURES:
                self._report(refused, codes, response)
            self._send_later(min(_BACKOFF_MS << min(self._failures - 1, 10), _BACKOFF_MS_MAX))
        else:
            self._failures = 0
            self._send_later(0)
        for assignment in decided:
            assignment.done()

    def _report(
        self, refused: dict[_Replica, _Assignment], codes: dict[_Replica, int], response: Message | None
    ) -> None:
        names = sorted({ErrorCode(codes[replica]).name for replica in refused if replica in codes})
        overall = getattr(response, "error_code", None)
        why = ", ".join(names) if names else "no answer" if overall is None else ErrorCode(overall).name
        self._host.faults.report(f"the controller has not accepted the directories of {len(refused)} replicas: {why}")


def build_request(
    broker_id: int, broker_epoch: int, directories: dict[tuple[bytes, int], bytes]
) -> AssignReplicasToDirsRequest:
    """Builds a request from (topic id, partition) -> directory id, grouped in the order of first occurrence."""
    grouped: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, partition), directory_id in directories.items():
        grouped.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        directories=[
            AssignReplicasToDirsRequest.DirectoryData(
                id=directory_id,
                topics=[
                    AssignReplicasToDirsRequest.TopicData(
                        topic_id=topic_id,
                        partitions=[
                            AssignReplicasToDirsRequest.PartitionData(partition_index=index) for index in partitions
                        ],
                    )
                    for topic_id, partitions in topics.items()
                ],
            )
            for directory_id, topics in grouped.items()
        ],
    )


def _codes_of(response: Message | None) -> dict[_Replica, int]:
    """Returns the error code of each replica, or nothing if the controller refused the whole request."""
    if not isinstance(response, AssignReplicasToDirsResponse) or response.error_code != ErrorCode.NONE:
        return {}
    return {
        (topic.topic_id, partition.partition_index): partition.error_code
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
    }
