"""/delegation_token: delegation tokens without their secrets, and the notifications of their changes."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.host import Buffer
from barnabas.znodes import paths
from barnabas.znodes.jvm_order import immutable_order
from barnabas.znodes.znode_json import JsonObject, json_bytes, read_object, reordered, text_of

#: Version 3 added the requester of the token (KIP-373).
TOKEN_VERSION: Final = 3


class DelegationToken(NamedTuple):
    """The content of /delegation_token/tokens/ID. Principals are TYPE:NAME, times milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int


def encode_token(token: DelegationToken) -> bytes:
    content = {
        "version": TOKEN_VERSION,
        "owner": paths.sanitize(token.owner),
        "tokenRequester": paths.sanitize(token.requester),
        "renewers": [paths.sanitize(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issue_timestamp_ms,
        "maxTimestamp": token.max_timestamp_ms,
        "expiryTimestamp": token.expiry_timestamp_ms,
        "tokenId": token.token_id,
    }
    return json_bytes(reordered(content, immutable_order))


def decode_token(path: str, data: Buffer | None) -> DelegationToken:
    """Returns the token from versions 1 to 3; below 3 the owner requested it."""
    content = read_object(path, data)
    version = content.version(1, TOKEN_VERSION)
    owner = _principal(content, "owner", content.text("owner"))
    return DelegationToken(
        content.text("tokenId"),
        owner,
        _principal(content, "tokenRequester", content.text("tokenRequester")) if version >= 3 else owner,
        tuple(_principal(content, "renewers", text) for text in content.texts("renewers")),
        content.int64("issueTimestamp"),
        content.int64("maxTimestamp"),
        content.int64("expiryTimestamp"),
    )


def _principal(content: JsonObject, key: str, text: str) -> str:
    principal = paths.desanitize(text)
    if principal is None or ":" not in principal:
        raise content.wrong(key, f"holds {text!r}, which is not a principal")
    return principal


def encode_token_change(token_id: str) -> bytes:
    return token_id.encode()


def decode_token_change(path: str, data: Buffer | None) -> str:
    """Returns the id of the token that changed."""
    return text_of(path, data)
