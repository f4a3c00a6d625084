"""ListPartitionReassignments (46), version 0: ongoing reassignments, as the active controller knows them."""

from __future__ import annotations

from collections.abc import Generator

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest, services: Services
) -> ListPartitionReassignmentsResponse | Generator[int, None, ListPartitionReassignmentsResponse]:
    return services.controller.replication.list_reassignments(request)
