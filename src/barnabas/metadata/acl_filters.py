"""Filters of ACLs, as DescribeAcls and DeleteAcls use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from barnabas.metadata.acls import WILDCARD, AclOperation, AclPattern, AclPermission, AclResource, AclRule

_CONCRETE_PATTERNS = (AclPattern.LITERAL, AclPattern.PREFIXED)


class RequestedFilter(Protocol):
    """The fields that DescribeAclsRequest and DeleteAclsRequest.DeleteAclsFilter have in common."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """A filter; None, and the code ANY, match everything."""

    resource_type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @classmethod
    def of(cls, requested: RequestedFilter) -> AclFilter:
        return cls(
            requested.resource_type_filter,
            requested.resource_name_filter,
            requested.pattern_type_filter,
            requested.principal_filter,
            requested.host_filter,
            requested.operation,
            requested.permission_type,
        )

    @property
    def has_unknown_pattern(self) -> bool:
        return not _is_known(AclResource, self.resource_type) or not _is_known(AclPattern, self.pattern)

    @property
    def has_unknown_entry(self) -> bool:
        return not _is_known(AclOperation, self.operation) or not _is_known(AclPermission, self.permission)

    @property
    def only_rule(self) -> AclRule | None:
        """Returns the one rule that the filter matches, if it names all its fields."""
        if (
            self.name is None
            or self.principal is None
            or self.host is None
            or self.pattern not in _CONCRETE_PATTERNS
            or 1 in (self.resource_type, self.operation, self.permission)
        ):
            return None
        return AclRule(
            self.resource_type, self.name, self.pattern, self.operation, self.principal, self.host, self.permission
        )

    def matches(self, rule: AclRule) -> bool:
        return (
            self.resource_type in (AclResource.ANY, rule.resource_type)
            and self.operation in (AclOperation.ANY, rule.operation)
            and self.permission in (AclPermission.ANY, rule.permission)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self._matches_name(rule)
        )

    def _matches_name(self, rule: AclRule) -> bool:
        if self.pattern in _CONCRETE_PATTERNS and self.pattern != rule.pattern_type:
            return False
        if self.name is None or self.name == rule.resource_name:
            return True
        if self.pattern != AclPattern.MATCH:
            return False
        if rule.pattern_type == AclPattern.PREFIXED:
            return self.name.startswith(rule.resource_name)
        return rule.resource_name == WILDCARD


def _is_known(kind: Callable[[int], object], code: int) -> bool:
    try:
        return bool(kind(code))  # UNKNOWN is 0
    except ValueError:
        return False
