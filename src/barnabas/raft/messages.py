"""The quorum's requests and the common form of its responses. Each is about one partition, `__cluster_metadata-0`.

Responses contain the leader and epoch that this node knows, and the leader's endpoint on the listener of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID
from barnabas.metadata.unwritable import unwritable_tags
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.raft.snapshots import SnapshotId
from barnabas.raft.voter_history import KRAFT_VERSION_MAX
from barnabas.raft.voters import VoterEndpoint, VoterKey

#: Kafka's values.
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
#: The maximum size of a follower's fetch, which it decodes in one turn of the event loop.
_FOLLOWER_FETCH_BYTES: Final = 128 * 1024
FETCH_WAIT_MS_MAX: Final = 500
#: A tagged field of Vote requests; its number is far above those that Kafka assigns.
_NEW_CLUSTER_TAG: Final = 8_194


def only_partition(message: Any) -> Any:
    """Returns the data of the one partition in a request or response; None if the message is about anything else."""
    topics = message.responses if hasattr(message, "responses") else message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    if getattr(topic, "topic_id", ZERO_UUID) == METADATA_TOPIC_ID:
        named = True
    else:
        name = next((getattr(topic, slot) for slot in ("topic_name", "topic", "name") if hasattr(topic, slot)), None)
        named = name == METADATA_TOPIC
    index = next(getattr(partition, s) for s in ("partition_index", "partition", "index") if hasattr(partition, s))
    return partition if named and index == 0 else None


def vote_request(
    cluster_id: str,
    own: VoterKey,
    voter: VoterKey,
    *,
    epoch: int,
    last: tuple[int, int],
    pre_vote: bool,
    is_of_new_cluster: bool = False,
) -> VoteRequest:
    """Builds a Vote request; `last` is (epoch, end offset) of the candidate's log. `is_of_new_cluster`: it is empty, in
    a directory that was formatted for a new cluster.
    """
    partition = VoteRequest.PartitionData(
        replica_epoch=epoch,
        replica_id=own.node_id,
        replica_directory_id=own.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=last[0],
        last_offset=last[1],
        pre_vote=pre_vote,
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    tags = ((_NEW_CLUSTER_TAG, b""),) if is_of_new_cluster else ()
    return VoteRequest(cluster_id=cluster_id, voter_id=voter.node_id, topics=[topic], unknown_tags=tags)


def is_of_new_cluster(request: VoteRequest) -> bool:
    """Returns whether the candidate's log is empty, in a directory that was formatted for a new cluster."""
    return any(tag == _NEW_CLUSTER_TAG for tag, _ in request.unknown_tags)


def begin_request(
    cluster_id: str, leader_id: int, epoch: int, voter: VoterKey, endpoints: Sequence[VoterEndpoint]
) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequest.PartitionData(
        voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.node_id,
        topics=[BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            BeginQuorumEpochRequest.LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in endpoints
        ],
    )


def end_request(
    cluster_id: str, leader_id: int, epoch: int, successors: Sequence[VoterKey], endpoints: Sequence[VoterEndpoint]
) -> EndQuorumEpochRequest:
    partition = EndQuorumEpochRequest.PartitionData(
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.node_id for key in successors],
        preferred_candidates=[
            EndQuorumEpochRequest.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
            for key in successors
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            EndQuorumEpochRequest.LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in endpoints
        ],
    )


def fetch_request(
    cluster_id: str,
    own: VoterKey,
    *,
    epoch: int,
    offset: int,
    last_epoch: int,
    high_watermark: int,
    is_unwritable: bool = False,
) -> FetchRequest:
    """Builds a Fetch request.

    Everything before `offset` is on this node's disk. `high_watermark` -1: not known. `is_unwritable`: this node's log
    currently cannot be written.
    """
    partition = FetchRequest.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=0,
        replica_directory_id=own.directory_id,
        high_watermark=high_watermark,
    )
    topic = FetchRequest.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return FetchRequest(
        cluster_id=cluster_id,
        replica_id=-1,
        replica_state=FetchRequest.ReplicaState(replica_id=own.node_id),
        max_wait_ms=FETCH_WAIT_MS_MAX,
        max_bytes=_FOLLOWER_FETCH_BYTES,
        topics=[topic],
        unknown_tags=unwritable_tags((own.directory_id,)) if is_unwritable else (),
    )


def fetch_snapshot_request(
    cluster_id: str, own: VoterKey, *, epoch: int, snapshot_id: SnapshotId, position: int
) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequest.PartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=own.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=own.node_id,
        max_bytes=FETCH_BYTES_MAX,
        topics=[FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def update_voter_request(
    cluster_id: str, own: VoterKey, epoch: int, endpoints: Sequence[VoterEndpoint]
) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=own.node_id,
        voter_directory_id=own.directory_id,
        listeners=[UpdateRaftVoterRequest.Listener(name=e.name, host=e.host, port=e.port) for e in endpoints],
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=KRAFT_VERSION_MAX
        ),
    )


def epoch_answer(
    cls: Any, code: ErrorCode, *, leader_id: int, epoch: int, address: tuple[str, int] | None, **fields: Any
) -> Any:
    """Builds a response of Vote, BeginQuorumEpoch or EndQuorumEpoch (`cls`)."""
    partition = cls.PartitionData(error_code=code, leader_id=leader_id, leader_epoch=epoch, **fields)
    return cls(
        topics=[cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(cls, leader_id, address),
    )


def node_endpoints(cls: Any, leader_id: int, address: tuple[str, int] | None) -> list[Any]:
    if address is None or leader_id < 0:
        return []
    return [cls.NodeEndpoint(node_id=leader_id, host=address[0], port=address[1])]


def endpoints_in(response: Any, leader_id: int, listener: str) -> tuple[VoterEndpoint, ...]:
    """Returns the leader's endpoints in a response."""
    return tuple(VoterEndpoint(listener, e.host, e.port) for e in response.node_endpoints if e.node_id == leader_id)
