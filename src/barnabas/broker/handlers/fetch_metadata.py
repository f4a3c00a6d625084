"""Fetch (1) on a controller's listener, versions 4-18: replication of the metadata log from its leader (KIP-595).

Any other partition is refused with INVALID_REQUEST: data is fetched from brokers.
"""

from __future__ import annotations

from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.protocol import codec
from barnabas.protocol.messages.fetch import FetchRequest


def handle_raw(request: InFlight, frame: memoryview, position: int, services: Services) -> Chunks | None:
    message, _ = codec.decode(FetchRequest, request.api_version, frame, position)
    services.quorum.raft.server.serve(message, request.api_version, request.listener, request.reply)
    return None
