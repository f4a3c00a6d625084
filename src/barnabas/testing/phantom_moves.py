"""The moves of a phantom cluster: reassignments and copies between log directories, which progress as a test says."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.testing.phantom_state import PhantomPartition, PhantomState


def directory(broker: int, number: int = 0) -> str:
    return f"/data/{broker}" if number == 0 else f"/data/{broker}-{number}"


class PhantomMoves:
    """Answers requests about moves by the state that all brokers of the cluster share."""

    def __init__(self, state: PhantomState) -> None:
        self._state = state

    def list_reassignments(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        shown = ListPartitionReassignmentsResponse.OngoingTopicReassignment
        row = ListPartitionReassignmentsResponse.OngoingPartitionReassignment
        topics = []
        for (name, index), (adding, removing) in sorted(self._state.reassigned.items()):
            replicas = [*self._state.topics[name].partitions[index].replicas, *adding]
            one = row(partition_index=index, replicas=replicas, adding_replicas=adding, removing_replicas=removing)
            topics.append(shown(name=name, partitions=[one]))
        return ListPartitionReassignmentsResponse(topics=topics)

    def alter_reassignments(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        shown = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
        row = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
        topics = []
        for topic in request.topics:
            rows = [
                row(partition_index=each.partition_index, error_code=self._alter(topic.name, each))
                for each in topic.partitions
            ]
            topics.append(shown(name=topic.name, partitions=rows))
        self._state.volume_version += 1
        return AlterPartitionReassignmentsResponse(responses=topics)

    def _alter(self, name: str, wanted: AlterPartitionReassignmentsRequest.ReassignablePartition) -> int:
        partition, key = self._find(name, wanted.partition_index), (name, wanted.partition_index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if wanted.replicas is None:
            is_running = self._state.reassigned.pop(key, None) is not None
            return ErrorCode.NONE if is_running else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        adding = [each for each in wanted.replicas if each not in partition.replicas]
        removing = [each for each in partition.replicas if each not in wanted.replicas]
        self._state.reassigned.pop(key, None)
        if adding or removing:
            self._state.reassigned[key] = (adding, removing)
        return ErrorCode.NONE

    def alter_directories(self, broker: int, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        shown = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
        row = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult
        results = [
            shown(
                topic_name=topic.name,
                partitions=[
                    row(partition_index=index, error_code=self._place(broker, topic.name, index, each.path))
                    for index in topic.partitions
                ],
            )
            for each in request.dirs
            for topic in each.topics
        ]
        self._state.volume_version += 1
        return AlterReplicaLogDirsResponse(results=results)

    def _place(self, broker: int, name: str, index: int, path: str) -> int:
        state, replica = self._state, (name, index, broker)
        if path not in (directory(broker, number) for number in range(state.directories)):
            return ErrorCode.LOG_DIR_NOT_FOUND
        partition = self._find(name, index)
        if partition is None or broker not in partition.replicas:
            state.preferred[replica] = path
            adding = state.reassigned.get((name, index), ((), ()))[0]
            return ErrorCode.NONE if broker in adding else ErrorCode.REPLICA_NOT_AVAILABLE
        state.futures.pop(replica, None)
        if state.places.get(replica, directory(broker)) != path:
            state.futures[replica] = (path, 0)
        return ErrorCode.NONE

    def _find(self, name: str, index: int) -> PhantomPartition | None:
        topic = self._state.topics.get(name)
        return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None
