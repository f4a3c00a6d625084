"""CreateAcls (30), versions 1-3: adds rules, decided by the controller, in ZooKeeper mode by any broker;
SECURITY_DISABLED without an authorizer.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.common.errors import NO_AUTHORIZER, ErrorCode
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

ERROR_ROWS: Final = (ErrorRows("results", "creations"),)


_Result = CreateAclsResponse.AclCreationResult


def handle(context: RequestContext, request: CreateAclsRequest, services: Services) -> CreateAclsResponse | None:
    if services.authorizer is None:
        refused = _Result(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    services.side.acls.create(request, context.reply, actor=context.principal)
    return None
