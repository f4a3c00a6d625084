"""Changes of ACLs in ZooKeeper mode: any broker decides and writes them.

    read the ACLs of a resource -> M[set them under their version, create the notification]

The last entry is removed with its znode. A change that another broker overtakes is made again on what that one wrote.
The notification is part of the same multi, so no broker misses a change because its writer died, and a multi whose
answer was lost can be sent again. The response follows when this broker's own image has the changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from barnabas.broker.zookeeper.acl_watch import AclsRead, AclWatch
from barnabas.broker.zookeeper.config_writes import ATTEMPTS_MAX, OVERTAKEN, ZnodeWrites
from barnabas.broker.zookeeper.store_steps import Steps, pause
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.controller.requests.acls import MatchedRules, matched_rules, problem_of, rule_of
from barnabas.metadata.acl_filters import AclFilter
from barnabas.metadata.acls import AclOperation, AclRule, shown
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.znodes.acl_znodes import (
    OPERATIONS,
    AclEntry,
    ResourcePattern,
    acl_change,
    acl_path,
    encode_acls,
    has_acls,
)
from barnabas.zookeeper.client.store import MultiReply, ZnodeStore
from barnabas.zookeeper.wire.codes import CreateFlags, OpCode
from barnabas.zookeeper.wire.codes import ErrorCode as StoreError
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CreateRequest, DeleteRequest, SetDataRequest

_Created = CreateAclsResponse.AclCreationResult
_Match = DeleteAclsResponse.DeleteAclsMatchingAcl


class AclWrites(ZnodeWrites[AclWatch]):
    """The changes of ACLs that this broker makes, one request after the other: they do not overtake each other."""

    def __init__(
        self, host: Host, config: BrokerConfig, store: ZnodeStore, metadata: MetadataStore, watch: AclWatch
    ) -> None:
        super().__init__(host, config, store, metadata, watch)
        self._requests: deque[tuple[Steps[Any], Callable[[Any], None]]] = deque()
        self._is_serving = False

    def create(self, request: CreateAclsRequest, reply: Callable[[CreateAclsResponse], None], *, actor: str) -> None:
        """Adds the rules that are valid. Znodes do not name the actor."""
        self._start(self._create(request), reply)

    def delete(self, request: DeleteAclsRequest, reply: Callable[[DeleteAclsResponse], None], *, actor: str) -> None:
        """Removes the rules that the filters match."""
        self._start(self._delete(request), reply)

    def _start(self, steps: Steps[Any], reply: Callable[[Any], None]) -> None:
        self._requests.append((steps, reply))
        if not self._is_serving:
            self._is_serving = True
            self._running.start(self._serve(), lambda _: None)

    def _serve(self) -> Steps[None]:
        try:
            while self._requests:
                steps, reply = self._requests.popleft()
                response = yield from steps
                reply(response)
        finally:
            self._is_serving = False

    def _create(self, request: CreateAclsRequest) -> Steps[CreateAclsResponse]:
        rows: list[_Created] = []
        added: dict[ResourcePattern, list[tuple[AclEntry, _Created]]] = {}
        for creation in request.creations:
            rule = rule_of(creation)
            problem = problem_of(rule) or _problem_in_znodes(rule)
            if problem is not None:
                rows.append(_Created(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
                continue
            rows.append(_Created())
            added.setdefault(_pattern_of(rule), []).append((_entry_of(rule), rows[-1]))
        for pattern, wanted in added.items():
            refused = yield from self._change(pattern, added=[entry for entry, _ in wanted])
            if refused is not None:
                for _, row in wanted:
                    row.error_code, row.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, refused
        return CreateAclsResponse(results=rows)

    def _delete(self, request: DeleteAclsRequest) -> Steps[DeleteAclsResponse]:
        for pattern in dict.fromkeys(map(_pattern_named, request.filters)):
            if pattern is not None:
                yield from self._watch.refresh(pattern)  # Other brokers' rules, which this one may not have read yet.
        _, results = yield from self._matched(request)
        removed: dict[ResourcePattern, dict[AclEntry, _Match]] = {}
        for result in results:
            first: list[_Match] = []
            for row in result.matching_acls:
                pattern = ResourcePattern(row.resource_type, row.resource_name, row.pattern_type)
                entry = AclEntry(row.principal, row.permission_type, row.operation, row.host)
                if removed.setdefault(pattern, {}).setdefault(entry, row) is row:
                    first.append(row)
            # The result of a rule is that of the first filter which matches it, as in Kafka 3.9.1.
            result.matching_acls = first
        for pattern, rows in removed.items():
            refused = yield from self._change(pattern, removed=rows.keys())
            if refused is not None:
                for row in rows.values():
                    row.error_code, row.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, refused
        return DeleteAclsResponse(filter_results=results)

    def _matched(self, request: DeleteAclsRequest) -> Steps[MatchedRules]:
        """Returns the rules that the filters match, found in turns of their own."""
        work = matched_rules(self._metadata.image.security, request)
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: MatchedRules = end.value
                return found
            yield from pause(self._host.timers, 0)

    def _change(
        self, pattern: ResourcePattern, *, added: Collection[AclEntry] = (), removed: Collection[AclEntry] = ()
    ) -> Steps[str | None]:
        """Changes the ACLs of a resource. Returns the error message; None if they are as wanted."""
        path = acl_path(pattern)
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                yield from self._pause()
            before = yield from self._watch.refresh(pattern)
            if before is None:
                return f"The ACLs in {path} cannot be read; see the log of the broker."
            kept = dict.fromkeys(entry for entry in before.entries if entry not in removed)
            after = list({**kept, **dict.fromkeys(added)})
            if after == before.entries:
                return None
            error = yield from self._write(pattern, before, after)
            if not error:
                self._watch.take(pattern, after)
                return None
            if error not in OVERTAKEN:
                return f"ZooKeeper refused the change of {path}: {StoreError(error).name}"
            if error == StoreError.NO_NODE:
                yield from self._watch.make_roots()
        return f"Failed to update ACLs in {path} after trying a maximum of {ATTEMPTS_MAX - 1} times"

    def _write(self, pattern: ResourcePattern, before: AclsRead, after: list[AclEntry]) -> Steps[int]:
        """Writes the ACLs of a resource, with the notification. Returns ZooKeeper's error code; 0 if there is none."""
        path, data = acl_path(pattern), encode_acls(after)
        if before.version is None:
            change = Part(OpCode.CREATE, CreateRequest(path, data, None, CreateFlags.PERSISTENT))
        elif after:
            change = Part(OpCode.SET_DATA, SetDataRequest(path, data, before.version))
        else:
            change = Part(OpCode.DELETE, DeleteRequest(path, before.version))
        flags = CreateFlags.PERSISTENT_SEQUENTIAL
        notification = Part(OpCode.CREATE, CreateRequest(*acl_change(pattern), None, flags))
        reply: MultiReply = yield lambda answered: self._store.multi([change, notification], answered)
        return 0 if reply.refused_part is None else reply.error_of(reply.refused_part)


def _problem_in_znodes(rule: AclRule) -> str | None:
    """Returns why a valid rule cannot be in a znode, None if it can."""
    if "/" in rule.resource_name:
        return f"Failed to create ACL: the resource name {rule.resource_name} has a slash"
    if rule.operation not in OPERATIONS:
        return f"Failed to create ACL: ZooKeeper mode has no operation {shown(AclOperation, rule.operation)}"
    return None


def _pattern_of(rule: AclRule) -> ResourcePattern:
    return ResourcePattern(rule.resource_type, rule.resource_name, rule.pattern_type)


def _entry_of(rule: AclRule) -> AclEntry:
    return AclEntry(rule.principal, rule.permission, rule.operation, rule.host)


def _pattern_named(requested: DeleteAclsRequest.DeleteAclsFilter) -> ResourcePattern | None:
    """Returns the only resource whose rules a filter can match; None if there can be several, or none."""
    wanted = AclFilter.of(requested)
    pattern = ResourcePattern(wanted.resource_type, wanted.name or "", wanted.pattern)
    return pattern if has_acls(pattern) else None
