"""The rights of a Fetch request: READ on each topic, or CLUSTER_ACTION on the cluster in the name of a replica.

An item of a session is checked once, and again when a rule changes or another principal uses the session. A fetch that
waits is checked again before it reads, so a revoked right ends with the image that revokes it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from barnabas.broker.authorizer import Authorizer
from barnabas.broker.fetching.fetch_sessions import Session
from barnabas.broker.requests.in_flight import InFlight
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.replication.fetch_items import FetchItem

_ITEMS_PER_STEP = 200


def may_fetch_as_replica(request: InFlight, authorizer: Authorizer | None) -> bool:
    """Returns whether the client may fetch in the name of a replica: its fetches advance the HW (CVE-2018-1288)."""
    return authorizer is None or authorizer.allows(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)


def judge_items(
    request: InFlight,
    authorizer: Authorizer,
    session: Session | None,
    items: Iterable[FetchItem],
    *,
    is_replica: bool,
    is_forged: bool,
) -> Generator[int, None, None]:
    """Marks the items that the client may not read."""
    rights = (authorizer.version, request.principal, request.client_host, is_forged)
    if session is None:
        asked = list(items)
    elif session.rights != rights:
        session.rights = rights
        asked = list(session.items.values())
    else:
        asked = [item for item in session.active if item.is_denied is None]
    for place, item in enumerate(asked):
        if place % _ITEMS_PER_STEP == _ITEMS_PER_STEP - 1:
            yield 1
        if is_forged or is_replica:
            is_denied = is_forged
        elif item.topic is None:
            continue  # The topic is unknown to this broker, so nothing can be read.
        else:
            is_denied = not authorizer.allows(request, AclOperation.READ, AclResource.TOPIC, item.topic)
        if session is None:
            item.is_denied = is_denied
        else:
            session.set_denied(item, is_denied)
