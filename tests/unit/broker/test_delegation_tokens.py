"""Delegation tokens through a whole broker: requests over authenticated channels, rights, and log-ins by token."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pytest
from tests.support.log_in import PASSWORD, call_authenticate, call_handshake, log_in, secured_broker
from tests.support.secured import STANDARD
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.requests.forwarding import decode_principal, encode_principal, packed_address
from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft import token_control
from barnabas.journal.events import MetadataChange, events_of, makes_events
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.protocol.sasl.logins import ScramClient
from barnabas.protocol.sasl.mechanism import SCRAM

DAY_MS = 86_400_000
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
REFUSED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def token_broker(**properties: str) -> WiredBroker:
    return secured_broker(delegation_token_secret_key="key-marker", **properties)


def client_of(wired: WiredBroker, user: str = "alice", password: str = PASSWORD) -> WiredClient:
    client = wired.connect()
    assert log_in(client, user, password).error_code == 0
    return client


def bob_of(wired: WiredBroker) -> WiredClient:
    return client_of(wired, "bob", "bob-marker-Secret")


def create(
    client: WiredClient, *, owner: str = "", renewers: Sequence[str] = (), lifetime_ms: int = -1, version: int = 3
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(
                principal_type=each.partition(":")[0], principal_name=each.partition(":")[2]
            )
            for each in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )
    if owner:
        request.owner_principal_type, _, request.owner_principal_name = owner.partition(":")
    return client.call(request, version, CreateDelegationTokenResponse)


def renew(client: WiredClient, hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = client.call(request, version, RenewDelegationTokenResponse)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(client: WiredClient, hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = client.call(request, version, ExpireDelegationTokenResponse)
    return answer.error_code, answer.expiry_timestamp_ms


def describe(
    client: WiredClient, owners: Sequence[str] | None = None, version: int = 3
) -> DescribeDelegationTokenResponse:
    rows = None
    if owners is not None:
        rows = [
            DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(
                principal_type=owner.partition(":")[0], principal_name=owner.partition(":")[2]
            )
            for owner in owners
        ]
    request = DescribeDelegationTokenRequest(owners=rows)
    return client.call(request, version, DescribeDelegationTokenResponse)


def ids(client: WiredClient, owners: Sequence[str] | None = None) -> set[str]:
    answer = describe(client, owners)
    assert answer.error_code == 0
    return {token.token_id for token in answer.tokens}


def password_of(token: CreateDelegationTokenResponse) -> str:
    return base64.b64encode(token.hmac).decode()


def by_token(wired: WiredBroker, token: CreateDelegationTokenResponse, mechanism: str = "SCRAM-SHA-256") -> WiredClient:
    client = wired.connect()
    assert log_in(client, token.token_id, password_of(token), mechanism, by_token=True).error_code == 0
    return client


@pytest.fixture
def wired() -> WiredBroker:
    return token_broker()


@pytest.fixture
def alice(wired: WiredBroker) -> WiredClient:
    return client_of(wired)


@pytest.mark.parametrize("version", range(1, 4))
def test_create_renew_describe_and_expire_in_all_versions(wired: WiredBroker, alice: WiredClient, version: int) -> None:
    low = min(version, 2)
    now_ms = wired.host.clock.wall_ms()
    made = create(alice, renewers=["User:bob"], version=version)
    assert made.error_code == 0
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert made.token_requester_principal_name == ("alice" if version >= 3 else "")
    assert now_ms <= made.issue_timestamp_ms <= now_ms + 100
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
    code, end_ms = renew(alice, made.hmac, 1_000, low)
    assert code == 0
    assert 1_000 <= end_ms - made.issue_timestamp_ms < 1_200
    (token,) = describe(alice, version=version).tokens
    assert (token.token_id, token.hmac, token.principal_name) == (made.token_id, made.hmac, "alice")
    assert (token.issue_timestamp, token.max_timestamp) == (made.issue_timestamp_ms, made.max_timestamp_ms)
    assert token.expiry_timestamp == end_ms
    assert [(each.principal_type, each.principal_name) for each in token.renewers] == [("User", "bob")]
    assert token.token_requester_principal_name == ("alice" if version >= 3 else "")
    assert expire(alice, made.hmac, -1, low)[0] == 0
    assert describe(alice, version=version).tokens == []
    assert renew(alice, made.hmac, -1, low) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_without_a_secret_key_there_are_no_tokens() -> None:
    client = client_of(secured_broker())
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    made = create(client)
    assert (made.error_code, made.principal_name, made.expiry_timestamp_ms) == (disabled, "alice", 0)
    assert renew(client, b"x") == expire(client, b"x") == (disabled, 0)
    assert describe(client).error_code == disabled
    assert describe(client, []).error_code == disabled


def test_a_client_without_a_log_in_gets_no_token() -> None:
    wired = WiredBroker(delegation_token_secret_key="key-marker")
    client = wired.connect()
    made = create(client)
    assert made.error_code == NOT_ALLOWED
    assert (made.principal_name, made.token_requester_principal_name) == ("ANONYMOUS", "ANONYMOUS")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (-1, -1, -1)
    assert renew(client, b"x") == expire(client, b"x") == (NOT_ALLOWED, -1)
    assert describe(client).error_code == NOT_ALLOWED


@pytest.mark.parametrize(("principal", "code"), [("User:ANONYMOUS", NOT_ALLOWED), ("User:CN=alice", 0)])
def test_over_tls_the_client_needs_a_certificate(principal: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wired = WiredBroker(delegation_token_secret_key="key-marker")
    client = wired.connect()
    client.core.principal = principal
    config = wired.broker.config
    real = config.security_protocol_of
    monkeypatch.setattr(
        type(config), "security_protocol_of", lambda self, name: "SSL" if name == "PLAINTEXT" else real(name)
    )
    assert create(client).error_code == code


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_client_logs_in_by_token_as_its_owner(wired: WiredBroker, alice: WiredClient, mechanism: str) -> None:
    token = create(alice)
    client = by_token(wired, token, mechanism)
    assert client.core.principal == "User:alice"
    assert client.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers
    # A token does not beget tokens.
    refused = create(client)
    assert (refused.error_code, refused.principal_name, refused.expiry_timestamp_ms) == (NOT_ALLOWED, "alice", -1)
    assert renew(client, token.hmac) == expire(client, token.hmac) == (NOT_ALLOWED, -1)
    assert describe(client).error_code == NOT_ALLOWED
    assert describe(client).tokens == []


def test_a_token_of_another_owner_is_its_log_in(wired: WiredBroker, alice: WiredClient) -> None:
    assert by_token(wired, create(alice, owner="User:dave")).core.principal == "User:dave"


def test_a_session_by_token_ends_with_the_token(wired: WiredBroker, alice: WiredClient) -> None:
    token = create(alice, lifetime_ms=10_000)
    client = wired.connect()
    answer = log_in(client, token.token_id, password_of(token), "SCRAM-SHA-512", by_token=True)
    assert 9_000 < answer.session_lifetime_ms <= 10_000
    wired.host.time.run_for(answer.session_lifetime_ms - 100)
    assert client.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers
    wired.host.time.run_for(200)
    client.send(MetadataRequest(topics=[]), 9)
    assert client.core.is_closed
    assert "its session has ended" in wired.closes.causes[-1]
    # The token is still in the metadata, and is refused.
    assert token.token_id in wired.broker.metadata.image.security.tokens
    refused = log_in(wired.connect(), token.token_id, password_of(token), "SCRAM-SHA-512", by_token=True)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_renewed_token_prolongs_the_session_at_the_next_authentication(
    wired: WiredBroker, alice: WiredClient
) -> None:
    token = create(alice, lifetime_ms=60_000)
    expire(alice, token.hmac, 10_000)
    client = by_token(wired, token)
    wired.host.time.run_for(8_000)
    assert renew(alice, token.hmac)[0] == 0
    answer = log_in(client, token.token_id, password_of(token), "SCRAM-SHA-256", by_token=True)
    assert answer.error_code == 0
    assert answer.session_lifetime_ms > 50_000
    wired.host.time.run_for(10_000)
    assert client.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers
    assert describe(client).error_code == NOT_ALLOWED, "the mark of the token survives the renewal"


def test_a_removed_token_cannot_log_in(wired: WiredBroker, alice: WiredClient) -> None:
    token = create(alice)
    by_token(wired, token)
    expire(alice, token.hmac)
    refused = log_in(wired.connect(), token.token_id, password_of(token), "SCRAM-SHA-256", by_token=True)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_wrong_hmac_and_an_unknown_token_look_the_same(wired: WiredBroker, alice: WiredClient) -> None:
    token = create(alice)

    def first(token_id: str) -> str:
        client = wired.connect()
        call_handshake(client, "SCRAM-SHA-256")
        message = ScramClient("sha256", token_id, "x", "nonce", by_token=True).first()
        answer = call_authenticate(client, message)
        assert answer.error_code == 0
        return bytes(answer.auth_bytes).decode().partition(",")[2]

    known, unknown = first(token.token_id), first("AAAAAAAAAAAAAAAAAAAAAA")
    assert [len(part) for part in known.split(",")] == [len(part) for part in unknown.split(",")]
    assert known.endswith("i=4096")
    assert unknown.endswith("i=4096")
    texts = {
        log_in(wired.connect(), name, "x", "SCRAM-SHA-256", by_token=True).error_message
        for name in (token.token_id, "AAAAAAAAAAAAAAAAAAAAAA")
    }
    assert len(texts) == 1


def test_users_and_tokens_are_apart(wired: WiredBroker, alice: WiredClient) -> None:
    """A token's id is no user without the extension, and a user is no token with it."""
    token = create(alice)
    for name, password, is_token in (
        (token.token_id, password_of(token), False),
        ("alice", PASSWORD, True),
    ):
        refused = log_in(wired.connect(), name, password, "SCRAM-SHA-256", by_token=is_token)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        (b",tokenauth=true", True),
        (b",tokenauth=TRUE", True),
        (b",other=1,tokenauth=true", True),
        (b",tokenauth=false", False),
        (b",tokenauth=true,tokenauth=no", False),
        (b",xtokenauth=true", False),
        (b",x=tokenauth=true", False),
        (b"", False),
    ],
)
def test_the_extension_is_read_as_kafka_reads_it(
    wired: WiredBroker, alice: WiredClient, extensions: bytes, is_token: bool
) -> None:
    token = create(alice)
    client = wired.connect()
    call_handshake(client, "SCRAM-SHA-256")
    scram = ScramClient("sha256", token.token_id, password_of(token), "nonce")
    scram._first_bare += extensions.decode()
    answer = call_authenticate(client, scram.first())
    assert answer.error_code == 0
    assert (call_authenticate(client, scram.final(bytes(answer.auth_bytes))).error_code == 0) == is_token


