"""Mistakes in log-ins, rights and quotas, patched in from outside, that the security world must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.authorizer import Authorizer
from barnabas.broker.fetching import fetch_rights
from barnabas.broker.handlers import envelope, fetch
from barnabas.broker.producing.produce_shortcut import ProduceShortcut
from barnabas.broker.requests.api_checks import CHECKS
from barnabas.broker.requests.authorization import Open
from barnabas.broker.requests.forwarding import ForwardedPrincipal
from barnabas.broker.requests.log_in import ListenerLogIn
from barnabas.broker.throttling.client_throttles import Client, ClientRate, Quota
from barnabas.broker.throttling.muting import BY_QUOTA, Muting
from barnabas.broker.throttling.request_throttle import RequestThrottle
from barnabas.metadata.acls import AclIndex, AclOperation, AclPattern, AclPermission, AclResource, AclRule, Decision
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol.sasl.scram_server import ScramServer
from barnabas.protocol.sasl_gate import Act, Gate, GateDecision, GateState, RequestFields
from barnabas.simulation.node import AcceptedEnd

Mutation = Callable[[pytest.MonkeyPatch], None]


def the_shortcut_of_a_producer_outlives_its_right(patch: pytest.MonkeyPatch) -> None:
    """Serves a producer's next request by its shortcut, whatever rules have changed since (S10)."""
    serve = ProduceShortcut.serve

    def mutated(self: ProduceShortcut, frame: memoryview) -> bool:
        authorizer = self._services.authorizer
        if authorizer is not None:
            self._rules_version = authorizer.version
        return serve(self, frame)

    patch.setattr(ProduceShortcut, "serve", mutated)


