"""The audit log of what the authorizer allowed and denied, with the logger name, levels and lines of Kafka's audit log.

    Principal = User:x is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t for request = Fetch
    with resourceRefCount = 1 based on rule DefaultDeny

In ZooKeeper mode the lines are those of Kafka's AclAuthorizer, which has "Operation = Read" and does not name the rule.
Denied requests are logged at INFO, allowed ones at DEBUG, and decisions that only filter a response at TRACE.

The log is bounded, so that no client fills the disk: one line per second for the same principal, operation and
resource, and at most `DENIED_MAX` lines per second about denials of a principal, whatever names it requests, and
`ALLOWED_MAX` about permissions. The next line says how many were left out.
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
#: The maximum numbers of lines per second about one principal. Permissions are only logged if an operator wants them.
DENIED_MAX: Final = 100
ALLOWED_MAX: Final = 1_000
#: The number of principals whose lines of this second are counted.
_PRINCIPALS_MAX: Final = 1_000
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


class _Second:
    """The lines about a principal within one second."""

    __slots__ = ("began_ms", "left_out", "lines")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = now_ms
        self.lines = 0
        #: The number of lines that were left out in this second, or in the one before.
        self.left_out = 0


class AuditLog:
    """The audit log of one node."""

    __slots__ = ("_in_zookeeper_mode", "_limit", "_now_ms", "_seconds")

    def __init__(self, clock: Clock, *, in_zookeeper_mode: bool = False) -> None:
        self._in_zookeeper_mode = in_zookeeper_mode
        self._now_ms = clock.now_ms
        #: (principal, decision) -> its lines of this second.
        self._seconds: dict[tuple[str, str], _Second] = {}
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
        second = self._second(requester.principal, what)
        lines_max = ALLOWED_MAX if level == logging.DEBUG else DENIED_MAX
        if second.lines >= lines_max:
            second.left_out += 1
            return
        suffix = self._limit.suffix((requester.principal, int(operation), int(resource), name, what))
        if suffix is None:
            return
        second.lines += 1
        if second.left_out:
            suffix += f" ({second.left_out} lines about {requester.principal} were left out before)"
            second.left_out = 0
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
        if second.lines == lines_max:
            _LOG.log(level, f"Principal = {requester.principal} is {what} so often that this second has no more lines")

    def _second(self, principal: str, what: str) -> _Second:
        """Returns the lines of the current second about a principal."""
        key, now_ms = (principal, what), self._now_ms()
        found = self._seconds.get(key)
        if found is None:
            if len(self._seconds) >= _PRINCIPALS_MAX:
                del self._seconds[next(iter(self._seconds))]
            found = self._seconds[key] = _Second(now_ms)
        elif now_ms - found.began_ms >= _INTERVAL_MS:
            found.began_ms, found.lines = now_ms, 0
        return found
