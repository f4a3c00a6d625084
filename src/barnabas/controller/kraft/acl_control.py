"""The active controller's part for ACLs: requests in, decisions of `acls` out, responses once they are committed."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft import acls
from barnabas.controller.kraft.proposals import Proposals, Reply
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse


class AclControl:
    """The changes of ACLs. A controller that is not active replies NOT_CONTROLLER."""

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals

    def create(self, request: CreateAclsRequest, reply: Reply[CreateAclsResponse], *, actor: str) -> None:
        if not self._proposals.is_active:
            reply(acls.create_refused(request, ErrorCode.NOT_CONTROLLER))
            return
        self._proposals.propose(
            acls.create_acls(self._proposals.view(), request, actor),
            reply,
            lambda code: reply(acls.create_refused(request, code)),
        )

    def delete(self, request: DeleteAclsRequest, reply: Reply[DeleteAclsResponse], *, actor: str) -> None:
        if not self._proposals.is_active:
            reply(acls.delete_refused(request, ErrorCode.NOT_CONTROLLER))
            return
        self._proposals.propose(
            acls.delete_acls(self._proposals.view(), request, actor),
            reply,
            lambda code: reply(acls.delete_refused(request, code)),
        )
