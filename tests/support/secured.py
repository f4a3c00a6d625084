"""A wired broker with an authorizer, and clients with principals."""

from __future__ import annotations

from tests.support.wired import WiredBroker, WiredClient

from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.simulation.host import MemoryHost

ADMIN = "User:admin"
ALICE = "User:alice"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecuredBroker(WiredBroker):
    """A broker whose only super user is `ADMIN`, as which its own requests are sent."""

    def __init__(self, host: MemoryHost | None = None, **properties: str) -> None:
        super().__init__(
            host, **{"authorizer_class_name": STANDARD, "super_users": f"{ADMIN};User:broker", **properties}
        )

    def connect(self) -> WiredClient:
        return self.connect_as(ADMIN)

    def connect_as(self, principal: str, host: str = "/10.0.0.1", listener: str = "PLAINTEXT") -> WiredClient:
        client = WiredClient(self)
        client.core = self.broker.dispatcher(listener).connect(client.link, host, listener)
        client.core.principal = principal
        return client

    def allow(self, operation: AclOperation, resource: AclResource, name: str, principal: str = ALICE) -> None:
        self.add_rule(operation, resource, name, principal)

    def add_rule(
        self,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        principal: str = ALICE,
        *,
        permission: AclPermission = AclPermission.ALLOW,
        pattern: AclPattern = AclPattern.LITERAL,
        host: str = "*",
    ) -> None:
        creation = CreateAclsRequest.AclCreation(
            resource_type=resource,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )
        response = self.connect().call(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse)
        assert [(row.error_code, row.error_message) for row in response.results] == [(0, "")]

    def remove_rules(self, principal: str | None = None) -> int:
        """Removes the rules of a principal, or all. Returns their number."""
        every = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=principal,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        response = self.connect().call(DeleteAclsRequest(filters=[every]), 3, DeleteAclsResponse)
        return len(response.filter_results[0].matching_acls)