def test_credentials_are_derived_once_and_never_before_use(wired: WiredBroker, alice: WiredClient) -> None:
    token = create(alice)
    users = wired.broker._token_users
    assert not users._kept
    by_token(wired, token)
    first = dict(users._kept)
    by_token(wired, token)
    assert users._kept == first
    assert list(first) == [("sha256", token.token_id)]


def test_without_an_authorizer_everybody_sees_all_tokens(wired: WiredBroker, alice: WiredClient) -> None:
    bob = bob_of(wired)
    own, others = create(alice).token_id, create(bob, owner="User:carol", renewers=["User:dave"]).token_id
    assert ids(alice) == ids(bob) == {own, others}
    assert ids(alice, ["User:alice"]) == {own}
    # The requester and the renewers count as owners.
    assert ids(alice, ["User:bob"]) == ids(alice, ["User:carol"]) == ids(alice, ["User:dave"]) == {others}
    assert ids(alice, ["User:nobody", "User:alice"]) == {own}
    assert ids(alice, []) == set()
    assert ids(alice, ["Group:alice"]) == set()


class Rights:
    """A broker with an authorizer, whose administrator is a user of its own."""

    def __init__(self) -> None:
        self.wired = token_broker(authorizer_class_name=STANDARD, super_users="User:node;User:ANONYMOUS")
        self.node = client_of(self.wired, "node", "node-marker-Secret")
        self.alice, self.bob = client_of(self.wired), bob_of(self.wired)

    def add(self, operation: AclOperation, resource: AclResource, name: str, *, deny: bool = False) -> None:
        creation = CreateAclsRequest.AclCreation(
            resource_type=resource,
            resource_name=name,
            resource_pattern_type=AclPattern.LITERAL,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=AclPermission.DENY if deny else AclPermission.ALLOW,
        )
        answer = self.node.call(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse)
        assert [row.error_code for row in answer.results] == [0]


