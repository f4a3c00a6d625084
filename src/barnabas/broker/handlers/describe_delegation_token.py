"""DescribeDelegationToken (41), versions 1-3: the tokens that the client may see, with their HMACs (KIP-48).

A client sees the tokens of which it is the owner, the requester or a renewer. With an authorizer it sees other tokens
if it has DESCRIBE on the token, or DESCRIBE_TOKENS on its owner (KIP-373); without one it sees all. The answer is from
this broker's metadata. A request without a list of owners asks for all tokens; an empty list asks for none.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests import token_requests
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode
from barnabas.common.token_settings import TokenSettings
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.metadata.tokens import has_part_in, token_hmac
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord

_Token = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
#: The number of tokens that count as one unit of work.
_TOKENS_PER_UNIT: Final = 50


def handle(context: RequestContext, request: DescribeDelegationTokenRequest, services: Services) -> Work:
    secret_key = TokenSettings.of(services.config).secret_key
    if not token_requests.may_ask(context, services.config):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not secret_key:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    found: list[_Token] = []
    if owners is None or owners:
        for place, token in enumerate(services.metadata.image.security.tokens.values(), 1):
            if _is_wanted(token, owners) and _may_see(context, services, token):
                found.append(_described(token, secret_key, context.api_version))
            if not place % _TOKENS_PER_UNIT:
                yield 1
    return DescribeDelegationTokenResponse(tokens=found)


def _is_wanted(token: DelegationTokenRecord, owners: set[str] | None) -> bool:
    return owners is None or any(has_part_in(token, owner) for owner in owners)


def _may_see(context: RequestContext, services: Services, token: DelegationTokenRecord) -> bool:
    authorizer = services.authorizer
    if authorizer is None or has_part_in(token, context.principal):
        return True
    return authorizer.allows(
        context, AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.token_id
    ) or authorizer.allows(context, AclOperation.DESCRIBE_TOKENS, AclResource.USER, token.owner)


def _described(token: DelegationTokenRecord, secret_key: bytes, version: int) -> _Token:
    owner_type, _, owner_name = token.owner.partition(":")
    requester = token.requester if version >= token_requests.REQUESTER_VERSION else ""
    requester_type, _, requester_name = requester.partition(":")
    renewers = [renewer.partition(":") for renewer in token.renewers]
    return _Token(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
        renewers=[_Renewer(principal_type=kind, principal_name=name) for kind, _, name in renewers],
    )
