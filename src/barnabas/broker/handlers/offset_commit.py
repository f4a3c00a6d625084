"""OffsetCommit (8), versions 2-9: store how far a group has come.

Answered when the offsets are committed to `__consumer_offsets`. Members must be of the current generation; a group
without members takes commits of anybody (generation -1). KIP-320 (leader epoch, 6+), KIP-345 (7+). Version 10, which
names topics by id, is not offered, as by Kafka 4.1.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest


def handle(context: RequestContext, request: OffsetCommitRequest, services: Services) -> None:
    services.groups.commit_offsets(context, request, context.reply)
