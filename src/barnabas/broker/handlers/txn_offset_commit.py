"""TxnOffsetCommit (28), versions 0-5: offsets of a group that take effect when a transaction is committed.

Members must belong to the current generation (KIP-447, 3+). The group's partition of `__consumer_offsets` must be part
of the transaction; that is verified, and from version 5 on it is added (KIP-890).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.producing.transactional_offsets import commit
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import TOPICS
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

ERROR_ROWS: Final = (TOPICS,)


def handle(context: RequestContext, request: TxnOffsetCommitRequest, services: Services) -> None:
    commit(context, request, services)
