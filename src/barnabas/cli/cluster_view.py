"""The queries of `barnabas status` to a running cluster: the active controller, the fenced brokers, the lags in the
quorum.

The brokers are asked one after another until one answers, over plain sockets: the client libraries lack some of these
requests.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from barnabas.common.errors import DecodeError
from barnabas.common.types import METADATA_TOPIC
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.header import RequestHeader

_TIMEOUT_S = 2.0
_VERSION = 2
M = TypeVar("M", bound=Message)


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
            brokers = _call(address, DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
            fenced = {broker.broker_id: broker.is_fenced for broker in brokers.brokers}
        except (OSError, DecodeError):
            continue
        try:
            return _with_quorum(_call(address, _quorum_request(), DescribeQuorumResponse), fenced)
        except (OSError, DecodeError):
            # No controller leads: what this broker knew last is still worth showing.
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


def _call(address: tuple[str, int], request: Message, response: type[M]) -> M:
    """Sends one request and returns its response. Raises OSError or DecodeError if no readable response arrives."""
    assert request.API_KEY is not None
    header = RequestHeader(request_api_key=request.API_KEY, request_api_version=_VERSION, client_id="barnabas-status")
    frame = codec.encode(header, request_header_version(request.API_KEY, _VERSION))
    codec.encode_into(request, _VERSION, frame)
    with socket.create_connection(address, timeout=_TIMEOUT_S) as link, link.makefile("rb") as stream:
        link.sendall(len(frame).to_bytes(4, "big") + frame)
        data = stream.read(int.from_bytes(stream.read(4), "big"))
    start = 4 + response_header_version(request.API_KEY, _VERSION)
    if len(data) <= start:
        raise DecodeError("the connection was closed before a response")
    return codec.decode(response, _VERSION, data, start)[0]
