"""DescribeAcls (29), versions 1-3: SECURITY_DISABLED, like Apache Kafka without an authorizer."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(context: RequestContext, request: DescribeAclsRequest, services: Services) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
