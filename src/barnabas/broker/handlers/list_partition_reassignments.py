"""ListPartitionReassignments (46), version 0: ongoing reassignments, as the active controller knows them."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


def handle(context: RequestContext, request: ListPartitionReassignmentsRequest, services: Services) -> None:
    services.controller.replication.list_reassignments(request, context.reply)
