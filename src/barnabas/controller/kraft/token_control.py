"""Requests about delegation tokens at the active controller: proposes the decisions of `tokens`, and responds after
their commit. Expired tokens are removed every `delegation.token.expiry.check.interval.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.common.portions import Portions
from barnabas.common.token_settings import TokenSettings
from barnabas.controller.kraft import tokens
from barnabas.controller.kraft.large_decisions import propose_partitions
from barnabas.controller.kraft.proposals import Proposals, Reply
from barnabas.controller.kraft.tokens import TokenQuestion
from barnabas.controller.periodic import Periodic
from barnabas.controller.replication_requests import decide
from barnabas.controller.requests.result import Result
from barnabas.controller.requests.standing import token_decision_stands
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.tokens import is_expired, token_hmac
from barnabas.metadata.versions import V_3_6_IV2
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

R = TypeVar("R")
_Decision = Callable[[ControllerView, TokenQuestion, DelegationTokenRecord | None], Result[R]]

#: The actor of the removal of expired tokens.
_SELF: Final = "controller"
#: The number of tokens whose HMACs are computed in one portion.
_PORTION: Final = 1_000
#: The number of tokens of which the expired ones are looked for in one turn of the loop.
_SWEPT_AT_ONCE: Final = 5_000


class TokenControl:
    """The changes of delegation tokens. A controller that is not active replies NOT_CONTROLLER."""

    def __init__(self, host: Host, config: BrokerConfig, proposals: Proposals) -> None:
        self._host = host
        self._settings = TokenSettings.of(config)
        self._proposals = proposals
        self._index = TokenIndex(self._settings.secret_key)
        self._sweep = Periodic(host.timers, self._settings.check_ms, self._remove_expired)

    def start(self) -> None:
        """Starts the removal of expired tokens, if tokens are on."""
        if self._settings.secret_key:
            self._sweep.start()

    def stop(self) -> None:
        self._sweep.stop()

    def create(
        self, request: CreateDelegationTokenRequest, reply: Reply[CreateDelegationTokenResponse], *, requester: str
    ) -> None:
        owner = tokens.owner_of(request, requester)
        decide(
            self._proposals,
            lambda view: tokens.create(view, request, self._question(requester)),
            reply,
            lambda code: tokens.creation_response(code, owner, requester),
        )

    def renew(
        self, request: RenewDelegationTokenRequest, reply: Reply[RenewDelegationTokenResponse], *, requester: str
    ) -> None:
        self._decide_on(
            request.hmac,
            requester,
            lambda view, question, token: tokens.renew(view, request, question, token),
            reply,
            lambda code: RenewDelegationTokenResponse(error_code=code),
        )

    def expire(
        self, request: ExpireDelegationTokenRequest, reply: Reply[ExpireDelegationTokenResponse], *, requester: str
    ) -> None:
        self._decide_on(
            request.hmac,
            requester,
            lambda view, question, token: tokens.expire(view, request, question, token),
            reply,
            lambda code: ExpireDelegationTokenResponse(error_code=code),
        )

    def _decide_on(
        self,
        hmac: bytes,
        requester: str,
        decision: _Decision[R],
        reply: Reply[R],
        refused: Callable[[ErrorCode], R],
    ) -> None:
        """Decides about the token with this HMAC."""
        if not self._proposals.is_active:
            reply(refused(ErrorCode.NOT_CONTROLLER))
            return

        def make(view: ControllerView) -> Portions[Result[R]]:
            token = (yield from self._index.find(view.image, hmac)) if self._settings.secret_key else None
            return decision(view, self._question(requester), token)

        missing = self._index.missing(self._proposals.image)
        propose_partitions(
            self._proposals, missing, make, token_decision_stands, reply, lambda code: reply(refused(code))
        )

    def _question(self, requester: str) -> TokenQuestion:
        return TokenQuestion(self._settings, requester, self._host.clock.wall_ms())

    def _remove_expired(self) -> None:
        if not self._proposals.is_active or self._proposals.image.metadata_version < V_3_6_IV2:
            return
        self._remove_expired_of(iter(self._proposals.image.security.tokens))

    def _remove_expired_of(self, token_ids: Iterator[str]) -> None:
        """Removes the expired ones of some of these tokens, and continues in the next turn of the loop."""
        if not self._proposals.is_active:
            return
        now_ms, known = self._host.clock.wall_ms(), self._proposals.image.security.tokens
        some = tuple(islice(token_ids, _SWEPT_AT_ONCE))
        # A token can have been removed since the sweep began.
        expired = sorted(each for each in some if each in known and is_expired(known[each], now_ms))
        if expired and not self._proposals.propose(tokens.removals(expired, _SELF)):
            return
        if some:
            self._host.timers.call_soon(lambda: self._remove_expired_of(token_ids))


class TokenIndex:
    """HMAC -> token, computed when a token is first looked up."""

    def __init__(self, secret_key: bytes) -> None:
        self._secret_key = secret_key
        self._ids: dict[bytes, str] = {}
        self._indexed: set[str] = set()

    def missing(self, image: MetadataImage) -> int:
        """Returns a lower bound of the number of tokens that are not indexed yet."""
        return max(len(image.security.tokens) - len(self._indexed), 0)

    def find(self, image: MetadataImage, hmac: bytes) -> Portions[DelegationTokenRecord | None]:
        """Returns the token with this HMAC; None if there is none."""
        known = image.security.tokens
        token_id = self._ids.get(bytes(hmac))
        if token_id is None:
            yield from self._update(image)
            token_id = self._ids.get(bytes(hmac))
        return None if token_id is None else known.get(token_id)

    def _update(self, image: MetadataImage) -> Portions[None]:
        known = image.security.tokens
        if len(self._indexed) > 2 * len(known) + _PORTION:
            # Most of the indexed tokens no longer exist.
            self._ids.clear()
            self._indexed.clear()
        computed = 0
        for token_id in known:
            if token_id in self._indexed:
                continue
            self._ids[token_hmac(self._secret_key, token_id)] = token_id
            self._indexed.add(token_id)
            computed += 1
            if not computed % _PORTION:
                yield
