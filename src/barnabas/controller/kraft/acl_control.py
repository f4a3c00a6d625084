"""CreateAcls and DeleteAcls at the active controller: proposes the decisions of `acls`, and responds after their
commit.
"""

from __future__ import annotations

from barnabas.controller.kraft.proposals import Proposals, Reply
from barnabas.controller.replication_requests import decide
from barnabas.controller.requests import acls
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse


class AclControl:
    """The changes of ACLs. A controller that is not active replies NOT_CONTROLLER."""

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals

    def create(self, request: CreateAclsRequest, reply: Reply[CreateAclsResponse], *, actor: str) -> None:
        decide(
            self._proposals,
            lambda view: acls.create_acls(view, request, actor),
            reply,
            lambda code: acls.create_refused(request, code),
        )

    def delete(self, request: DeleteAclsRequest, reply: Reply[DeleteAclsResponse], *, actor: str) -> None:
        decide(
            self._proposals,
            lambda view: acls.delete_acls(view, request, actor),
            reply,
            lambda code: acls.delete_refused(request, code),
        )
