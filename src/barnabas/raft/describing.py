"""DescribeQuorum: the state of all replicas as the leader knows it (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.common.types import METADATA_TOPIC
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.raft.core import Core
from barnabas.raft.messages import only_partition
from barnabas.raft.progress import UNKNOWN, ReplicaState
from barnabas.raft.quorum import Leader

_NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader."
)
_UNKNOWN = "This server does not host this topic-partition."


def describe_quorum(core: Core, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if only_partition(request) is None:
        return _refused(request)
    leader = core.quorum.role
    if not isinstance(leader, Leader):
        partition = DescribeQuorumResponse.PartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=_NOT_LEADER
        )
        return _response([partition])
    progress = leader.progress
    partition = DescribeQuorumResponse.PartitionData(
        leader_id=core.own.node_id,
        leader_epoch=leader.epoch,
        high_watermark=progress.high_watermark,
        current_voters=[_state(core, state) for state in progress.voters],
        observers=[_state(core, state) for state in progress.observers(core.now_ms)],
    )
    response = _response([partition])
    response.nodes = [
        DescribeQuorumResponse.Node(
            node_id=voter.key.node_id,
            listeners=[
                DescribeQuorumResponse.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                for endpoint in voter.endpoints
            ],
        )
        for voter in core.quorum.voters
    ]
    return response


def _response(partitions: list[DescribeQuorumResponse.PartitionData]) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData(topic_name=METADATA_TOPIC, partitions=partitions)]
    )


def _refused(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponse.PartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=_UNKNOWN,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _state(core: Core, state: ReplicaState) -> DescribeQuorumResponse.ReplicaState:
    """Returns the state of one replica, with times in wall-clock ms; for the leader itself the time is now. A static
    voter is listed without a directory, as by Kafka 4.1 (`LeaderState.describeReplicaState`).
    """
    wall_ms, now_ms = core.host.clock.wall_ms(), core.now_ms
    is_own = state.key.node_id == core.own.node_id

    def shown(time_ms: int) -> int:
        if is_own:
            return wall_ms
        return -1 if time_ms == UNKNOWN else wall_ms - (now_ms - time_ms)

    return DescribeQuorumResponse.ReplicaState(
        replica_id=state.key.node_id,
        replica_directory_id=state.key.directory_id,
        log_end_offset=core.log.end_offset if is_own else state.end_offset,
        last_fetch_timestamp=shown(state.last_fetch_ms),
        last_caught_up_timestamp=shown(state.last_caught_up_ms),
    )
