"""Delegation tokens as users of SCRAM: their credentials, which are derived at first use and never stored.

A derivation takes 4,096 rounds of the hash (1 to 2 ms), so deriving those of all tokens when they are replayed, as
Kafka does, would hold up the loop. A credential depends only on the token's id and the secret key, so a cached one is
never outdated. Each log-in checks in the metadata that the token exists and is valid.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common.host import Clock
from barnabas.metadata.tokens import is_expired, owner_name, token_hmac
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord
from barnabas.protocol.sasl.imitated_users import TOKEN_SHAPE, imitation
from barnabas.protocol.sasl.scram_server import ITERATIONS_MIN, Credential, TokenUser, keys_of, salted_password

#: The number of credentials that are kept.
_KEPT_MAX: Final = 10_000

Tokens = Callable[[], Mapping[str, DelegationTokenRecord]]


class TokenUsers:
    """The tokens of the metadata as users (a `protocol.sasl.scram_server.TokenUsers`)."""

    def __init__(self, secret_key: bytes, cluster_id: str, tokens: Tokens, clock: Clock) -> None:
        self._secret_key = secret_key
        self._salts = hmac.digest(secret_key, cluster_id.encode(), "sha256")
        self._tokens = tokens
        self._clock = clock
        #: (hash, token id) -> credential.
        self._kept: dict[tuple[str, str], Credential] = {}

    def find(self, hash_name: str, token_id: str) -> TokenUser | None:
        """Returns a token that is valid now, as a user; None if tokens are off."""
        token = self._tokens().get(token_id) if self._secret_key else None
        if token is None or is_expired(token, self._clock.wall_ms()):
            return None
        credential = self._kept.get((hash_name, token_id))
        if credential is None:
            credential = self._derive(hash_name, token_id)
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[hash_name, token_id] = credential
        return TokenUser(credential, owner_name(token), token.expiration_timestamp)

    def imitate(self, hash_name: str, token_id: str) -> Credential:
        return imitation(hash_name, self._salts, token_id, {TOKEN_SHAPE: 1})

    def _derive(self, hash_name: str, token_id: str) -> Credential:
        # The salt is that of an imitation, so that the first message does not reveal whether the token exists.
        salt = self.imitate(hash_name, token_id).salt
        password = base64.b64encode(token_hmac(self._secret_key, token_id)).decode()
        salted = salted_password(hash_name, password, salt, ITERATIONS_MIN)
        return Credential(salt, *keys_of(hash_name, salted), ITERATIONS_MIN)
