"""Delegation tokens at the controller: each rule of Kafka's DelegationTokenControlManager, as a table."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from tests.support.controller_world import ControllerWorld
from tests.support.token_world import ALICE, SECRET, TokenWorld

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.portions import whole
from barnabas.common.token_settings import TokenSettings
from barnabas.controller.kraft import tokens
from barnabas.controller.kraft.token_control import TokenIndex
from barnabas.metadata.versions import V_3_6_IV1, V_3_6_IV2
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord

LAST_MS = (1 << 63) - 1
BOB, CAROL = "User:bob", "User:carol"
DISABLED, NOT_FOUND, MISMATCH, EXPIRED = (
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    ErrorCode.DELEGATION_TOKEN_EXPIRED,
)


@pytest.mark.parametrize(
    ("lifetime_ms", "max_lifetime_ms", "expiry_ms", "latest", "end"),
    [
        # requested, delegation.token.max.lifetime.ms, delegation.token.expiry.time.ms -> maximum, end; from now
        (-1, 1_000, 100, 1_000, 100),
        (0, 1_000, 100, 1_000, 100),
        (500, 1_000, 100, 500, 100),
        (5_000, 1_000, 100, 1_000, 100),
        (50, 1_000, 100, 50, 50),
        (-1, 100, 1_000, 100, 100),
        (1, 1_000, 100, 1, 1),
    ],
)
def test_the_times_of_a_new_token(
    lifetime_ms: int, max_lifetime_ms: int, expiry_ms: int, latest: int, end: int
) -> None:
    world = TokenWorld(max_lifetime_ms=max_lifetime_ms, expiry_ms=expiry_ms)
    answer = world.create_token(lifetime_ms=lifetime_ms)
    assert answer.error_code == 0
    assert answer.issue_timestamp_ms == 10_000
    assert (answer.max_timestamp_ms, answer.expiry_timestamp_ms) == (10_000 + latest, 10_000 + end)
    (token,) = world.image.security.tokens.values()
    assert (token.issue_timestamp, token.max_timestamp, token.expiration_timestamp) == (
        answer.issue_timestamp_ms,
        answer.max_timestamp_ms,
        answer.expiry_timestamp_ms,
    )


def test_times_end_with_the_last_one_that_there_is() -> None:
    world = TokenWorld(max_lifetime_ms=LAST_MS, expiry_ms=LAST_MS)
    answer = world.create_token()
    assert (answer.max_timestamp_ms, answer.expiry_timestamp_ms) == (LAST_MS, LAST_MS)
    assert world.renew(bytes(answer.hmac)) == (0, LAST_MS)
    assert world.expire(bytes(answer.hmac), period_ms=LAST_MS) == (0, LAST_MS)


def test_the_secret_of_a_token_is_the_hmac_of_its_id() -> None:
    world = TokenWorld()
    answer = world.create_token(renewers=[BOB, CAROL])
    assert len(base64.urlsafe_b64decode(answer.token_id + "==")) == 16
    assert bytes(answer.hmac) == hmac.new(SECRET, answer.token_id.encode(), hashlib.sha512).digest()
    token = world.found(bytes(answer.hmac))
    assert token is not None
    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, [BOB, CAROL])


def test_a_token_for_another_user() -> None:
    world = TokenWorld()
    answer = world.create_token(requester=ALICE, owner=BOB)
    assert (answer.principal_type, answer.principal_name) == ("User", "bob")
    assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ("User", "alice")
    hmac_ = bytes(answer.hmac)
    assert world.renew(hmac_, ALICE) == (MISMATCH, 0), "the requester is neither owner nor renewer"
    assert world.renew(hmac_, BOB) == (0, 10_100)


def test_renewers_are_users() -> None:
    world = TokenWorld()
    answer = world.create_token(renewers=[BOB, "Group:staff"])
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (answer.issue_timestamp_ms, answer.token_id, answer.hmac) == (0, "", b"")
    assert not world.image.security.tokens


def test_an_owner_has_a_type() -> None:
    world = TokenWorld()
    request = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name="bob")
    answer = world.apply(tokens.create(world.view(), request, world.question(ALICE)))
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not world.image.security.tokens


@pytest.mark.parametrize(
    ("after_ms", "period_ms", "expected"),
    [
        # after creation, requested period -> code, end; the token ends after 100 ms and at most after 1,000
        (0, -1, (0, 10_100)),
        (50, -1, (0, 10_150)),
        (50, 0, (0, 10_150)),
        (50, 30, (0, 10_080)),
        (50, 5_000, (0, 10_150)),
        (100, -1, (0, 10_200)),
        (101, -1, (EXPIRED, 0)),
    ],
)
def test_renewals(after_ms: int, period_ms: int, expected: tuple[int, int]) -> None:
    world = TokenWorld()
    secret = bytes(world.create_token().hmac)
    world.now_ms += after_ms
    assert world.renew(secret, period_ms=period_ms) == expected
    end = expected[1] if expected[0] == 0 else 10_100
    assert [token.expiration_timestamp for token in world.image.security.tokens.values()] == [end]


def test_a_renewal_does_not_pass_the_maximum() -> None:
    world = TokenWorld(max_lifetime_ms=150)
    secret = bytes(world.create_token().hmac)
    world.now_ms += 90
    assert world.renew(secret) == (0, 10_150)
    world.now_ms += 60
    assert world.renew(secret) == (0, 10_150)
    world.now_ms += 1
    assert world.renew(secret) == (EXPIRED, 0)


@pytest.mark.parametrize(
    ("after_ms", "period_ms", "expected", "is_left"),
    [
        (0, -1, (0, 10_000), False),
        (50, -1, (0, 10_050), False),
        (50, 0, (0, 10_050), True),
        (50, 20, (0, 10_070), True),
        (50, 5_000, (0, 11_000), True),
        (101, 20, (EXPIRED, 0), True),
        # A negative period also removes a token that has expired.
        (101, -1, (0, 10_101), False),
    ],
)
def test_ends_that_are_set(after_ms: int, period_ms: int, expected: tuple[int, int], is_left: bool) -> None:
    world = TokenWorld()
    secret = bytes(world.create_token().hmac)
    world.now_ms += after_ms
    assert world.expire(secret, period_ms=period_ms) == expected
    assert bool(world.image.security.tokens) == is_left
    if not is_left:
        assert world.expire(secret) == (NOT_FOUND, 0)
        assert world.renew(secret) == (NOT_FOUND, 0)


@pytest.mark.parametrize(
    ("who", "code"), [(ALICE, 0), (BOB, 0), (CAROL, MISMATCH), ("User:ANONYMOUS", MISMATCH), ("Group:bob", MISMATCH)]
)
def test_the_owner_and_the_renewers_change_a_token(who: str, code: int) -> None:
    world = TokenWorld()
    secret = bytes(world.create_token(renewers=[BOB]).hmac)
    assert world.renew(secret, who)[0] == code
    assert world.expire(secret, who, 10)[0] == code
    assert world.expire(secret, who)[0] == code


def test_a_renewal_checks_the_expiry_first_and_an_expiry_the_owner() -> None:
    """Kafka checks in this order: a stranger learns from a renewal that the token has expired."""
    world = TokenWorld()
    secret = bytes(world.create_token().hmac)
    world.now_ms += 500
    assert world.renew(secret, CAROL) == (EXPIRED, 0)
    assert world.expire(secret, CAROL, 10) == (MISMATCH, 0)


@pytest.mark.parametrize(
    ("secret", "level", "code"),
    [
        (b"", V_3_6_IV2, DISABLED),
        (b"", V_3_6_IV1, DISABLED),
        (SECRET, V_3_6_IV1, ErrorCode.UNSUPPORTED_VERSION),
        (SECRET, V_3_6_IV2, ErrorCode.NONE),
    ],
)
def test_tokens_need_a_secret_key_and_a_metadata_version(secret: bytes, level: int, code: ErrorCode) -> None:
    world = TokenWorld(secret=secret, level=level)
    answer = world.create_token(renewers=["Group:staff"] if code else [])
    assert answer.error_code == code
    assert (answer.principal_name, answer.token_requester_principal_name) == ("alice", "alice")
    assert (answer.issue_timestamp_ms == 0) == bool(code)
    assert world.renew(b"x")[0] == (code or NOT_FOUND)
    assert world.expire(b"x")[0] == (code or NOT_FOUND)


def test_a_sweep_removes_what_has_expired() -> None:
    world = TokenWorld()
    early, late = world.create_token(lifetime_ms=50), world.create_token()
    world.now_ms += 50
    world.sweep()
    assert len(world.image.security.tokens) == 2, "a token is valid in its last millisecond"
    world.now_ms += 1
    world.sweep()
    assert list(world.image.security.tokens) == [late.token_id]
    assert world.found(bytes(early.hmac)) is None
    world.now_ms += 1_000
    world.sweep()
    assert not world.image.security.tokens


def test_thousands_of_expired_tokens_are_removed_in_portions() -> None:
    world = ControllerWorld()
    ids = [f"token-{number:05}" for number in range(2_500)]
    world.replay([(DelegationTokenRecord(token_id=token_id), 0) for token_id in ids])
    result = tokens.removals(ids, "controller")
    sizes = [len(result.records)]
    world.replay(result.records)
    # One of the others is removed by its owner meanwhile.
    world.replay(tokens.removals(["token-02000"], "controller").records)
    while result.rest is not None:
        result = result.rest(world.view())
        sizes.append(len(result.records))
        world.replay(result.records)
    assert sizes == [1_000, 1_000, 499]
    assert not world.image.security.tokens


def test_the_index_computes_each_hmac_once_and_forgets_removed_tokens() -> None:
    world = TokenWorld()
    records = [DelegationTokenRecord(token_id=f"token-{number:05}") for number in range(5_000)]
    world.replay([(record, 0) for record in records])
    index = TokenIndex(SECRET)
    assert index.missing(world.image) == 5_000
    wanted = world.hmac_of("token-04999")
    assert sum(1 for _ in index.find(world.image, wanted)) == 5, "the work is divided"
    assert index.missing(world.image) == 0
    found = whole(index.find(world.image, wanted))
    assert found is not None
    assert found.token_id == "token-04999"
    world.replay(tokens.removals([record.token_id for record in records[:1_000]], "controller").records)
    assert whole(index.find(world.image, world.hmac_of("token-00000"))) is None
    for start in range(1_000, 5_000, 1_000):
        world.replay(
            tokens.removals([record.token_id for record in records[start : start + 1_000]], "controller").records
        )
    assert whole(index.find(world.image, b"unknown")) is None
    assert len(index._ids) == 0


def test_the_settings_and_their_representation() -> None:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/data",
    }
    off = TokenSettings.of(BrokerConfig.from_properties(properties))
    assert off == (b"", 604_800_000, 86_400_000, 3_600_000)
    on = TokenSettings.of(BrokerConfig.from_properties({**properties, "delegation.token.secret.key": "sécret-marker"}))
    assert on.secret_key == "sécret-marker".encode()
    assert "marker" not in repr(on)
