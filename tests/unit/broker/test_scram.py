"""SCRAM credentials: set and removed by requests, and used by log-ins."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from tests.support.log_in import call_authenticate, call_handshake, log_in, secured_broker
from tests.support.wired import WiredBroker, WiredClient

from barnabas.journal.events import MetadataChange, events_of, makes_events
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.messages.records_metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from barnabas.protocol.sasl.imitated_users import imitation
from barnabas.protocol.sasl.logins import ScramClient
from barnabas.protocol.sasl.mechanism import SCRAM, LogInRefused
from barnabas.protocol.sasl.scram_server import Credential, ScramServer, keys_of, salted_password

_Request = AlterUserScramCredentialsRequest
_Upsertion = _Request.ScramCredentialUpsertion
_Deletion = _Request.ScramCredentialDeletion
SALT = b"a-salt-of-some-length-here"


def _upsertion(name: str, mechanism: int = 1, password: str = "pencil", iterations: int = 4_096) -> _Upsertion:
    hash_name = {1: "sha256", 2: "sha512"}.get(mechanism, "sha256")
    salted = salted_password(hash_name, password, SALT, max(iterations, 1))
    return _Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted)


def _alter(client: WiredClient, *alterations: _Upsertion | _Deletion) -> list[tuple[str, int, str | None]]:
    request = _Request(
        deletions=[each for each in alterations if isinstance(each, _Deletion)],
        upsertions=[each for each in alterations if isinstance(each, _Upsertion)],
    )
    answer = client.call(request, 0, AlterUserScramCredentialsResponse)
    return [(row.user, row.error_code, row.error_message) for row in answer.results]


def _describe(client: WiredClient, *names: str) -> dict[str, tuple[int, str | None, list[tuple[int, int]]]]:
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    answer = client.call(
        DescribeUserScramCredentialsRequest(users=users or None), 0, DescribeUserScramCredentialsResponse
    )
    return {
        row.user: (row.error_code, row.error_message, [(i.mechanism, i.iterations) for i in row.credential_infos])
        for row in answer.results
    }


@pytest.fixture
def wired() -> WiredBroker:
    return secured_broker()


@pytest.fixture
def admin(wired: WiredBroker) -> WiredClient:
    client = wired.connect()
    assert log_in(client).error_code == 0
    return client


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("name", ["carol", "a,b=c", "x" * 200])
def test_a_user_logs_in_with_scram(wired: WiredBroker, admin: WiredClient, mechanism: str, name: str) -> None:
    assert _alter(admin, _upsertion(name, SCRAM[mechanism][0], "pass Ⅷ wörd", 5_000)) == [(name, 0, None)]
    client = wired.connect()
    assert log_in(client, name, "pass Ⅷ wörd", mechanism).error_code == 0
    assert client.core.principal == f"User:{name}"
    wrong = log_in(wired.connect(), name, "pass VIII word", mechanism)
    assert wrong.error_code == 58
    assert wrong.error_message == (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )


def test_a_removed_user_cannot_log_in(wired: WiredBroker, admin: WiredClient) -> None:
    _alter(admin, _upsertion("carol"))
    assert log_in(wired.connect(), "carol", "pencil", "SCRAM-SHA-256").error_code == 0
    assert _alter(admin, _Deletion(name="carol", mechanism=1)) == [("carol", 0, None)]
    assert log_in(wired.connect(), "carol", "pencil", "SCRAM-SHA-256").error_code == 58


def _first_answer(wired: WiredBroker, name: str, mechanism: str = "SCRAM-SHA-256") -> str:
    """Returns salt and iterations in the form of the first message of the server."""
    client = wired.connect()
    call_handshake(client, mechanism)
    message = ScramClient(SCRAM[mechanism][1], name, "x", "nonce").first()
    answer = call_authenticate(client, message)
    assert answer.error_code == 0
    return bytes(answer.auth_bytes).decode().partition(",")[2]


def test_an_unknown_user_is_refused_at_the_end_like_a_known_one(wired: WiredBroker, admin: WiredClient) -> None:
    """Guard S18."""
    _alter(admin, _upsertion("carol", iterations=8_192))
    known, unknown = _first_answer(wired, "carol"), _first_answer(wired, "nobody")
    assert [len(part) for part in known.split(",")] == [len(part) for part in unknown.split(",")]
    assert known.endswith("i=8192")
    assert unknown.endswith("i=8192")
    assert _first_answer(wired, "nobody") == unknown != _first_answer(wired, "somebody")
    wired.restart()
    assert _first_answer(wired, "nobody") == unknown
    text = log_in(wired.connect(), "nobody", "pencil", "SCRAM-SHA-256").error_message
    assert text == log_in(wired.connect(), "carol", "wrong", "SCRAM-SHA-256").error_message


def test_the_salt_of_an_unknown_user_stays_when_users_change() -> None:
    """Guard S18: a salt that changed with the password of another user was not that of a user."""
    wired = secured_broker(delegation_token_secret_key="key-marker")
    admin = wired.connect()
    assert log_in(admin).error_code == 0
    _alter(admin, _upsertion("carol"), _upsertion("dave"))
    answers = [_first_answer(wired, "nobody", mechanism) for mechanism in SCRAM]
    for change in (
        _upsertion("carol", password="pen"),
        _upsertion("aaron"),
        _Deletion(name="carol", mechanism=1),
        _Deletion(name="aaron", mechanism=1),
    ):
        assert [row[1] for row in _alter(admin, change)] == [0]
        assert [_first_answer(wired, "nobody", mechanism) for mechanism in SCRAM] == answers
    wired.restart()
    assert [_first_answer(wired, "nobody", mechanism) for mechanism in SCRAM] == answers


def test_errors_of_alterations(admin: WiredClient) -> None:
    twice = "A user credential cannot be altered twice in the same request"
    assert _alter(
        admin,
        _Deletion(name="absent", mechanism=1),
        _Deletion(name="", mechanism=1),
        _Deletion(name="carol", mechanism=7),
        _upsertion("few", iterations=4_095),
        _upsertion("many", iterations=16_385),
        _upsertion("good", iterations=16_384),
        _upsertion("double", 1),
        _upsertion("double", 2),
        _upsertion("strange", 0),
    ) == [
        ("good", 0, None),
        ("absent", 91, "Attempt to delete a user credential that does not exist"),
        ("", 93, "Username must not be empty"),
        ("carol", 33, "Unknown SCRAM mechanism"),
        ("few", 93, "Too few iterations"),
        ("many", 93, "Too many iterations"),
        ("double", 92, twice),
        ("strange", 33, "Unknown SCRAM mechanism"),
    ]


def test_descriptions(admin: WiredClient) -> None:
    assert _describe(admin) == {}
    _alter(admin, _upsertion("carol", 2, iterations=6_000), _upsertion("dave"))
    _alter(admin, _upsertion("carol", 1, iterations=5_000))
    assert _describe(admin) == {"carol": (0, "", [(1, 5_000), (2, 6_000)]), "dave": (0, "", [(1, 4_096)])}
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: dave"
    absent = "Attempt to describe a user credential that does not exist: eve"
    assert _describe(admin, "dave", "eve", "dave") == {"dave": (92, twice, []), "eve": (91, absent, [])}


def test_thousands_of_users(admin: WiredClient) -> None:
    salted = bytes(32)
    rows = [
        _Upsertion(name=f"user-{n}", mechanism=1, iterations=4_096, salt=SALT, salted_password=salted)
        for n in range(5_000)
    ]
    assert [row[1] for row in _alter(admin, *rows)] == [0] * 5_000
    assert len(_describe(admin)) == 5_000


def _exchange(password: str = "pencil") -> tuple[ScramServer, bytes]:
    """Returns a server that waits for the last message, and that message."""
    credential = Credential(SALT, *keys_of("sha256", salted_password("sha256", "pencil", SALT, 4_096)), 4_096)
    server = ScramServer("sha256", "server-nonce", lambda name: credential, lambda name: imitation("sha256", b"", name))
    client = ScramClient("sha256", "carol", password, "client-nonce")
    return server, client.final(server.evaluate(client.first()).reply)


def test_the_last_nonce_is_checked_at_each_byte() -> None:
    """Guard S3: CVE-2024-56128: the nonce of the last message was not compared with the one given."""
    server, final = _exchange()
    assert server.evaluate(final).outcome is not None
    start = final.index(b"r=") + 2
    end = final.index(b",", start)
    for index in range(start, end):
        changed = bytearray(final)
        changed[index] ^= 1
        with pytest.raises(LogInRefused):
            _exchange()[0].evaluate(bytes(changed))
    for other in (final[:start] + final[start + 1 :], final.replace(b"client-nonceserver-nonce", b"server-nonce")):
        with pytest.raises(LogInRefused):
            _exchange()[0].evaluate(other)


def test_old_librdkafka_repeats_its_part_of_the_nonce() -> None:
    """Versions before 2.6 do, and Kafka accepts it."""
    credential = Credential(SALT, *keys_of("sha256", salted_password("sha256", "pencil", SALT, 4_096)), 4_096)
    server = ScramServer("sha256", "s", lambda name: credential, lambda name: imitation("sha256", b"", name))
    first = server.evaluate(b"n,,n=carol,r=c").reply.decode()
    unproven = "c=biws,r=ccs"
    salted = salted_password("sha256", "pencil", SALT, 4_096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    message = f"n=carol,r=c,{first},{unproven}".encode()
    signature = hmac.digest(credential.stored_key, message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    assert server.evaluate(f"{unproven},p={proof}".encode()).outcome is not None


def test_a_proof_is_checked_at_each_bit_and_used_once() -> None:
    """Guard S3."""
    server, final = _exchange()
    at = final.index(b",p=") + 3
    for index in range(at, len(final) - 2):
        changed = bytearray(final)
        changed[index] = ord("A") if changed[index] != ord("A") else ord("B")
        with pytest.raises(LogInRefused):
            _exchange()[0].evaluate(bytes(changed))
    assert server.evaluate(final).outcome is not None
    with pytest.raises(LogInRefused):
        server.evaluate(final)


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"n,,", b"y,,n=a,r=b", b"p=tls-unique,,n=a,r=b", b"n,,n=a=b,r=c", b"n,,n=a,r="),
        *(b"n,a=b,n=c,r=d", b"\xff", b"n,,n=\xc3\xa9,r=x"),
    ],
)
def test_malformed_first_messages_are_refused(message: bytes) -> None:
    server = ScramServer("sha256", "n", lambda name: None, lambda name: imitation("sha256", b"", name))
    with pytest.raises(LogInRefused):
        server.evaluate(message)


def test_a_server_signature_proves_the_server() -> None:
    credential = Credential(SALT, *keys_of("sha512", salted_password("sha512", "pencil", SALT, 4_096)), 4_096)
    server = ScramServer("sha512", "s", lambda name: credential, lambda name: imitation("sha512", b"", name))
    client = ScramClient("sha512", "carol", "pencil", "c")
    client.check(server.evaluate(client.final(server.evaluate(client.first()).reply)).reply)
    assert "hidden" in repr(credential)
    assert hashlib.sha512().name == "sha512"


def test_the_journal_has_changes_of_credentials_without_secrets(wired: WiredBroker) -> None:
    record = UserScramCredentialRecord(
        name="carol", mechanism=1, salt=b"marker", stored_key=b"marker", server_key=b"marker", iterations=4_096
    )
    delta = MetadataDelta(MetadataImage())
    delta.replay(record)
    image = delta.apply(7, 1, 0)
    assert makes_events(delta)
    view = wired.broker.quorum.controller.proposals.view()
    ((subject, event),) = events_of(MetadataChange(delta, image, None), view, 1)
    assert subject == "credential:SCRAM-SHA-256:carol"
    assert (event["before"], event["after"]) == (None, {"iterations": 4_096})
    assert "marker" not in str(event)
    removal = MetadataDelta(image)
    removal.replay(RemoveUserScramCredentialRecord(name="carol", mechanism=1))
    after = removal.apply(8, 1, 0)
    ((_, event),) = events_of(MetadataChange(removal, after, None), view, 1)
    assert (event["before"], event["after"]) == ({"iterations": 4_096}, None)
    assert MetadataDelta.between(image, after).changed_credentials == {(1, "carol")}
