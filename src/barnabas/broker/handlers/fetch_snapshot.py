"""FetchSnapshot (59), versions 0-1: a chunk of a snapshot of the metadata log (KIP-630, KIP-853)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest


def handle(context: RequestContext, request: FetchSnapshotRequest, services: Services) -> None:
    services.quorum.raft.server.serve(request, context.api_version, context.listener, context.reply)
