"""The authorizer of a node. It decides by super users, rules and the default, as Kafka's StandardAuthorizer does, and
its AclAuthorizer in ZooKeeper mode.

The rules are those of the metadata image. Decisions are cached by principal, address, operation and resource; the whole
cache is dropped when a rule changes, so a revoked right ends with the image that revokes it. `version` changes with
each change of the rules: a fetch session or the produce shortcut, which keep a decision, compare that number before
they use it again. Requests from within the process are not authorized.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

from barnabas.broker.audit_log import AuditLog, Decided
from barnabas.common.authorizer_keys import allows_without_rules, super_users
from barnabas.common.config import BrokerConfig
from barnabas.common.host import Clock
from barnabas.common.sampled_rates import CountedRates
from barnabas.metadata.acls import CLUSTER_NAME, AclIndex, AclOperation, AclResource, Decision
from barnabas.metadata.image import MetadataDelta, MetadataImage

#: The maximum number of cached decisions. All are freed at once when a rule changes, which takes 0.1 ms for each
#: thousand; a decision that is not cached takes 3 µs.
_ANSWERS_MAX: Final = 5_000

#: The operations on each type of resource that clients can request as bits (KIP-430).
_OPERATIONS: Final = {
    AclResource.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    AclResource.GROUP: (3, 6, 8, 10, 11),
    AclResource.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}


class Requester(Protocol):
    """The origin of a request, for which the authorizer decides (a `RequestContext`)."""

    @property
    def api_key(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def client_host(self) -> str:
        """The address of the client as Java shows it: "/127.0.0.1"."""


class Authorizer:
    """Decides whether clients may do what they request."""

    __slots__ = ("_answers", "_by_default", "_super_users", "audit", "counts", "index", "is_ready", "rates")

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._super_users = super_users(config.originals)
        self._by_default = allows_without_rules(config.originals)
        self.index = AclIndex()
        #: Whether the rules are known. Until then, a resource without rules can have some: there is no default.
        self.is_ready = False
        self._answers: dict[tuple[str, str, AclOperation, AclResource, str], Decision] = {}
        self.audit = AuditLog(clock, in_zookeeper_mode=config.is_zookeeper_mode)
        #: The numbers of allowed and denied decisions (metrics of KIP-877).
        self.counts = [0, 0]
        self.rates = CountedRates(clock.now_ms())

    @property
    def version(self) -> int:
        """A number that is different after each change of the rules."""
        return self.index.version

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follows the rules of the metadata (`metadata.store.Subscriber`)."""
        if not self.is_ready:
            self.is_ready = True
            self._answers.clear()
        if delta.changed_acls:
            self.index.update(delta.changed_acls.items())
            self._answers.clear()

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    # -- questions

    def allows(
        self,
        requester: Requester,
        operation: AclOperation,
        resource: AclResource,
        name: str = CLUSTER_NAME,
        *,
        references: int = 1,
        log_denied: bool = True,
    ) -> bool:
        """Returns whether the client of a request may perform the operation. `log_denied` is False if a denial only
        filters the response, or leads to another check.
        """
        key = (requester.principal, requester.client_host, operation, resource, name)
        decision = self._answers.get(key)
        if decision is None:
            decision = self.decide(requester.principal, java_address(requester.client_host), operation, resource, name)
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            self._answers[key] = decision
        self.counts[not decision.allowed] += 1
        audit = self.audit
        if audit.logs_allowed if decision.allowed else log_denied or audit.logs_filtered:
            rule = self.shown_rule(requester.principal, decision)
            decided = Decided(operation, resource, name, references, rule)
            if decision.allowed:
                audit.allowed(requester, decided)
            else:
                audit.denied(requester, decided, explicit=log_denied)
        return decision.allowed

    def allowed_names(
        self,
        requester: Requester,
        operation: AclOperation,
        resource: AclResource,
        names: Iterable[str],
        *,
        log_denied: bool = True,
    ) -> set[str]:
        """Returns the names of resources on which the client may perform the operation. A name that occurs several
        times is checked once.
        """
        counts: dict[str, int] = {}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        return {
            name
            for name, count in counts.items()
            if self.allows(requester, operation, resource, name, references=count, log_denied=log_denied)
        }

    def allows_any(self, requester: Requester, operation: AclOperation, resource: AclResource) -> bool:
        """Returns whether the client may perform the operation on at least one resource of the type (Kafka's
        authorizeByResourceType).
        """
        host = java_address(requester.client_host)
        return self.decide(requester.principal, host, operation, resource, "hardcode").allowed or self.index.allows_any(
            requester.principal, host, operation, resource
        )

    def operations(self, requester: Requester, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        """Returns the operations that the client may perform on a resource, as bits (KIP-430)."""
        host = java_address(requester.client_host)
        return sum(
            1 << operation
            for operation in _OPERATIONS[resource]
            if self.decide(requester.principal, host, AclOperation(operation), resource, name).allowed
        )

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> Decision:
        """Decides without the cache and the audit log. `host` is a numeric address."""
        if principal in self._super_users:
            return _SUPER_USER
        decision = self.index.decide(principal, host, operation, resource, name)
        if self._by_default and self.is_ready and not decision.has_rules:
            return _BY_DEFAULT
        return decision

    def shown_rule(self, principal: str, decision: Decision) -> str:
        """Returns the rule of a decision as Kafka's audit log shows it."""
        if decision.rule is not None:
            return f"MatchingAcl(acl={decision.rule})"
        if principal in self._super_users:
            return "SuperUser"
        return "DefaultAllow" if decision.allowed else "DefaultDeny"


_SUPER_USER: Final = Decision(True)
_BY_DEFAULT: Final = Decision(True)


def java_address(client_host: str) -> str:
    """Returns an address as Java's `getHostAddress` writes it, which is how rules name hosts."""
    text = client_host.removeprefix("/")
    if ":" not in text:
        return text
    try:
        address = ip_address(text)
    except ValueError:
        return text
    assert isinstance(address, IPv6Address), "only IPv6 addresses have colons"
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    packed = address.packed
    return ":".join(f"{int.from_bytes(packed[at : at + 2], 'big'):x}" for at in range(0, 16, 2))
