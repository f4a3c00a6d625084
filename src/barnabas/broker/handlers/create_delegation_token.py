"""CreateDelegationToken (38), versions 1-3: a token for the client or, from version 3, for another user (KIP-373 (3)).

The broker refuses what it can; the controller decides, and the response is sent when the token is committed (KIP-48).
"""

from __future__ import annotations

from barnabas.broker.requests import token_requests
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft.tokens import USER_TYPE, creation_response, owner_of
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


def handle(
    context: RequestContext, request: CreateDelegationTokenRequest, services: Services
) -> CreateDelegationTokenResponse | None:
    owner = owner_of(request, context.principal)
    is_decided_here = token_requests.is_decided_here(context, services)
    code = _refusal(context, request, services, owner)
    if code is ErrorCode.INVALID_PRINCIPAL_TYPE and is_decided_here:
        # The controller checks the renewers later, after it has checked that tokens are enabled.
        code = None
    if code is not None:
        return _as_of(context, creation_response(code, owner, context.principal, token_requests.NO_TIME))
    if is_decided_here:
        services.quorum.controller.tokens.create(
            request, lambda response: context.reply(_as_of(context, response)), requester=context.principal
        )
    else:
        token_requests.forward(context, request, services)
    return None


def _refusal(
    context: RequestContext, request: CreateDelegationTokenRequest, services: Services, owner: str
) -> ErrorCode | None:
    if not token_requests.may_ask(context, services.config):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    authorizer = services.authorizer if owner != context.principal else None
    if authorizer is not None and not authorizer.allows(context, AclOperation.CREATE_TOKENS, AclResource.USER, owner):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return None


def _as_of(context: RequestContext, response: CreateDelegationTokenResponse) -> CreateDelegationTokenResponse:
    """Returns the response without the values that its version has no field for."""
    if context.api_version < token_requests.REQUESTER_VERSION:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response
