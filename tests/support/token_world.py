"""The controller's decisions about delegation tokens on an image, without quorum or clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.support.controller_world import ControllerWorld

from barnabas.common.portions import whole
from barnabas.common.token_settings import TokenSettings
from barnabas.controller.kraft import tokens
from barnabas.controller.kraft.token_control import TokenIndex
from barnabas.controller.kraft.tokens import TokenQuestion
from barnabas.metadata.tokens import is_expired, token_hmac
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

SECRET: Final = b"secret-marker"
ALICE: Final = "User:alice"


class TokenWorld(ControllerWorld):
    """A controller with delegation tokens. `now_ms`: the time of the next request."""

    def __init__(
        self, *, max_lifetime_ms: int = 1_000, expiry_ms: int = 100, secret: bytes = SECRET, level: int | None = None
    ) -> None:
        super().__init__(features=None if level is None else {"metadata.version": level})
        self.settings = TokenSettings(secret, max_lifetime_ms, expiry_ms, 1_000)
        self.index = TokenIndex(secret)
        self.now_ms = 10_000

    def question(self, requester: str) -> TokenQuestion:
        return TokenQuestion(self.settings, requester, self.now_ms)

    def create_token(
        self,
        requester: str = ALICE,
        *,
        lifetime_ms: int = -1,
        owner: str | None = None,
        renewers: Sequence[str] = (),
    ) -> CreateDelegationTokenResponse:
        owner_type, _, owner_name = (owner or ":").partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner_type or None,
            owner_principal_name=owner_name or None,
            max_lifetime_ms=lifetime_ms,
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, _, name in (renewer.partition(":") for renewer in renewers)
            ],
        )
        return self.apply(tokens.create(self.view(), request, self.question(requester)))

    def renew(self, hmac: bytes, requester: str = ALICE, period_ms: int = -1) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = self.apply(tokens.renew(self.view(), request, self.question(requester), self.found(hmac)))
        return answer.error_code, answer.expiry_timestamp_ms

    def expire(self, hmac: bytes, requester: str = ALICE, period_ms: int = -1) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = self.apply(tokens.expire(self.view(), request, self.question(requester), self.found(hmac)))
        return answer.error_code, answer.expiry_timestamp_ms

    def sweep(self) -> None:
        known = self.image.security.tokens
        expired = sorted(token_id for token_id, token in known.items() if is_expired(token, self.now_ms))
        self.apply(tokens.removals(expired, "controller"))

    def found(self, hmac: bytes) -> DelegationTokenRecord | None:
        return whole(self.index.find(self.image, hmac))

    def hmac_of(self, token_id: str) -> bytes:
        return token_hmac(self.settings.secret_key, token_id)
