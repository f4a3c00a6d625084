"""The audit log of what the authorizer allowed and denied, with the logger name, levels and lines of Kafka's audit log.

    Principal = User:x is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t for request = Fetch
    with resourceRefCount = 1 based on rule DefaultDeny

In ZooKeeper mode the lines are those of Kafka's AclAuthorizer, which has "Operation = Read" and does not name the rule.
Denied requests are logged at INFO, allowed ones at DEBUG, and decisions that only filter a response at TRACE. One line
per second is written for the same principal, operation and resource, so that a client that repeats a forbidden request
does not fill the disk; the next line says how many were left out.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from barnabas.common.host import Clock
from barnabas.common.reports import LineLimit
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.index import API_NAMES

_TRACE: Final = 5
_INTERVAL_MS: Final = 1_000
#: The number of (principal, operation, resource) whose last lines are remembered.
_REMEMBERED_MAX: Final = 5_000
_LOG: Final = logging.getLogger("kafka.authorizer.logger")

#: The types of resources as Kafka's log names them.
TYPE_NAMES: Final = {
    AclResource.TOPIC: "Topic",
    AclResource.GROUP: "Group",
    AclResource.CLUSTER: "Cluster",
    AclResource.TRANSACTIONAL_ID: "TransactionalId",
    AclResource.DELEGATION_TOKEN: "DelegationToken",
    AclResource.USER: "User",
}


class _Requester(Protocol):
    @property
    def api_key(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def client_host(self) -> str: ...


class Decided(NamedTuple):
    """A decision of the authorizer. `references` is how often the request names the resource; `rule` is the rule that
    decided, as Kafka's log shows it.
    """

    operation: AclOperation
    resource: AclResource
    name: str
    references: int
    rule: str


class AuditLog:
    """The audit log of one node."""

    __slots__ = ("_in_zookeeper_mode", "_limit")

    def __init__(self, clock: Clock, *, in_zookeeper_mode: bool = False) -> None:
        self._in_zookeeper_mode = in_zookeeper_mode
        #: The keys of the limit are (principal, operation, type, name, decision).
        self._limit = LineLimit(clock.now_ms, _INTERVAL_MS, causes_max=_REMEMBERED_MAX)

    @property
    def logs_allowed(self) -> bool:
        """Returns whether allowed requests are logged."""
        return _LOG.isEnabledFor(logging.DEBUG)

    @property
    def logs_filtered(self) -> bool:
        """Returns whether decisions that only filter a response are logged."""
        return _LOG.isEnabledFor(_TRACE)

    def allowed(self, requester: _Requester, decided: Decided) -> None:
        self._write(logging.DEBUG, "Allowed", requester, decided)

    def denied(self, requester: _Requester, decided: Decided, *, explicit: bool) -> None:
        """Logs a denial; one that is not `explicit` only filtered a response."""
        self._write(logging.INFO if explicit else _TRACE, "Denied", requester, decided)

    def _write(self, level: int, what: str, requester: _Requester, decided: Decided) -> None:
        if not _LOG.isEnabledFor(level):
            return
        operation, resource, name, references, rule = decided
        suffix = self._limit.suffix((requester.principal, int(operation), int(resource), name, what))
        if suffix is None:
            return
        if self._in_zookeeper_mode:
            shown, end = f"Operation = {operation.name.title().replace('_', '')}", ""
        else:
            shown, end = f"operation = {operation.name}", f" based on rule {rule}"
        _LOG.log(
            level,
            f"Principal = {requester.principal} is {what} {shown} from host = "
            f"{requester.client_host.removeprefix('/')} on resource = {TYPE_NAMES[resource]}:LITERAL:{name} "
            f"for request = {API_NAMES[requester.api_key]} with resourceRefCount = {references}{end}{suffix}",
        )