def test_a_token_for_another_user_needs_a_right_on_the_user() -> None:
    rights = Rights()
    assert create(rights.alice).error_code == 0
    assert create(rights.alice, owner="User:alice").error_code == 0
    refused = create(rights.alice, owner="User:bob")
    assert (refused.error_code, refused.principal_name, refused.token_requester_principal_name) == (
        REFUSED,
        "bob",
        "alice",
    )
    assert (refused.issue_timestamp_ms, refused.token_id) == (-1, "")
    # The right is asked before the renewers are looked at.
    assert create(rights.alice, owner="User:bob", renewers=["Group:x"]).error_code == REFUSED
    assert create(rights.alice, renewers=["Group:x"]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    rights.add(AclOperation.CREATE_TOKENS, AclResource.USER, "User:bob")
    token = create(rights.alice, owner="User:bob")
    assert token.error_code == 0
    assert create(rights.alice, owner="User:carol").error_code == REFUSED
    assert by_token(rights.wired, token).core.principal == "User:bob"


def test_tokens_of_others_are_seen_with_a_right_on_the_token_or_on_its_owner() -> None:
    rights = Rights()
    own = create(rights.alice).token_id
    shared = create(rights.bob, renewers=["User:alice"]).token_id
    first, second = create(rights.bob).token_id, create(rights.bob).token_id
    foreign = create(rights.node).token_id
    assert ids(rights.alice) == {own, shared}
    rights.add(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, first)
    assert ids(rights.alice) == {own, shared, first}
    assert ids(rights.alice, ["User:bob"]) == {shared, first}
    rights.add(AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:bob")
    assert ids(rights.alice) == {own, shared, first, second}
    rights.add(AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:bob", deny=True)
    assert ids(rights.alice) == {own, shared, first}
    assert ids(rights.node) == {own, shared, first, second, foreign}


# -- the controller's side


def envelope(request: Message, version: int, principal: bytes) -> EnvelopeRequest:
    key = type(request).API_KEY
    assert key is not None
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=5, client_id="c")
    frame = codec.encode(header, request_header_version(key, version))
    codec.encode_into(request, version, frame)
    return EnvelopeRequest(
        request_data=bytes(frame), request_principal=principal, client_host_address=packed_address("/10.0.0.9")
    )


def test_the_mark_of_a_token_is_in_the_envelope_and_refused_by_the_controller() -> None:
    """Guard S14: a broker that does not check, such as an older one, is not enough to get a token by a token."""
    wired = WiredBroker(delegation_token_secret_key="key-marker")
    controller = WiredClient(wired)
    controller.core = wired.broker.dispatcher("CONTROLLER").connect(controller.link, "/10.0.0.2", "CONTROLLER")
    assert decode_principal(encode_principal("User:alice", token_authenticated=True)) == ("User:alice", True)
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    codes = {}
    for mark in (True, False):
        principal = encode_principal("User:alice", token_authenticated=mark)
        answer = controller.call(envelope(request, 3, principal), 0, EnvelopeResponse)
        assert answer.error_code == 0
        assert answer.response_data is not None
        made, _ = codec.decode(CreateDelegationTokenResponse, 3, answer.response_data, 5)
        codes[mark] = made.error_code
    assert codes == {True: NOT_ALLOWED, False: 0}
    # The same requests without an envelope come from a channel in the clear.
    assert create(controller).error_code == NOT_ALLOWED
    assert renew(controller, b"x") == (NOT_ALLOWED, -1)


@pytest.mark.parametrize("swept_at_once", [1, 5_000])
def test_expired_tokens_are_removed_by_the_active_controller(
    swept_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep over 100,000 tokens was one turn of 62 ms."""
    monkeypatch.setattr(token_control, "_SWEPT_AT_ONCE", swept_at_once)
    wired = token_broker(delegation_token_expiry_check_interval_ms="60000")
    alice = client_of(wired)
    early, late = create(alice, lifetime_ms=30_000).token_id, create(alice).token_id
    wired.host.time.run_for(40_000)
    assert ids(alice) == {early, late}, "an expired token is shown until it is removed, as by Kafka"
    wired.host.time.run_for(30_000)
    assert ids(alice) == {late}


def test_tokens_survive_a_restart(wired: WiredBroker, alice: WiredClient) -> None:
    token = create(alice)
    wired.restart(clean=False)
    client = by_token(wired, token)
    assert client.core.principal == "User:alice"
    # The new controller finds it by its HMAC.
    assert renew(client_of(wired), token.hmac)[0] == 0


def test_the_journal_has_changes_of_tokens_without_secrets(wired: WiredBroker, alice: WiredClient) -> None:
    record = DelegationTokenRecord(
        owner="User:alice", requester="User:bob", renewers=["User:carol"], max_timestamp=9, expiration_timestamp=5
    )
    record.token_id = "an-id"
    changed = DelegationTokenRecord(owner="User:alice", requester="User:bob", max_timestamp=9, expiration_timestamp=7)
    changed.token_id = "an-id"
    view = wired.broker.quorum.controller.proposals.view()
    image, kinds = MetadataImage(), []
    for step in (record, changed, RemoveDelegationTokenRecord(token_id="an-id")):
        delta = MetadataDelta(image)
        delta.replay(step)
        after = delta.apply(image.offset + 1, 1, 0)
        assert makes_events(delta)
        assert MetadataDelta.between(image, after).changed_tokens == {"an-id"}
        ((subject, event),) = events_of(MetadataChange(delta, after, None), view, 1)
        assert subject == "token:an-id"
        kinds.append(
            (event["kind"], (event["before"] or {}).get("expires_ms"), (event["after"] or {}).get("expires_ms"))
        )
        image = after
    assert kinds == [("token-created", None, 5), ("token-changed", 5, 7), ("token-removed", 7, None)]
    create(alice)
    wired.host.time.run_for(5_000)
    told = str(list(wired.host.disk.snapshot().values())) if hasattr(wired.host.disk, "snapshot") else ""
    assert "key-marker" not in told


def test_thousands_of_tokens_are_described(wired: WiredBroker, alice: WiredClient) -> None:
    records: list[tuple[Message, int]] = [
        (DelegationTokenRecord(owner="User:alice", requester="User:alice", token_id=f"token-{number}"), 0)
        for number in range(3_000)
    ]
    wired.broker.quorum.raft.propose(records, wall_ms=0)
    wired.host.time.run_for(1_000)
    answer = describe(alice)
    assert len(answer.tokens) == 3_000
