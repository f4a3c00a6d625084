"""Requests that librdkafka lacks and that the controller must answer: in ZooKeeper mode no other broker answers
them.
"""

from __future__ import annotations

import time
from typing import Final, TypeVar

from confluent_kafka.admin import AdminClient

from barnabas.cli.clients import TIMEOUT_S, result
from barnabas.cli.raw_requests import Wire
from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.elect_leaders import ElectLeadersResponse
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse

R = TypeVar(
    "R",
    ApiVersionsResponse,
    ElectLeadersResponse,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
)

_PAUSE_S: Final = 0.2


def ask_controller(admin: AdminClient, request: Message, version: int, expected: type[R]) -> R:
    """Sends a request to the controller, and repeats it while the controller changes. In a KRaft cluster the metadata
    names any broker as the controller, and that broker forwards the request. Raises Failure.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        described = result(admin.describe_cluster(request_timeout=TIMEOUT_S), "cannot describe the cluster")
        controller_id = -1 if described.controller is None else described.controller.id
        nodes = sorted(described.nodes, key=lambda node: node.id != controller_id)
        with Wire.to_any((node.host, node.port) for node in nodes) as wire:
            answer = wire.call(request, version, expected)
        if answer.error_code != ErrorCode.NOT_CONTROLLER or time.monotonic() >= deadline:
            return answer
        time.sleep(_PAUSE_S)
