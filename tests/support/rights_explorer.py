"""The rules of a cluster, from records or from znodes to the decisions of an authorizer, and a dumb evaluation of them.

A seed takes some tens of milliseconds. Rules are added and removed, twice or broken ones too, some with notifications
and some without; sessions with ZooKeeper are interrupted and end. Then clients ask for everything that an authorizer
decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final, NamedTuple

from tests.support.controller_world import make_config
from tests.support.znode_memory import ZnodeMemory

from barnabas.broker.audit_log import Decided
from barnabas.broker.authorizer import Authorizer
from barnabas.broker.zookeeper.acl_watch import AclWatch
from barnabas.broker.zookeeper.store_steps import StoreSteps
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource, AclRule
from barnabas.metadata.image import MetadataDelta
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.records_metadata import RemoveAccessControlEntryRecord
from barnabas.simulation.history import Violation
from barnabas.simulation.host import EPOCH_WALL_MS, MemoryHost
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.znodes import paths
from barnabas.znodes.acl_znodes import AclEntry, ResourcePattern, acl_change, acl_path, encode_acls
from barnabas.zookeeper.wire.codes import CreateFlags, EventType, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CreateRequest

_STEPS: Final = 25
_TYPES: Final = tuple(AclResource)[2:]
_OPERATIONS: Final = tuple(AclOperation)[2:15]
_NAMES: Final = ("a", "ab", "abc", "b", "kafka-cluster", "hardcode", "*")
_PRINCIPALS: Final = ("User:alice", "User:bob", "User:root", "User:ann", "User:*", "Group:alice")
#: Addresses as a connection shows them, and as a rule names them.
_HOSTS: Final = {
    "/10.0.0.1": "10.0.0.1",
    "/10.0.0.2": "10.0.0.2",
    "/::1": "0:0:0:0:0:0:0:1",
    "/2001:db8::a:0": "2001:db8:0:0:0:0:a:0",
    "/::ffff:10.0.0.1": "10.0.0.1",
    "/localhost": "localhost",
}
#: Operation -> the operations whose permission implies it.
_IMPLIED: Final = {8: (3, 4, 6, 7), 10: (11,)}
#: The operations on a type that a client can request as bits.
_BITS: Final = {2: (3, 4, 5, 6, 7, 8, 10, 11), 3: (3, 6, 8, 10, 11), 4: (5, 7, 8, 9, 10, 11, 12)}
_DENY: Final = int(AclPermission.DENY)
_NO_RIGHTS: Final = AclEntry("User:*", AclPermission.DENY, AclOperation.ALL, "*")
_EXPIRES_MS: Final = 15 * 60_000
_FOLDERS: Final = (paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES)


class Client(NamedTuple):
    principal: str
    client_host: str
    api_key: int = 3


class Noted:
    """An audit log that keeps what it is told."""

    def __init__(self, logs_allowed: bool, logs_filtered: bool) -> None:
        self.logs_allowed, self.logs_filtered = logs_allowed, logs_filtered
        self.lines: list[tuple[str, Any, Decided, bool]] = []

    def allowed(self, requester: Any, decided: Decided) -> None:
        self.lines.append(("allowed", requester, decided, True))

    def denied(self, requester: Any, decided: Decided, *, explicit: bool) -> None:
        self.lines.append(("denied", requester, decided, explicit))


def _place(rule: AclRule, name: str) -> tuple[int, int, AclRule]:
    """Returns the place of a rule among those of a resource, in which Kafka reads them."""
    kind = 1 if rule.pattern_type == AclPattern.PREFIXED else 0 if rule.resource_name == name else 2
    return kind, -len(rule.resource_name) if kind == 1 else 0, rule


class RightsExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"rights {seed}")
        self._super_users = frozenset(random.sample(_PRINCIPALS[:3], random.randint(0, 2)))
        self._by_default = random.random() < 0.5
        properties = {"super.users": ";".join(sorted(self._super_users))}
        if self._by_default or random.random() < 0.5:
            properties["allow.everyone.if.no.acl.found"] = (
                random.choice(("true", " TRUE ")) if self._by_default else "1"
            )
        self._host: Any = MemoryHost(seed=1)
        self._metadata = MetadataStore()
        self._authorizer = Authorizer(make_config(properties), self._host.clock)
        self._audit = Noted(random.random() < 0.5, random.random() < 0.3)
        self._authorizer.audit = self._audit  # type: ignore[assignment]
        self._counts = [0, 0]
        #: The rules that must be in force, with their ids, or one for each.
        self._rules: dict[Any, AclRule] = {}
        self._is_ready = False

    def run(self) -> None:
        with second_decisions().judging():
            if self._random.random() < 0.5:
                RecordedRules(self).run()
            else:
                RulesInZnodes(self).run()

    def follow(self) -> None:
        """Lets the authorizer follow the metadata, as brokers do."""
        self._ask()
        self._metadata.subscribe(self._authorizer.on_image)

    def is_known(self, rules: dict[Any, AclRule]) -> None:
        """The metadata has these rules now."""
        self._rules, self._is_ready = rules, True
        found = sorted(self._authorizer.index.rules.values())
        self.check("the rules of the authorizer", found, sorted(rules.values()))
        self.check("the number of rules", len(self._authorizer.index), len(rules))

    def check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"rights: {what} is {found!r}, it should be {expected!r}")

    # -- the dumb evaluation

    def _deciding(
        self, client: Client, operations: Iterable[int], denied: int, resource: int, name: str
    ) -> list[AclRule]:
        """Returns the rules that apply, of those about these operations; a denial must be about `denied` or all."""
        host = _HOSTS[client.client_host]
        return [
            rule
            for rule in self._about(resource, name)
            if rule.principal in (client.principal, "User:*")
            and rule.host in (host, "*")
            and (rule.operation in (denied, 2) if rule.permission == _DENY else rule.operation in (*operations, 2))
        ]

    def _about(self, resource: int, name: str) -> list[AclRule]:
        found = []
        for rule in self._rules.values():
            is_prefix = rule.pattern_type == AclPattern.PREFIXED
            matches = name.startswith(rule.resource_name) if is_prefix else rule.resource_name in (name, "*")
            if rule.resource_type == resource and matches:
                found.append(rule)
        return found

    def _evaluated(self, client: Client, operation: int, resource: int, name: str) -> tuple[bool, str]:
        """Returns whether the client may do this, and the rule as the audit log shows it."""
        if client.principal in self._super_users:
            return True, "SuperUser"
        if not self._about(resource, name):
            is_open = self._by_default and self._is_ready
            return is_open, "DefaultAllow" if is_open else "DefaultDeny"
        applied = self._deciding(client, (operation, *_IMPLIED.get(operation, ())), operation, resource, name)
        applied.sort(key=lambda rule: _place(rule, name))
        denying = [rule for rule in applied if rule.permission == _DENY]
        if denying:
            return False, f"MatchingAcl(acl={denying[0]})"
        if applied:
            return True, f"MatchingAcl(acl={applied[-1]})"
        return False, "DefaultDeny"

    def _evaluated_for_any(self, client: Client, operation: int, resource: int) -> bool:
        """Tries every name about which rules say something, and one besides for each prefix."""
        if self._evaluated(client, operation, resource, "hardcode")[0]:
            return True
        names = {rule.resource_name for rule in self._rules.values()} - {"*"}
        names |= {f"{name}~" for name in (*names, "")}
        for name in names:
            applied = self._deciding(client, (operation,), operation, resource, name)
            if applied and all(rule.permission != _DENY for rule in applied):
                return True
        return False

    # -- questions

    def ask(self) -> None:
        for _ in range(self._random.randint(1, 12)):
            self._ask()

    def _ask(self) -> None:
        random = self._random
        client = Client(random.choice(_PRINCIPALS), random.choice(list(_HOSTS)))
        resource, operation = random.choice(_TYPES), random.choice(_OPERATIONS)
        kind = random.random()
        if kind < 0.5:
            name = random.choice(_NAMES)
            self._allow(client, operation, resource, [name], references=random.choice((1, 3)))
            if random.random() < 0.5:  # The next question differs in one respect.
                client = random.choice((client, client._replace(principal=random.choice(_PRINCIPALS))))
                client = random.choice((client, client._replace(client_host=random.choice(list(_HOSTS)))))
                operation, name = random.choice((operation, random.choice(_OPERATIONS))), random.choice(_NAMES)
                self._allow(client, operation, resource, [name])
        elif kind < 0.7:
            self._allow(client, operation, resource, random.choices(_NAMES, k=random.randint(0, 5)))
        elif kind < 0.85:
            found = self._authorizer.allows_any(client, operation, resource)
            self.check(f"any {resource.name} to {client}", found, self._evaluated_for_any(client, operation, resource))
        else:
            resource = AclResource(random.choice(list(_BITS)))
            name = random.choice(_NAMES)
            expected = sum(1 << each for each in _BITS[resource] if self._evaluated(client, each, resource, name)[0])
            found_bits = self._authorizer.operations(client, resource, name)
            self.check(f"the operations of {client} on {resource.name} {name}", found_bits, expected)
        is_super = self._authorizer.is_super_user(client.principal)
        self.check("whether it is a super user", is_super, client.principal in self._super_users)

    def _allow(
        self, client: Client, operation: AclOperation, resource: AclResource, names: list[str], references: int = 0
    ) -> None:
        log_denied, audit, lines = self._random.random() < 0.6, self._audit, []
        allowed = set()
        for name in dict.fromkeys(names):
            may, rule = self._evaluated(client, operation, resource, name)
            self._counts[not may] += 1
            if may:
                allowed.add(name)
            if audit.logs_allowed if may else log_denied or audit.logs_filtered:
                decided = Decided(operation, resource, name, references or names.count(name), rule)
                lines.append(("allowed" if may else "denied", client, decided, may or log_denied))
        audit.lines.clear()
        authorizer = self._authorizer
        if references:
            is_allowed = authorizer.allows(
                client, operation, resource, names[0], references=references, log_denied=log_denied
            )
            found = {names[0]} if is_allowed else set()
        else:
            found = authorizer.allowed_names(client, operation, resource, names, log_denied=log_denied)
        self.check(f"{operation.name} of {names} of {resource.name} by {client}", found, allowed)
        self.check("the audit log", audit.lines, lines)
        self.check("the counts of decisions", authorizer.counts, self._counts)


class RecordedRules:
    """The rules of KRaft: records of the metadata."""

    def __init__(self, world: RightsExplorer) -> None:
        self._world, self._random = world, world._random
        self._rules: dict[Any, AclRule] = {}

    def run(self) -> None:
        world = self._world
        world.follow()
        for _ in range(_STEPS):
            self._change()
            world.is_known(dict(self._rules))
            world.ask()

    def _change(self) -> None:
        metadata, random = self._world._metadata, self._random
        delta = MetadataDelta(metadata.image)
        few = random.randint(0, 4)
        for _ in range(random.choice((few, few, few, 60))):
            if self._rules and random.random() < 0.35:
                rule_id = random.choice(list(self._rules))
                del self._rules[rule_id]
                delta.replay(RemoveAccessControlEntryRecord(id=rule_id))
                continue
            rule_id = random.randbytes(16)
            rule = self._rules[rule_id] = rule_of(random_entry(random), random_pattern(random))
            delta.replay(rule.record(rule_id))
        before = self._world._authorizer.version
        changed = bool(delta.changed_acls)
        image = metadata.image
        metadata.publish(delta, delta.apply(image.offset + 1, 1, EPOCH_WALL_MS))
        self._world.check("whether the version changed", self._world._authorizer.version != before, changed)


def random_pattern(random: Random) -> ResourcePattern:
    name = random.choice(_NAMES)
    kind = AclPattern.PREFIXED if name != "*" and random.random() < 0.4 else AclPattern.LITERAL
    return ResourcePattern(int(random.choice(_TYPES[:3] * 3 + _TYPES)), name, int(kind))


def random_entry(random: Random) -> AclEntry:
    host = random.choice(("*", "*", *_HOSTS.values()))
    permission = random.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY))
    principal = random.choice((*_PRINCIPALS, "User:*", "User:alice"))
    return AclEntry(principal, int(permission), int(random.choice((*_OPERATIONS, 2, 2))), host)


def rule_of(entry: AclEntry, pattern: ResourcePattern) -> AclRule:
    resource_type, name, kind = pattern
    return AclRule(resource_type, name, kind, entry.operation, entry.principal, entry.host, entry.permission)


class RulesInZnodes:
    """The rules of ZooKeeper mode, followed by the watch of a broker."""

    def __init__(self, world: RightsExplorer) -> None:
        self._world, self._random = world, world._random
        self._host = world._host
        self._store = ZnodeMemory(listener=self)  # type: ignore[arg-type]
        self._watch = AclWatch(self._host, self._store, world._metadata)
        self._loading: StoreSteps | None = None
        #: The znodes: their entries, or None if they are broken.
        self._znodes: dict[ResourcePattern, list[AclEntry] | None] = {}
        #: The entries that the broker must know, by resource.
        self._known: dict[ResourcePattern, list[AclEntry]] = {}
        #: Broken znodes that the broker watches, because it read them.
        self._watched: set[ResourcePattern] = set()
        #: The number of notifications in each folder, and whether there is a new one since the last look.
        self._notifications = dict.fromkeys(_FOLDERS, 0)
        self._is_new = dict.fromkeys(_FOLDERS, False)

    def run(self) -> None:
        world, random = self._world, self._random
        self._change([])
        world.follow()
        self._load()
        self._settle(list(self._znodes))
        for _ in range(_STEPS):
            told: list[ResourcePattern] = []
            for _ in range(random.randint(0, 3)):
                self._change(told)
            self._settle(told)
            world.is_known(
                {
                    (pattern, entry): rule_of(entry, pattern)
                    for pattern, entries in self._known.items()
                    for entry in entries
                }
            )
            world.ask()
            if random.random() < 0.1:
                self._host.time.run_for(random.choice((1_000, _EXPIRES_MS)))
            if random.random() < 0.1:
                self._end_session()

    # -- the session

    def changed(self, path: str, event: EventType) -> None:
        self._watch.changed(path)

    def reconnected(self) -> None:
        if self._loading is not None:
            self._loading.resume()
        self._watch.resume()

    def disconnected(self) -> None:
        """Does nothing: requests are repeated after the next connection."""

    def session_expired(self) -> None:
        if self._loading is not None:
            self._loading.close()

    def session_opened(self, session_id: int) -> None:
        self._load()

    def _load(self) -> None:
        self._loading = StoreSteps(self._watch.load(), self._on_loaded)
        self._loading.start()

    def _on_loaded(self, _: None) -> None:
        self._loading = None

    def _end_session(self) -> None:
        for _ in range(self._random.randint(0, 2)):
            self._change([])
        self._store.expire()
        self._watched.clear()
        for _ in range(self._random.randint(0, 2)):
            self._change([])
        self._store.open_session()
        self._is_new = dict.fromkeys(_FOLDERS, False)
        for folder in _FOLDERS:  # Work of the session before can continue for a moment; it deletes notifications, too.
            for name in self._store.tree.names(folder):
                self._store.tree.delete(f"{folder}/{name}")
            self._notifications[folder] = 0
        self._settle([*self._znodes, *self._known])

    def _settle(self, told: list[ResourcePattern]) -> None:
        """Answers everything, with interruptions; then the broker knows what it was told about."""
        store, random = self._store, self._random
        while store.waiting:
            kind = random.random()
            if kind < 0.03:
                store.disconnect(random.randint(0, store.waiting))
                store.reconnect()
            else:
                store.answer(random.randint(1, store.waiting))
        for pattern in told:
            entries = self._znodes.get(pattern, [])
            if entries is None:
                self._watched.add(pattern)
                self._known.setdefault(pattern, [_NO_RIGHTS])
                continue
            self._watched.discard(pattern)
            if entries:
                self._known[pattern] = list(dict.fromkeys(entries))
            else:
                self._known.pop(pattern, None)
        for folder in _FOLDERS:
            # Old ones are deleted by a broker that reads the folder; all are as old as the world.
            if self._is_new[folder] and self._host.clock.now_ms() > _EXPIRES_MS:
                self._notifications[folder] = 0
            self._is_new[folder] = False
            count = len(store.tree.names(folder))
            self._world.check("the number of notifications", count, self._notifications[folder])

    # -- what administrators do

    def _change(self, told: list[ResourcePattern]) -> None:
        """Changes the rules of one resource, mostly with the notification that Kafka writes."""
        random, tree = self._random, self._store.tree
        pattern = random.choice((random_pattern(random), *self._znodes))
        path, kind = acl_path(pattern), random.random()
        was_watched = pattern in self._watched
        if kind < 0.25:
            self._store.set(
                path, random.choice((b"{", b"[]", b'{"version":9,"acls":[]}', b'{"version":1,"acls":[{"x":1}]}'))
            )
            self._znodes[pattern] = None
        elif kind < 0.3:  # Kafka finds no resource with such a name.
            self._store.set("/kafka-acl/Topic/a/b", encode_acls([random_entry(random)]))
            self._notify(paths.NEW_ACL_CHANGE, b"TOPIC:a/b")
            return
        elif kind < 0.4 and pattern in self._znodes:
            if tree.names(path):
                self._store.set(path, b"")
            else:
                tree.delete(path)
            del self._znodes[pattern]
        else:
            entries = [random_entry(random) for _ in range(random.choice((0, 1, 2, 3)))]
            self._store.set(path, encode_acls(entries))
            self._znodes[pattern] = entries
        if was_watched:
            told.append(pattern)
        if random.random() < 0.75:
            self._notify(*acl_change(pattern))
            told.append(pattern)
        elif random.random() < 0.3:
            self._notify(random.choice((paths.NEW_ACL_CHANGE, paths.NEW_EXTENDED_ACL_CHANGE)), self._odd_notification())

    def _notify(self, path: str, data: bytes) -> None:
        folder = path.rpartition("/")[0]
        request = CreateRequest(path, data, None, CreateFlags.PERSISTENT_SEQUENTIAL)
        reply = self._store.tree.apply([Part(OpCode.CREATE, request)], 0)
        if reply.refused_part is None:  # The folder exists.
            self._notifications[folder] += 1
            self._is_new[folder] = True

    def _odd_notification(self) -> bytes:
        return self._random.choice((b"", b"TOPIC:", b"Topic:a/b", b"WHAT:a", b"TOPIC", b"{}", b"\xff"))