def _without(patch: pytest.MonkeyPatch, is_forgotten: Callable[[AclRule], bool]) -> None:
    """Lets decisions ignore the rules that deny and for which `is_forgotten` is true."""
    decide = AclIndex.decide

    def mutated(
        self: AclIndex, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> Decision:
        decision = decide(self, principal, host, operation, resource, name)
        if decision.allowed or decision.rule is None or not is_forgotten(decision.rule):
            return decision
        others = AclIndex()
        others.update((rule_id, rule) for rule_id, rule in self.rules.items() if not is_forgotten(rule))
        return decide(others, principal, host, operation, resource, name)

    patch.setattr(AclIndex, "decide", mutated)


def a_deny_is_forgotten_for_prefixes(patch: pytest.MonkeyPatch) -> None:
    """Ignores rules that deny by a prefix (S22)."""
    _without(patch, lambda rule: rule.permission == AclPermission.DENY and rule.pattern_type == AclPattern.PREFIXED)


def a_deny_for_everybody_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Ignores rules that deny User:* (S22)."""
    _without(patch, lambda rule: rule.permission == AclPermission.DENY and rule.principal == "User:*")


def the_host_of_a_rule_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Allows from every host the operations that a rule allows from one."""
    decide = AclIndex.decide

    def mutated(
        self: AclIndex, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> Decision:
        hosts = {rule.host for rule in self.rules.values() if rule.principal in (principal, "User:*")}
        found = [decide(self, principal, each, operation, resource, name) for each in (host, *sorted(hosts))]
        return next((each for each in found if each.allowed), found[0])

    patch.setattr(AclIndex, "decide", mutated)


def answers_are_kept_over_a_change_of_rules(patch: pytest.MonkeyPatch) -> None:
    """Keeps the authorizer's cache of answers when a rule changes (S10)."""

    def mutated(self: Authorizer, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.changed_acls:
            self.index.update(delta.changed_acls.items())

    patch.setattr(Authorizer, "on_image", mutated)


def removed_rules_stay(patch: pytest.MonkeyPatch) -> None:
    """Follows new rules, and forgets to remove those that go (S9)."""
    update = AclIndex.update

    def mutated(self: AclIndex, changes: Any) -> None:
        update(self, [change for change in changes if change[1] is not None])

    patch.setattr(AclIndex, "update", mutated)


def envelopes_of_users_are_trusted(patch: pytest.MonkeyPatch) -> None:
    """Serves an envelope from any client (S14)."""
    patch.setitem(CHECKS, "envelope", Open("the sender is a broker"))


def requests_in_envelopes_have_the_rights_of_the_broker(patch: pytest.MonkeyPatch) -> None:
    """Judges a forwarded request with the principal of the node that forwarded it (S14)."""
    patch.setattr(envelope, "decode_principal", lambda data: ForwardedPrincipal("User:node", False))


def a_session_outlives_its_end(patch: pytest.MonkeyPatch) -> None:
    """Serves requests after the end of a session (S13)."""

    def mutated(self: Gate, header: RequestFields | None, now_ms: int) -> GateDecision:
        return GateDecision(Act.SERVE, header)

    patch.setattr(Gate, "_serve", mutated)


def the_nonce_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Accepts a last message of SCRAM with any nonce (S3)."""
    final = ScramServer._final

    def mutated(self: ScramServer, text: str, credential: Any) -> Any:
        self._nonce = ""
        return final(self, text, credential)

    patch.setattr(ScramServer, "_final", mutated)


def removed_users_can_log_in(patch: pytest.MonkeyPatch) -> None:
    """Looks credentials up among all that a listener has ever seen."""
    begin = ListenerLogIn.begin
    seen: dict[int, dict[Any, Any]] = {}

    def mutated(self: ListenerLogIn, mechanism: str) -> Any:
        credentials = self._credentials
        known = seen.setdefault(id(self._host), {})
        known.update((key, found) for key, found in credentials().items() if key not in known)
        self._credentials = lambda: known
        try:
            return begin(self, mechanism)
        finally:
            self._credentials = credentials

    patch.setattr(ListenerLogIn, "begin", mutated)


def a_muted_connection_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Serves a muted connection again after a tenth of the time (S19)."""
    extend = Muting.extend
    patch.setattr(Muting, "extend", lambda self, time_ms, host: extend(self, time_ms // 10, host))


def a_muting_never_ends(patch: pytest.MonkeyPatch) -> None:
    """Loses the end of a muting when the time is extended."""

    def mutated(self: Muting) -> None:
        self._timer = None
        if self._connection is not None and self._until_ms % 7:
            self._connection.resume_writing(BY_QUOTA)

    patch.setattr(Muting, "_end", mutated)


def each_connection_has_the_whole_quota(patch: pytest.MonkeyPatch) -> None:
    """Measures each connection by itself instead of all connections of a user (S19)."""
    current: list[int] = [0]
    produced = RequestThrottle.produced

    def of_connection(self: RequestThrottle, size_bytes: int) -> None:
        current[0] = id(self._connection)
        produced(self, size_bytes)

    def mutated(self: Quota[ClientRate], client: Client, now_ms: int) -> ClientRate | None:
        applied = self.table.find(*client)
        if applied is None:
            return None
        shared = Client(applied.user, f"{applied.client_id}{current[0]}")
        found = self.shared.get(shared)
        if found is None:
            found = self.shared[shared] = self._make(applied.limit)
        return found

    patch.setattr(RequestThrottle, "produced", of_connection)
    patch.setattr(Quota, "of", mutated)


def fetch_sessions_outlive_their_right(patch: pytest.MonkeyPatch) -> None:
    """Judges the partitions of a fetch session once, when they are new in it (S10)."""
    judge_items = fetch_rights.judge_items

    def mutated(request: Any, authorizer: Any, session: Any, items: Any, **flags: bool) -> Any:
        if session is not None and session.rights is not None:
            session.rights = (authorizer.version, request.principal, request.client_host, flags["is_forged"])
        return judge_items(request, authorizer, session, items, **flags)

    patch.setattr(fetch, "judge_items", mutated)


def waiting_fetches_are_judged_at_their_start_only(patch: pytest.MonkeyPatch) -> None:
    """Reads for a fetch that has waited, without asking the authorizer again (S10)."""
    read = fetch._PendingFetch.read

    judged: dict[int, fetch._PendingFetch] = {}

    def mutated(self: fetch._PendingFetch, *, may_wait: bool = True) -> Any:
        services, authorizer = self._services, self._services.authorizer
        if id(self) in judged:
            services.authorizer = None
        judged[id(self)] = self
        try:
            result = yield from read(self, may_wait=may_wait)
        finally:
            services.authorizer = authorizer
        return result

    patch.setattr(fetch._PendingFetch, "read", mutated)


def replicas_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Lets a user fetch in the name of a replica (S1)."""
    patch.setattr(fetch, "may_fetch_as_replica", lambda request, authorizer: True)


def a_failed_log_in_keeps_its_slot(patch: pytest.MonkeyPatch) -> None:
    """Does not free the slot of a connection whose user was refused (S17)."""
    release = AcceptedEnd._release

    def mutated(self: AcceptedEnd) -> None:
        gate = self.connection.gate
        if gate is None or gate.state is not GateState.FAILED:
            release(self)

    patch.setattr(AcceptedEnd, "_release", mutated)


#: Mutation -> the first seed that finds it, and a part of its message.
FOUND_BY: dict[Mutation, tuple[int, str]] = {
    the_shortcut_of_a_producer_outlives_its_right: (3, "may not WRITE"),
    a_deny_is_forgotten_for_prefixes: (2, "may not"),
    a_deny_for_everybody_is_forgotten: (2, "may not"),
    the_host_of_a_rule_is_ignored: (2, "may not"),
    answers_are_kept_over_a_change_of_rules: (2, "may not"),
    removed_rules_stay: (1, "has other rules than its metadata"),
    envelopes_of_users_are_trusted: (1, "an envelope of a user was served"),
    requests_in_envelopes_have_the_rights_of_the_broker: (1, "may not CREATE"),
    a_session_outlives_its_end: (1, "a request after the end of the session was served"),
    the_nonce_is_not_checked: (1, "another nonce, and was accepted"),
    removed_users_can_log_in: (1, "a log-in without credentials"),
    a_muted_connection_is_forgotten: (2, "a muted connection was served"),
    a_muting_never_ends: (2, "a user still waits for an answer"),
    each_connection_has_the_whole_quota: (2, "more than its quota"),
    fetch_sessions_outlive_their_right: (7, "may not READ"),
    waiting_fetches_are_judged_at_their_start_only: (7, "may not READ"),
    a_failed_log_in_keeps_its_slot: (1, "connections of PLAINTEXT"),
    replicas_are_believed: (1, "in the name of a replica"),
}
