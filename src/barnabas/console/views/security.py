"""The ACLs, the SCRAM users and the quotas of a cluster, as far as the cluster has them and lets this client see them.

If the cluster refuses a request, the answer contains its error; if its ApiVersions do not offer the API, the answer
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from barnabas.console.actions.outcome import reason
from barnabas.console.cluster_view import ClusterView
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.sasl.mechanism import SCRAM

M = TypeVar("M", bound=Message)

#: Kafka's codes, by the names that the page shows and sends.
RESOURCES: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7}
OPERATIONS: Final = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "create-tokens": 13,
    "describe-tokens": 14,
    "two-phase-commit": 15,
}
PATTERNS: Final = {"literal": 3, "prefixed": 4}
PERMISSIONS: Final = {"deny": 2, "allow": 3}
MECHANISMS: Final = {name: number for name, (number, _) in SCRAM.items()}
QUOTA_KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
ENTITIES: Final = ("user", "client-id", "ip")


class _Any(IntEnum):
    """The value of a filter field that matches every ACL."""

    EVERYTHING = 1


_RESOURCE_NOT_FOUND: Final = 91


async def acls_view(cluster: ClusterView) -> dict[str, Any]:
    request = DescribeAclsRequest(
        resource_type_filter=_Any.EVERYTHING,
        resource_name_filter=None,
        pattern_type_filter=_Any.EVERYTHING,
        principal_filter=None,
        host_filter=None,
        operation=_Any.EVERYTHING,
        permission_type=_Any.EVERYTHING,
    )
    return await _listed(cluster, request, DescribeAclsResponse, _acls)


async def scram_users_view(cluster: ClusterView) -> dict[str, Any]:
    request = DescribeUserScramCredentialsRequest(users=None)
    return await _listed(cluster, request, DescribeUserScramCredentialsResponse, _scram_users)


async def quotas_view(cluster: ClusterView) -> dict[str, Any]:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    return await _listed(cluster, request, DescribeClientQuotasResponse, _quotas)


async def _listed(
    cluster: ClusterView, request: Message, response: type[M], rows_of: Callable[[M], Iterable[dict[str, Any]]]
) -> dict[str, Any]:
    """Returns the rows of an answer, or why there are none."""
    try:
        answer = await cluster.questions.of_any(request, response)
    except NoAnswer as error:
        return {"rows": None, "problem": str(error)}
    code, message = getattr(answer, "error_code", 0), getattr(answer, "error_message", None)
    if code:
        return {"rows": None, "problem": reason(code, message)}
    return {"rows": list(rows_of(answer)), "problem": None}


def _acls(answer: DescribeAclsResponse) -> list[dict[str, Any]]:
    found = [
        {
            "resource": name_of(RESOURCES, resource.resource_type),
            "name": resource.resource_name,
            "pattern": name_of(PATTERNS, resource.pattern_type),
            "principal": acl.principal,
            "host": acl.host,
            "operation": name_of(OPERATIONS, acl.operation),
            "permission": name_of(PERMISSIONS, acl.permission_type),
        }
        for resource in answer.resources
        for acl in resource.acls
    ]
    return sorted(found, key=lambda row: tuple(row.values()))


def _scram_users(answer: DescribeUserScramCredentialsResponse) -> list[dict[str, Any]]:
    found = [
        {"user": user.user, "mechanism": name_of(MECHANISMS, each.mechanism), "iterations": each.iterations}
        for user in answer.results
        if user.error_code != _RESOURCE_NOT_FOUND
        for each in user.credential_infos
    ]
    return sorted(found, key=lambda row: (row["user"], row["mechanism"]))


def _quotas(answer: DescribeClientQuotasResponse) -> list[dict[str, Any]]:
    found = [
        {
            "entity": {part.entity_type: part.entity_name for part in entry.entity},
            "quotas": {each.key: each.value for each in entry.values},
        }
        for entry in answer.entries or ()
    ]
    return sorted(found, key=lambda row: sorted((kind, name or "") for kind, name in row["entity"].items()))


def name_of(codes: Mapping[str, int], code: int) -> str:
    return next((name for name, each in codes.items() if each == code), str(code))
