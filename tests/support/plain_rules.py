"""A slow authorizer for comparison: it reads every rule for every request, as Kafka's documentation describes."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource, AclRule

_IMPLIES = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def plain_answer(
    rules: Iterable[AclRule],
    principal: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
) -> bool | None:
    """Returns whether the operation is allowed; None if no rule is on the resource, so that the default applies."""
    on_resource = [rule for rule in rules if rule.resource_type == resource and covers(rule, name)]
    if not on_resource:
        return None
    about = [rule for rule in on_resource if rule.principal in (principal, "User:*") and rule.host in (host, "*")]
    if any(rule.permission == AclPermission.DENY and rule.operation in (operation, AclOperation.ALL) for rule in about):
        return False
    allowing = {operation, AclOperation.ALL} | _IMPLIES.get(operation, set())
    return any(rule.permission == AclPermission.ALLOW and rule.operation in allowing for rule in about)


def plain_rule(
    rules: Iterable[AclRule],
    principal: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
) -> AclRule | None:
    """Returns the rule that Kafka names in its audit log: it reads those of the literal name, then of prefixes, the
    longest first, then of "*", each in order, up to the first that denies; otherwise it names the last that allows.
    """
    on_resource = sorted(rule for rule in rules if rule.resource_type == resource and covers(rule, name))
    by_pattern: dict[tuple[int, int], list[AclRule]] = {}
    for rule in on_resource:
        is_prefix = rule.pattern_type == AclPattern.PREFIXED
        place = (1, -len(rule.resource_name)) if is_prefix else (0 if rule.resource_name == name else 2, 0)
        by_pattern.setdefault(place, []).append(rule)
    allowing = {operation, AclOperation.ALL} | _IMPLIES.get(operation, set())
    found = None
    for _, in_order in sorted(by_pattern.items()):
        for rule in in_order:
            if rule.principal not in (principal, "User:*") or rule.host not in (host, "*"):
                continue
            if rule.permission == AclPermission.DENY and rule.operation in (operation, AclOperation.ALL):
                return rule
            if rule.permission == AclPermission.ALLOW and rule.operation in allowing:
                found = rule
    return found


def covers(rule: AclRule, name: str) -> bool:
    if rule.pattern_type == AclPattern.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, "*")
