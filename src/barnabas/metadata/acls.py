"""ACLs: finds the rule that allows or denies an operation, as Kafka's StandardAuthorizer does.

A check has a principal, a host, an operation and a resource. The rules of a resource are those with its literal name,
those with a prefix of its name, and those for `*`. A rule that denies takes precedence over rules that allow; if none
of the rules applies to the check, the operation is denied. The default of the cluster applies only to a resource
without any rule. An ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, one of ALTER_CONFIGS implies
DESCRIBE_CONFIGS; a DENY implies nothing.

The rules are indexed by type, name and principal, so a check costs a few look-ups: one for each length of a prefix. If
several rules agree, the decision contains the one that Kafka's audit log would name.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.protocol.messages.records_metadata import AccessControlEntryRecord


class AclResource(IntEnum):
    """The types of resources, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """The operations, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPattern(IntEnum):
    """The kinds of resource patterns, with Kafka's codes. ANY and MATCH are in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """The permissions, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


#: The name of the resource that matches any name, and the only name of a cluster.
WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
EVERYBODY: Final = "User:*"

_OPERATIONS: Final = tuple(AclOperation)
#: Operation -> the operations of rules that allow it, and those of rules that deny it.
_ALLOWING: Final = {
    **{operation: frozenset({operation, AclOperation.ALL}) for operation in _OPERATIONS},
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
_DENYING: Final = {operation: frozenset({operation, AclOperation.ALL}) for operation in _OPERATIONS}
_ALLOW: Final = int(AclPermission.ALLOW)
#: The name that Kafka checks before it considers all resources of a type.
_ANY_NAME: Final = "hardcode"


class AclRule(NamedTuple):
    """A rule that allows or denies a principal an operation on resources. The fields are in the order in which Kafka
    sorts the rules of one resource.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    operation: int
    principal: str
    host: str
    permission: int

    @classmethod
    def of(cls, record: AccessControlEntryRecord) -> AclRule:
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.operation,
            record.principal,
            record.host,
            record.permission_type,
        )

    def record(self, rule_id: bytes) -> AccessControlEntryRecord:
        """Returns the record that adds the rule under this id."""
        return AccessControlEntryRecord(
            id=rule_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    def __str__(self) -> str:
        """Returns the rule as Kafka's audit log shows it."""
        return (
            f"StandardAcl(resourceType={shown(AclResource, self.resource_type)}, resourceName={self.resource_name}, "
            f"patternType={shown(AclPattern, self.pattern_type)}, principal={self.principal}, host={self.host}, "
            f"operation={shown(AclOperation, self.operation)}, "
            f"permissionType={shown(AclPermission, self.permission)})"
        )


def shown(kind: type[IntEnum], code: int) -> str:
    """Returns the name of a code, UNKNOWN for one that Kafka does not know either."""
    return kind(code).name if code in kind._value2member_map_ else "UNKNOWN"


class Decision(NamedTuple):
    """A decision, with the rule that it is based on. If no rule applied, `has_rules` says whether the resource has
    rules at all.
    """

    allowed: bool
    rule: AclRule | None = None
    has_rules: bool = False


_NO_RULE: Final = Decision(False)
_NO_MATCH: Final = Decision(False, None, True)

#: Principal -> its rules on one resource pattern, in order. Equal rules can exist twice, with different ids.
_Rules = dict[str, list[AclRule]]
_NO_RULES: Final[list[AclRule]] = []


class _OfType:
    """The rules of one type of resource."""

    __slots__ = ("by_principal", "lengths", "literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, _Rules] = {}
        #: Length -> prefix -> rules.
        self.prefixes: dict[int, dict[str, _Rules]] = {}
        #: The lengths of prefixes, longest first.
        self.lengths: list[int] = []
        #: Principal -> the ids of its rules.
        self.by_principal: dict[str, dict[bytes, AclRule]] = {}

    def add(self, rule_id: bytes, rule: AclRule) -> None:
        insort(self._patterns(rule).setdefault(rule.resource_name, {}).setdefault(rule.principal, []), rule)
        self.by_principal.setdefault(rule.principal, {})[rule_id] = rule

    def _patterns(self, rule: AclRule) -> dict[str, _Rules]:
        if rule.pattern_type != AclPattern.PREFIXED:
            return self.literals
        length = len(rule.resource_name)
        found = self.prefixes.get(length)
        if found is None:
            found = self.prefixes[length] = {}
            insort(self.lengths, length, key=lambda each: -each)
        return found

    def remove(self, rule_id: bytes, rule: AclRule) -> None:
        patterns = self._patterns(rule)
        rules = patterns[rule.resource_name]
        rules[rule.principal].remove(rule)
        if not rules[rule.principal]:
            del rules[rule.principal]
        if not rules:
            del patterns[rule.resource_name]
            if not patterns and patterns is not self.literals:
                del self.prefixes[len(rule.resource_name)]
                self.lengths.remove(len(rule.resource_name))
        own = self.by_principal[rule.principal]
        del own[rule_id]
        if not own:
            del self.by_principal[rule.principal]

    def matching(self, name: str) -> list[_Rules]:
        """Returns the rules that apply to a resource, in the order in which Kafka reads them."""
        literals, prefixes, size = self.literals, self.prefixes, len(name)
        found = [literals[name]] if name in literals else []
        for length in self.lengths:
            if length <= size:
                rules = prefixes[length].get(name[:length])
                if rules is not None:
                    found.append(rules)
        if WILDCARD in literals and name != WILDCARD:
            found.append(literals[WILDCARD])
        return found


class AclIndex:
    """The rules of a cluster, indexed. It is updated by the changes of each image."""

    __slots__ = ("_rules", "_types", "version")

    def __init__(self) -> None:
        self._rules: dict[bytes, AclRule] = {}
        self._types: dict[int, _OfType] = {}
        #: A number that changes with each change of the rules.
        self.version = 0

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def rules(self) -> Mapping[bytes, AclRule]:
        return self._rules

    def update(self, changes: Iterable[tuple[bytes, AccessControlEntryRecord | None]]) -> None:
        """Applies the rules that were set or removed (None), by id."""
        for rule_id, record in changes:
            before = self._rules.pop(rule_id, None)
            if before is not None:
                self._types[before.resource_type].remove(rule_id, before)
            if record is not None:
                rule = self._rules[rule_id] = AclRule.of(record)
                of_type = self._types.get(rule.resource_type)
                if of_type is None:
                    of_type = self._types[rule.resource_type] = _OfType()
                of_type.add(rule_id, rule)
            self.version += 1

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> Decision:
        """Decides by the rules alone. `host` is a numeric address."""
        of_type = self._types.get(resource)
        if of_type is None:
            return _NO_RULE
        matching = of_type.matching(name)
        if not matching:
            return _NO_RULE
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        allowed: AclRule | None = None
        for rules in matching:
            for rule in _about(rules, principal):
                _, _, _, allows, _, only_host, permission = rule
                if only_host not in (WILDCARD, host):
                    continue
                if permission == _ALLOW:
                    if allows in allowing:
                        allowed = rule
                elif allows in denying:
                    return Decision(False, rule, True)
        return _NO_MATCH if allowed is None else Decision(True, allowed, True)

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Returns whether there is a name, known or not, for which the rules allow this (authorizeByResourceType). The
        operation of the rules must be the same, or ALL."""
        if self.decide(principal, host, operation, resource, _ANY_NAME).allowed:
            return True
        allowed: list[tuple[bool, str]] = []
        denied: set[tuple[bool, str]] = set()
        for rule in self._own_rules(principal, resource):
            if rule.host not in (WILDCARD, host) or rule.operation not in _DENYING[operation]:
                continue
            pattern = (rule.pattern_type == AclPattern.PREFIXED, rule.resource_name)
            if rule.permission == AclPermission.ALLOW:
                allowed.append(pattern)
            elif pattern == (False, WILDCARD):
                return False
            else:
                denied.add(pattern)
        return any(pattern == (False, WILDCARD) or not _is_dominated(pattern, denied) for pattern in allowed)

    def _own_rules(self, principal: str, resource: AclResource) -> Iterator[AclRule]:
        of_type = self._types.get(resource)
        if of_type is not None:
            for each in {principal: None, EVERYBODY: None}:
                yield from of_type.by_principal.get(each, {}).values()


def _about(rules: _Rules, principal: str) -> list[AclRule]:
    """Returns the rules of a pattern that apply to this principal or to everybody, in order."""
    own = rules.get(principal)
    if EVERYBODY not in rules:
        return own or _NO_RULES
    all_of_them = rules[EVERYBODY]
    return all_of_them if own is None or own is all_of_them else sorted(own + all_of_them)


def _is_dominated(pattern: tuple[bool, str], denied: set[tuple[bool, str]]) -> bool:
    """Returns whether a denied pattern covers all names of an allowed one."""
    is_prefix, name = pattern
    if not is_prefix and pattern in denied:
        return True
    return any((True, name[:length]) in denied for length in range(1, len(name) + 1))
