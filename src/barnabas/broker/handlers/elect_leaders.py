"""ElectLeaders (43), versions 0-2: preferred and unclean elections (KIP-183, KIP-460), decided by the controller."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest

ERROR_ROWS: Final = (
    ErrorRows(
        "replica_election_results",
        "topic_partitions",
        inner=ErrorRows("partition_result", "partitions", key="partition_id"),
    ),
)
PIECES: Final = Pieces(
    200, "topic_partitions", "replica_election_results", "partitions", "partition_result", "topic", "topic"
)


def handle(context: RequestContext, request: ElectLeadersRequest, services: Services) -> None:
    services.controller.replication.elect_leaders(request, context.reply, actor=context.principal)
