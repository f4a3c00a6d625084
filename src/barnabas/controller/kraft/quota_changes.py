"""The active controller's changes of quotas."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft.proposals import Proposals, Reply
from barnabas.controller.requests.client_quotas import alter_client_quotas, refused
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

_Request = AlterClientQuotasRequest
_Response = AlterClientQuotasResponse


class QuotaControl:
    """The active controller's changes of quotas."""

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals

    def alter(self, request: _Request, reply: Reply[_Response], *, actor: str) -> None:
        proposals = self._proposals
        if not proposals.is_active:
            reply(refused(request, ErrorCode.NOT_CONTROLLER))
            return
        result = alter_client_quotas(proposals.view(), request, actor)
        if request.validate_only:
            reply(result.response)
        else:
            proposals.propose(result, reply, lambda code: reply(refused(request, code)))
