"""Rules of the authorizer as parts of requests."""

from __future__ import annotations

from barnabas.metadata.acls import AclRule
from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest


def creation_of(rule: AclRule) -> CreateAclsRequest.AclCreation:
    """Returns the part of CreateAcls that adds the rule."""
    return CreateAclsRequest.AclCreation(
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        resource_pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def filter_of(rule: AclRule) -> DeleteAclsRequest.DeleteAclsFilter:
    """Returns the part of DeleteAcls that removes this rule and no other."""
    return DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=rule.resource_type,
        resource_name_filter=rule.resource_name,
        pattern_type_filter=rule.pattern_type,
        principal_filter=rule.principal,
        host_filter=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
