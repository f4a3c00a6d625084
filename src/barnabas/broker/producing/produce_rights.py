"""The rights of a Produce request: its transactional id, and WRITE on each of its topics.

Refused batches get their result before anything is appended; the others proceed. Batches that have waited since then,
for a coordinator or a thread, are judged again before they are appended: the right may have ended, and a topic may have
become known.
"""

from __future__ import annotations

from collections.abc import Generator

from barnabas.broker.producing.partition_append import UNDECIDED, TopicAppends, name_of, refuse_all
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import InFlight
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.records.header import HEADER, HEADER_BYTES, TRANSACTIONAL_FLAG, BatchHeader
from barnabas.replication.replica_manager import Appended

_REFUSED = Appended(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_TOPICS_PER_STEP = 50


def refuse_unauthorized(
    request: InFlight, services: Services, transactional_id: str | None, topics: TopicAppends
) -> Generator[int, None, None]:
    """Refuses the batches that have no result yet and that the client may not write. Does nothing without an
    authorizer.
    """
    authorizer = services.authorizer
    if authorizer is None:
        return
    topics = [(topic, [each for each in appends if each.result is UNDECIDED]) for topic, appends in topics]
    # The right on the transactional id counts where records claim to be part of a transaction.
    if _has_transactional(topics) and (
        transactional_id is None
        or not authorizer.allows(request, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
    ):
        refuse_all(topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    for place, (topic, appends) in enumerate(topics):
        name = name_of(services.replicas, topic) if appends else ""
        if name and not authorizer.allows(
            request, AclOperation.WRITE, AclResource.TOPIC, name, references=len(appends)
        ):
            for append in appends:
                append.finish(_REFUSED)
        if place % _TOPICS_PER_STEP == _TOPICS_PER_STEP - 1:
            yield 1


def _has_transactional(topics: TopicAppends) -> bool:
    """Returns whether a batch claims to be part of a transaction."""
    return any(
        BatchHeader._make(HEADER.unpack_from(append.data)).attributes & TRANSACTIONAL_FLAG
        for _, appends in topics
        for append in appends
        if len(append.data) >= HEADER_BYTES
    )
