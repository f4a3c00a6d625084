"""The ACLs in ZooKeeper, as rules in the image, where the authorizer finds them.

They are followed by the notifications in /kafka-acl-changes and /kafka-acl-extended-changes (`znode_watch.py`).

A znode whose ACLs cannot be read is reported, and read again as soon as it changes. Until then the rules that were last
read stay in force. If none were read, a rule that denies everything stands for them: they could be rules that deny,
and a resource without any rule could be open to everybody (`allow.everyone.if.no.acl.found`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.zookeeper.store_steps import Steps, make_path, read, read_all
from barnabas.broker.zookeeper.znode_watch import ZnodeWatch
from barnabas.common.host import Host
from barnabas.metadata.acls import EVERYBODY, WILDCARD, AclOperation, AclPermission
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import RemoveAccessControlEntryRecord
from barnabas.znodes import paths
from barnabas.znodes.acl_znodes import (
    LITERAL,
    PREFIXED,
    RESOURCE_TYPES,
    AclEntry,
    ResourcePattern,
    acl_path,
    decode_acl_change,
    decode_acls,
    has_acls,
    pattern_of,
    type_path,
)
from barnabas.znodes.entity_records import acl_records
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ChildrenReply, ReadReply, ZnodeStore
from barnabas.zookeeper.wire.codes import ErrorCode

_NOTHING_ALLOWED: Final = AclEntry(EVERYBODY, AclPermission.DENY, AclOperation.ALL, WILDCARD)

#: The parents of all ACLs, and of the notifications.
_ROOTS: Final = (
    *(type_path(resource_type, pattern) for pattern in (LITERAL, PREFIXED) for resource_type in RESOURCE_TYPES),
    paths.ACL_CHANGES,
    paths.EXTENDED_ACL_CHANGES,
)


class AclsRead(NamedTuple):
    """The ACLs of a resource, and the data version of their znode; None if there is no znode."""

    entries: list[AclEntry]
    version: int | None


class AclWatch(ZnodeWatch[ResourcePattern]):
    """The ACLs that this broker follows."""

    def __init__(self, host: Host, store: ZnodeStore, metadata: MetadataStore) -> None:
        folders = dict.fromkeys((paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES), decode_acl_change)
        super().__init__(host, store, metadata, folders)
        #: Resource -> its ACLs in the image, with their ids there.
        self._known: dict[ResourcePattern, dict[AclEntry, bytes]] = {}
        #: The records until everything was read for the first time: the authorizer takes the first image for one that
        #: has all rules.
        self._unpublished: list[Message] | None = []

    def load(self) -> Steps[None]:
        """Creates the parents that are missing, sets the watches, then reads all ACLs."""
        yield from self.make_roots()
        yield from super().load()

    def make_roots(self) -> Steps[None]:
        for path in _ROOTS:
            yield from make_path(self._store, path)

    def _load(self) -> Steps[None]:
        patterns = dict.fromkeys(self._known)
        for path in _ROOTS[:-2]:
            reply: ChildrenReply = yield partial(self._store.children, path)
            if reply.error not in (ErrorCode.OK, ErrorCode.NO_NODE):
                self._host.faults.fatal(f"the rules below {path} cannot be read: {ErrorCode(reply.error).name}")
            found = (pattern_of(f"{path}/{name}") for name in sorted(reply.names or ()))
            patterns.update(dict.fromkeys(pattern for pattern in found if pattern is not None))
        by_path = {acl_path(pattern): pattern for pattern in patterns}
        broken: dict[str, None] = {}

        def take(path: str, reply: ReadReply) -> None:
            try:
                self.take(by_path[path], _decoded(path, reply))
            except ZnodeError:
                broken[path] = None

        yield from read_all(self._store, by_path, take)
        for path in broken:
            yield from self.refresh(by_path[path])
        if self._unpublished is not None:
            records, self._unpublished = self._unpublished, None
            self._publish(records)

    def changed(self, path: str) -> None:
        pattern = pattern_of(path)
        if pattern is None:
            super().changed(path)
        else:
            self._want((pattern,))

    def _read(self, name: ResourcePattern) -> Steps[object]:
        return self.refresh(name)

    def refresh(self, pattern: ResourcePattern) -> Steps[AclsRead | None]:
        """Reads the ACLs of a resource and puts them into the image. Returns them, or None if they are invalid."""
        if not has_acls(pattern):
            self._reports.report(pattern, f"a notification names {pattern}, which cannot have ACLs")
            return None
        path = acl_path(pattern)
        reply = yield from read(self._store, path)
        try:
            entries = _decoded(path, reply)
        except ZnodeError:
            # The watch reports the correction, for which there is no notification. The znode can be correct by now.
            reply = yield from read(self._store, path, watch=True)
            try:
                entries = _decoded(path, reply)
            except ZnodeError as error:
                self._reports.report(path, str(error))
                if pattern not in self._known:
                    self.take(pattern, [_NOTHING_ALLOWED])
                return None
        self._mended(path)
        self.take(pattern, entries)
        return AclsRead(entries, None if reply.znode is None else reply.znode.version)

    def take(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Puts the ACLs of a resource into the image; they are all that it has."""
        before = self._known.get(pattern, {})
        after = {entry: before.get(entry) for entry in entries}
        changes: list[Message] = [
            RemoveAccessControlEntryRecord(id=rule_id) for entry, rule_id in before.items() if entry not in after
        ]
        known: dict[AclEntry, bytes] = {}
        for entry, rule_id in after.items():
            if rule_id is None:
                (record,) = acl_records(pattern, [entry], self._host.random.uuid)
                changes.append(record)
                rule_id = record.id
            known[entry] = rule_id
        if known:
            self._known[pattern] = known
        else:
            self._known.pop(pattern, None)
        if self._unpublished is not None:
            self._unpublished += changes
        elif changes:
            self._publish(changes)


def _decoded(path: str, reply: ReadReply) -> list[AclEntry]:
    """Returns the ACLs that were read. Raises ZnodeError."""
    if reply.znode is None:
        if reply.error != ErrorCode.NO_NODE:
            raise ZnodeError(path, f"cannot be read: {ErrorCode(reply.error).name}")
        return []
    return decode_acls(path, reply.znode.data)
