"""DeleteAcls (31), versions 1-3: removes the rules that filters match, decided by the controller, in ZooKeeper mode by
any broker; SECURITY_DISABLED without an authorizer.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.common.errors import NO_AUTHORIZER, ErrorCode
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

ERROR_ROWS: Final = (ErrorRows("filter_results", "filters"),)


_Result = DeleteAclsResponse.DeleteAclsFilterResult


def handle(context: RequestContext, request: DeleteAclsRequest, services: Services) -> DeleteAclsResponse | None:
    if services.authorizer is None:
        refused = _Result(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    services.side.acls.delete(request, context.reply, actor=context.principal)
    return None
