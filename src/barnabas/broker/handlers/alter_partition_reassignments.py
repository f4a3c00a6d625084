"""AlterPartitionReassignments (45), versions 0-1: begins, changes or cancels reassignments (KIP-455, KIP-860)."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.pieces import Pieces
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

PIECES: Final = Pieces(100, "topics", "responses", "partitions", "partitions", "name", "name")


def handle(context: RequestContext, request: AlterPartitionReassignmentsRequest, services: Services) -> None:
    services.controller.replication.alter_reassignments(request, context.reply, actor=context.principal)
