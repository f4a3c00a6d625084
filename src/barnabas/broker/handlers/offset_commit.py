"""OffsetCommit (8), versions 2-9: stores a group's committed offsets.

The response is sent when the offsets are committed to `__consumer_offsets`. Members must belong to the current
generation; a group without members accepts commits of any client (generation -1). KIP-320 (leader epoch, 6+), KIP-345
(7+). Version 10, which names topics by id, is not offered, as in Kafka 4.1.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import TOPICS
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest

ERROR_ROWS: Final = (TOPICS,)


def handle(context: RequestContext, request: OffsetCommitRequest, services: Services) -> None:
    services.groups.commit_offsets(context, request, context.reply)
