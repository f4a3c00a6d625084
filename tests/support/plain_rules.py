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


def covers(rule: AclRule, name: str) -> bool:
    if rule.pattern_type == AclPattern.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, "*")
