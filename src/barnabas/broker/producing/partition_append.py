"""The parts of one produce request: its batches by topic and partition, and the results of their appends."""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.records.deferred import DeferredValidation
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import Appended, ReplicaManager

#: The result of batches that are not appended yet.
UNDECIDED: Final = Appended(ErrorCode.UNKNOWN_SERVER_ERROR)
NO_DATA: Final = memoryview(b"")


class PartitionAppend:
    """The batches of a request for one partition, then the result of their append."""

    __slots__ = ("data", "index", "partition", "result", "topic", "validated")

    def __init__(self, topic: str | bytes, index: int, data: Buffer) -> None:
        #: The topic's name; from version 13 of Produce, its id.
        self.topic = topic
        self.index = index
        #: The batches, possibly as a view into the receive buffer; empty once there is a result.
        self.data = data
        #: The partition, which the append looks up; None before, and if this broker does not lead it.
        self.partition: Partition | None = None
        self.result = UNDECIDED
        #: The completed validation of batches that take long to decompress.
        self.validated: DeferredValidation | None = None

    def finish(self, result: Appended) -> None:
        self.result = result
        self.data = NO_DATA
        self.validated = None

    def fail(self, code: ErrorCode) -> None:
        """Replaces the result by this error."""
        self.result = self.result._replace(error=code)


#: The appends of a request by topic, in its order.
TopicAppends = list[tuple[str | bytes, list[PartitionAppend]]]


def refuse_all(topics: TopicAppends, code: ErrorCode) -> None:
    """Refuses every batch of a request with the same error."""
    refusal = Appended(code)
    for _, appends in topics:
        for append in appends:
            append.finish(refusal)


def name_of(replicas: ReplicaManager, topic: str | bytes) -> str:
    """Returns the name of a topic that a request names; empty for an unknown id."""
    if isinstance(topic, str):
        return topic
    image = replicas.topic_of(topic)
    return "" if image is None else image.name
