"""The settings of delegation tokens (KIP-48), which are off without a secret key."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class _Settings(Protocol):
    """The part of a node's configuration that tokens use (`common.config.BrokerConfig`)."""

    def text_or_none(self, key: str) -> str | None: ...
    def int_of(self, key: str) -> int: ...


class TokenSettings(NamedTuple):
    """The settings of one node; all nodes must have the same. `secret_key` is empty if tokens are off."""

    secret_key: bytes
    max_lifetime_ms: int
    #: The time for which a token is valid after it was created or renewed.
    expiry_ms: int
    #: The time between two removals of expired tokens.
    check_ms: int

    @classmethod
    def of(cls, config: _Settings) -> TokenSettings:
        return cls(
            (config.text_or_none("delegation.token.secret.key") or "").encode(),
            config.int_of("delegation.token.max.lifetime.ms"),
            config.int_of("delegation.token.expiry.time.ms"),
            config.int_of("delegation.token.expiry.check.interval.ms"),
        )

    def __repr__(self) -> str:
        return "TokenSettings([hidden])"
