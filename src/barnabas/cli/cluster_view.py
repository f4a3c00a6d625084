"""The queries of `barnabas status` to a running cluster: the active controller, the fenced brokers, the lags in the
quorum.

The brokers are asked one after another until one answers, over plain sockets: the client libraries lack some of these
requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.cli.raw_requests import Wire
from barnabas.common.types import METADATA_TOPIC
from barnabas.embedded.failures import Failure
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

TIMEOUT_S: Final = 2.0
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of a cluster. Offsets belong to the metadata log; a value that no broker reported is -1 or empty."""

    controller: int = -1
    epoch: int = -1
    high_watermark: int = -1
    #: Voter or observer -> its log end offset.
    log_end_offsets: dict[int, int] = field(default_factory=dict)
    #: Broker -> whether it is fenced; a broker that never registered is missing.
    fenced: dict[int, bool] = field(default_factory=dict)

    def lag(self, node_id: int) -> int | None:
        """Returns how many records of the leader's log this node lacks; None if that is unknown."""
        leader, own = self.log_end_offsets.get(self.controller, -1), self.log_end_offsets.get(node_id, -1)
        return max(leader - own, 0) if leader >= 0 and own >= 0 else None


def view_of(addresses: Iterable[tuple[str, int]]) -> ClusterView:
    """Returns the view of the first broker that answers; an empty view if none does."""
    for address in addresses:
        try:
            with Wire(*address, timeout_s=TIMEOUT_S) as wire:
                request = DescribeClusterRequest(include_fenced_brokers=True)
                brokers = wire.call(request, _VERSION, DescribeClusterResponse)
        except Failure:
            continue
        fenced = {broker.broker_id: broker.is_fenced for broker in brokers.brokers}
        try:
            with Wire(*address, timeout_s=TIMEOUT_S) as wire:
                return _with_quorum(wire.call(_quorum_request(), _VERSION, DescribeQuorumResponse), fenced)
        except Failure:
            # No controller leads: the last state that this broker knew is shown nevertheless.
            return ClusterView(fenced=fenced)
    return ClusterView()


def _quorum_request() -> DescribeQuorumRequest:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )


def _with_quorum(answer: DescribeQuorumResponse, fenced: dict[int, bool]) -> ClusterView:
    for topic in answer.topics:
        for partition in topic.partitions:
            replicas = [*partition.current_voters, *partition.observers]
            if partition.error_code == 0:
                return ClusterView(
                    partition.leader_id,
                    partition.leader_epoch,
                    partition.high_watermark,
                    {replica.replica_id: replica.log_end_offset for replica in replicas},
                    fenced,
                )
    return ClusterView(fenced=fenced)
