"""Delegation tokens: what follows from a token in the metadata.

The metadata has the id of a token, not its HMAC, which is the password for a log-in by the token: all nodes compute it
from the id with `delegation.token.secret.key`.
"""

from __future__ import annotations

import hmac

from barnabas.protocol.messages.records_metadata import DelegationTokenRecord


def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    """Returns the HMAC of a token. In base64 it is the password of a log-in by the token."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def may_renew(token: DelegationTokenRecord, principal: str) -> bool:
    """Returns whether this principal can renew and expire the token: its owner or a renewer."""
    return principal == token.owner or principal in token.renewers


def has_part_in(token: DelegationTokenRecord, principal: str) -> bool:
    """Returns whether this principal is the owner, the requester or a renewer of the token."""
    return principal in (token.owner, token.requester) or principal in token.renewers


def owner_name(token: DelegationTokenRecord) -> str:
    """Returns the user name of a client that logs in with the token."""
    return token.owner.partition(":")[2]
