"""Delegation tokens against a second, simpler model, in random orders of requests and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.token_world import TokenWorld

USERS: Final = ("User:a", "User:b", "User:c")
NOT_FOUND, MISMATCH, EXPIRED = 62, 63, 66
MAX_LIFETIME_MS, EXPIRY_MS = 100, 30


@dataclass
class Token:
    owner: str
    renewers: tuple[str, ...]
    latest: int
    end: int

    def is_over(self, now: int) -> bool:
        return now > self.end or now > self.latest


class Model:
    """The rules as sentences: a list of tokens, searched each time."""

    def __init__(self, now: int) -> None:
        self.tokens: dict[bytes, Token] = {}
        self.now = now

    def create(self, owner: str, renewers: tuple[str, ...], lifetime: int, secret: bytes) -> Token:
        lasts = MAX_LIFETIME_MS if lifetime <= 0 or lifetime > MAX_LIFETIME_MS else lifetime
        first = EXPIRY_MS if lasts > EXPIRY_MS else lasts
        self.tokens[secret] = Token(owner, renewers, self.now + lasts, self.now + first)
        return self.tokens[secret]

    def renew(self, who: str, secret: bytes, period: int) -> tuple[int, int]:
        token = self.tokens.get(secret)
        if token is None:
            return NOT_FOUND, 0
        if token.is_over(self.now):
            return EXPIRED, 0
        if who != token.owner and who not in token.renewers:
            return MISMATCH, 0
        longer = EXPIRY_MS if period <= 0 or period > EXPIRY_MS else period
        token.end = self.now + longer if self.now + longer < token.latest else token.latest
        return 0, token.end

    def expire(self, who: str, secret: bytes, period: int) -> tuple[int, int]:
        token = self.tokens.get(secret)
        if token is None:
            return NOT_FOUND, 0
        if who != token.owner and who not in token.renewers:
            return MISMATCH, 0
        if period < 0:
            del self.tokens[secret]
            return 0, self.now
        if token.is_over(self.now):
            return EXPIRED, 0
        token.end = self.now + period if self.now + period < token.latest else token.latest
        return 0, token.end

    def sweep(self) -> None:
        self.tokens = {secret: token for secret, token in self.tokens.items() if not token.is_over(self.now)}


_PERIODS = st.integers(-1, 130)
_STEPS = st.one_of(
    st.tuples(
        st.just("create"), st.sampled_from(USERS), st.lists(st.sampled_from(USERS), max_size=2).map(tuple), _PERIODS
    ),
    st.tuples(st.sampled_from(["renew", "expire"]), st.sampled_from(USERS), st.integers(0, 5), _PERIODS),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("wait"), st.integers(1, 40)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_STEPS, max_size=30))
def test_requests_in_any_order_have_the_answers_of_the_model(steps: list[tuple[object, ...]]) -> None:
    world = TokenWorld(max_lifetime_ms=MAX_LIFETIME_MS, expiry_ms=EXPIRY_MS)
    model = Model(world.now_ms)
    secrets: list[bytes] = [b"unknown"]
    for step in steps:
        match step:
            case ("create", str(who), tuple(renewers), int(lifetime)):
                answer = world.create_token(who, renewers=renewers, lifetime_ms=lifetime)
                secrets.append(bytes(answer.hmac))
                token = model.create(who, renewers, lifetime, secrets[-1])
                assert (answer.error_code, answer.max_timestamp_ms, answer.expiry_timestamp_ms) == (
                    0,
                    token.latest,
                    token.end,
                )
            case ("renew", str(who), int(place), int(period)):
                secret = secrets[place % len(secrets)]
                assert world.renew(secret, who, period) == model.renew(who, secret, period)
            case ("expire", str(who), int(place), int(period)):
                secret = secrets[place % len(secrets)]
                assert world.expire(secret, who, period) == model.expire(who, secret, period)
            case ("sweep",):
                world.sweep()
                model.sweep()
            case ("wait", int(pause)):
                world.now_ms += pause
                model.now = world.now_ms
        kept = {
            world.hmac_of(token.token_id): Token(
                token.owner, tuple(token.renewers), token.max_timestamp, token.expiration_timestamp
            )
            for token in world.image.security.tokens.values()
        }
        assert kept == model.tokens
