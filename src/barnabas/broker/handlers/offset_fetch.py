"""OffsetFetch (9), versions 1-9: the committed offsets of groups.

KIP-320 (leader epoch, 5+), KIP-447 (require_stable, 7+), KIP-709 (several groups, 8+). The member id and epoch of
version 9 are for the consumer protocol (KIP-848) only.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import INDEXES, ErrorRows
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

ERROR_ROWS: Final = (ErrorRows("topics", "topics", inner=INDEXES), ErrorRows("groups", "groups"))


def handle(context: RequestContext, request: OffsetFetchRequest, services: Services) -> None:
    services.groups.fetch_offsets(context, request, context.reply)
