"""ACLs: finds the rule that allows or denies an operation, as Kafka's StandardAuthorizer does.

A check has a principal, a host, an operation and a resource. The rules of a resource are those with its literal name,
those with a prefix of its name, and those for `*`. A rule that denies takes precedence over rules that allow; if none
of the rules applies to the check, the operation is denied. The default of the cluster applies only to a resource
without any rule. An ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, one of ALTER_CONFIGS implies
DESCRIBE_CONFIGS; a DENY implies nothing.

The rules are indexed by type, operation and principal. To compare the few rules that a principal has of these costs
less than a look-up for each length of a prefix, each of which would miss the processor's cache; if there are many, they
are indexed by name. If several rules agree, the decision contains the one that Kafka's audit log would name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

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

T = TypeVar("T")
_new_tuple: Final = tuple.__new__

#: Plain numbers: a number is found faster among its like than among members of an enum.
_OPERATIONS: Final = tuple(int(each) for each in AclOperation)
#: Operation -> the operations of rules that allow it, and those of rules that deny it.
_DENYING: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({operation, int(AclOperation.ALL)}) for operation in _OPERATIONS
}
_ALLOWING: Final[dict[int, frozenset[int]]] = {
    **_DENYING,
    int(AclOperation.DESCRIBE): frozenset(
        int(each)
        for each in (
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        )
    ),
    int(AclOperation.DESCRIBE_CONFIGS): frozenset(
        int(each) for each in (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL)
    ),
}
_ALLOW: Final = int(AclPermission.ALLOW)
_PREFIXED: Final = int(AclPattern.PREFIXED)
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

    @staticmethod
    def of(record: AccessControlEntryRecord) -> AclRule:
        # The constructor of a NamedTuple takes twice as long.
        return _new_tuple(
            AclRule,
            (
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.operation,
                record.principal,
                record.host,
                record.permission_type,
            ),
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

#: The number of rules of a principal about an operation up to which they are compared one by one.
_COMPARED_MAX: Final = 24
_NO_RULES: Final[tuple[AclRule, ...]] = ()


class _Names(Generic[T]):
    """Values by resource pattern: by literal name, and by prefix."""

    __slots__ = ("_lengths", "literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, T] = {}
        self.prefixes: dict[str, T] = {}
        #: Length -> the number of prefixes with this length.
        self._lengths: dict[int, int] = {}

    def add(self, rule: AclRule, value: T) -> None:
        """Sets the value of a pattern that has none."""
        if rule.pattern_type != _PREFIXED:
            self.literals[rule.resource_name] = value
            return
        self.prefixes[rule.resource_name] = value
        length = len(rule.resource_name)
        self._lengths[length] = self._lengths.get(length, 0) + 1

    def of(self, rule: AclRule) -> T | None:
        """Returns the value of the pattern of a rule."""
        return (self.literals if rule.pattern_type != _PREFIXED else self.prefixes).get(rule.resource_name)

    def remove(self, rule: AclRule) -> None:
        if rule.pattern_type != _PREFIXED:
            del self.literals[rule.resource_name]
            return
        del self.prefixes[rule.resource_name]
        length = len(rule.resource_name)
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def has(self, name: str) -> bool:
        """Returns whether a pattern matches a name."""
        literals, prefixes = self.literals, self.prefixes
        return name in literals or WILDCARD in literals or any(name[:length] in prefixes for length in self._lengths)

    def matching(self, name: str) -> Iterator[T]:
        """Yields the values of the patterns that match a name."""
        literals, prefixes, size = self.literals, self.prefixes, len(name)
        if name in literals:
            yield literals[name]
        if WILDCARD in literals and name != WILDCARD:
            yield literals[WILDCARD]
        for length in self._lengths:
            if length <= size and (prefix := name[:length]) in prefixes:
                yield prefixes[prefix]


class _ManyRules:
    """The rules of a principal with many of them."""

    __slots__ = ("_by_pattern",)

    def __init__(self, rules: Iterable[AclRule]) -> None:
        self._by_pattern: _Names[list[AclRule]] = _Names()
        for rule in rules:
            self.add(rule)

    def __iter__(self) -> Iterator[AclRule]:
        for each in (self._by_pattern.literals, self._by_pattern.prefixes):
            for rules in each.values():
                yield from rules

    def add(self, rule: AclRule) -> None:
        rules = self._by_pattern.of(rule)
        if rules is None:
            self._by_pattern.add(rule, [rule])
        else:
            rules.append(rule)

    def remove(self, rule: AclRule) -> None:
        rules = self._by_pattern.of(rule)
        assert rules is not None, "a rule is removed that was added"
        rules.remove(rule)
        if not rules:
            self._by_pattern.remove(rule)

    def __bool__(self) -> bool:
        return bool(self._by_pattern.literals or self._by_pattern.prefixes)

    def about(self, name: str) -> tuple[AclRule, ...]:
        """Returns the rules that apply to a resource."""
        return tuple(rule for rules in self._by_pattern.matching(name) for rule in rules)


#: The rules of a principal about an operation.
_Own = tuple[AclRule, ...] | _ManyRules


class _OfType:
    """The rules of one type of resource, in no order. Equal rules can exist twice, with different ids."""

    __slots__ = ("by_operation", "counts")

    def __init__(self) -> None:
        #: Operation of the rules -> principal -> its rules.
        self.by_operation: dict[int, dict[str, _Own]] = {}
        #: The number of rules of each pattern.
        self.counts: _Names[int] = _Names()

    def add(self, rule: AclRule) -> None:
        _, name, pattern_type, operation, principal, _, _ = rule
        counts = self.counts
        counted = counts.literals if pattern_type != _PREFIXED else counts.prefixes
        count = counted.get(name)
        if count is None:
            counts.add(rule, 1)
        else:
            counted[name] = count + 1
        by_principal = self.by_operation.get(operation)
        if by_principal is None:
            by_principal = self.by_operation[operation] = {}
        own = by_principal.get(principal)
        if own is None:
            by_principal[principal] = (rule,)
        elif isinstance(own, _ManyRules):
            own.add(rule)
        else:
            by_principal[principal] = (*own, rule) if len(own) < _COMPARED_MAX else _ManyRules((*own, rule))

    def remove(self, rule: AclRule) -> None:
        counts = self.counts
        counted = counts.literals if rule.pattern_type != _PREFIXED else counts.prefixes
        counted[rule.resource_name] -= 1
        if not counted[rule.resource_name]:
            counts.remove(rule)
        by_principal = self.by_operation[rule.operation]
        own = by_principal[rule.principal]
        if isinstance(own, _ManyRules):
            own.remove(rule)
        else:
            place = own.index(rule)
            own = by_principal[rule.principal] = own[:place] + own[place + 1 :]
        if not own:
            del by_principal[rule.principal]
            if not by_principal:
                del self.by_operation[rule.operation]

    def own_rules(self, principal: str, operations: Iterable[int]) -> Iterator[AclRule]:
        """Yields the rules of this principal and of everybody about operations."""
        for operation in operations:
            by_principal = self.by_operation.get(operation, {})
            for each in {principal: None, EVERYBODY: None}:
                yield from by_principal.get(each, _NO_RULES)


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

    def update(self, changes: Iterable[tuple[bytes, AclRule | None]]) -> None:
        """Applies the rules that were set or removed (None), by id."""
        rules, types = self._rules, self._types
        self.version += 1
        for rule_id, rule in changes:
            if rule_id in rules:
                before = rules.pop(rule_id)
                types[before.resource_type].remove(before)
            if rule is not None:
                rules[rule_id] = rule
                resource_type = rule[0]
                of_type = types.get(resource_type)
                if of_type is None:
                    of_type = types[resource_type] = _OfType()
                of_type.add(rule)

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> Decision:
        """Decides by the rules alone. `host` is a numeric address."""
        of_type = self._types.get(resource)
        if of_type is None:
            return _NO_RULE
        denying = _DENYING[operation]
        found: AclRule | None = None
        for operates in _ALLOWING[operation]:
            by_principal = of_type.by_operation.get(operates)
            if by_principal is None:
                continue
            own = by_principal.get(principal, _NO_RULES)
            rules = own if isinstance(own, tuple) else own.about(name)
            if EVERYBODY in by_principal and principal != EVERYBODY:
                own = by_principal[EVERYBODY]
                rules += own if isinstance(own, tuple) else own.about(name)
            for rule in rules:
                _, pattern, pattern_type, _, _, only_host, permission = rule
                if pattern_type == _PREFIXED:
                    if not name.startswith(pattern):
                        continue
                elif pattern != name and pattern != WILDCARD:
                    continue
                if only_host != WILDCARD and only_host != host:
                    continue
                if permission == _ALLOW or operates in denying:
                    found = rule if found is None else _deciding(found, rule, name)
        if found is not None:
            return tuple.__new__(Decision, (found[6] == _ALLOW, found, True))
        return _NO_MATCH if of_type.counts.has(name) else _NO_RULE

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Returns whether there is a name, known or not, for which the rules allow this (authorizeByResourceType). The
        operation of the rules must be the same, or ALL."""
        if self.decide(principal, host, operation, resource, _ANY_NAME).allowed:
            return True
        allowed: list[tuple[bool, str]] = []
        denied: set[tuple[bool, str]] = set()
        of_type = self._types.get(resource)
        for rule in () if of_type is None else of_type.own_rules(principal, _DENYING[operation]):
            if rule.host not in (WILDCARD, host):
                continue
            pattern = (rule.pattern_type == _PREFIXED, rule.resource_name)
            if rule.permission == _ALLOW:
                allowed.append(pattern)
            elif pattern == (False, WILDCARD):
                return False
            else:
                denied.add(pattern)
        return any(pattern == (False, WILDCARD) or not _is_dominated(pattern, denied) for pattern in allowed)


def _deciding(one: AclRule, other: AclRule, name: str) -> AclRule:
    """Returns the rule of two that decides about a resource: one that denies, the first of those; otherwise the last
    that allows.
    """
    if one.permission != other.permission:
        return other if one.permission == _ALLOW else one
    is_first = _place(one, name) < _place(other, name)
    return other if is_first == (one.permission == _ALLOW) else one


def _place(rule: AclRule, name: str) -> tuple[int, int, AclRule]:
    """Returns the place of a rule in the order in which Kafka reads those of a resource: the literal name, prefixes,
    the longest first, and "*".
    """
    if rule.pattern_type == _PREFIXED:
        return 1, -len(rule.resource_name), rule
    return 0 if rule.resource_name == name else 2, 0, rule


def _is_dominated(pattern: tuple[bool, str], denied: set[tuple[bool, str]]) -> bool:
    """Returns whether a denied pattern covers all names of an allowed one."""
    is_prefix, name = pattern
    if not is_prefix and pattern in denied:
        return True
    return any((True, name[:length]) in denied for length in range(1, len(name) + 1))
