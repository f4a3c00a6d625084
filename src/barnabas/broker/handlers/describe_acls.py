"""DescribeAcls (29), versions 1-3: the rules that a filter matches, by resource; SECURITY_DISABLED without an
authorizer.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acl_filters import AclFilter
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_Resource = DescribeAclsResponse.DescribeAclsResource
_Acl = DescribeAclsResponse.AclDescription
#: The number of rules read per step.
_RULES_PER_STEP = 500


def handle(context: RequestContext, request: DescribeAclsRequest, services: Services) -> Work:
    if services.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    wanted = AclFilter.of(request)
    resources: dict[tuple[int, str, int], _Resource] = {}
    for place, rule in enumerate(services.metadata.image.security.acl_ids):
        if place % _RULES_PER_STEP == _RULES_PER_STEP - 1:
            yield 1
        if not wanted.matches(rule):
            continue
        pattern = (rule.resource_type, rule.resource_name, rule.pattern_type)
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = _Resource(
                resource_type=rule.resource_type, resource_name=rule.resource_name, pattern_type=rule.pattern_type
            )
        resource.acls.append(
            _Acl(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))
