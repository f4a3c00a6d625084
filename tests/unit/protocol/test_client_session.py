"""A client's connection without I/O: the handshake frame by frame, versions, logins, malformed answers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.scripted_broker import ALL_VERSIONS, Answer, Answers, AuthenticatingBroker, metadata, reply

from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.protocol.client_session import ClientSession, LoginRefused, UnknownRequest, frame_size
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.protocol.sasl.logins import Login, ScramClient


def body_of(frame: bytes | None) -> bytes:
    assert frame is not None
    assert frame_size(frame[:4]) == len(frame) - 4
    return frame[4:]


def opened(
    answers: Answers, login: Login | None = None, versions: Mapping[int, tuple[int, int]] = ALL_VERSIONS
) -> tuple[ClientSession, list[str]]:
    session = ClientSession("test", "me", login, "nonce")
    seen: list[str] = []
    steps = session.handshake()
    frame = next(steps)
    while True:
        try:
            frame = steps.send(body_of(reply(bytes(frame[4:]), answers, versions, seen)))
        except StopIteration:
            return session, seen


def call(session: ClientSession, request: Message, version_max: int | None = None) -> Message:
    frame = session.request(request, version_max)
    return session.answer(body_of(reply(bytes(frame[4:]), metadata, ALL_VERSIONS)))


def test_asks_in_the_highest_version_that_both_know() -> None:
    session, seen = opened(metadata)
    assert seen == ["18v3"]
    found = call(session, MetadataRequest())
    assert isinstance(found, MetadataResponse)
    assert found.cluster_id == "by version 13"
    assert session.knows(MetadataRequest)
    assert session.version_of(MetadataRequest, 9) == 9
    assert session.version_of(MetadataRequest, 99) == 13


def test_an_old_broker_names_its_versions_in_version_0() -> None:
    session, seen = opened(metadata, versions={3: (0, 1), 18: (0, 0)})
    assert seen == ["18v3", "18v0"]
    assert session.version_of(MetadataRequest) == 1


def test_an_unsupported_request_is_reported_and_nothing_is_in_flight() -> None:
    session, _ = opened(metadata)
    with pytest.raises(UnknownRequest, match="does not support FetchRequest"):
        session.request(FetchRequest())
    assert session.waiting == 0
    assert call(session, MetadataRequest())


def test_answers_come_in_the_order_of_the_requests() -> None:
    session, _ = opened(metadata)
    first, second = session.request(MetadataRequest()), session.request(MetadataRequest())
    assert session.waiting == 2
    with pytest.raises(DecodeError, match="another request"):
        session.answer(body_of(reply(bytes(second[4:]), metadata, ALL_VERSIONS)))
    assert first != second


def test_a_request_is_sent_again_as_it_was_with_an_id_of_its_own() -> None:
    session, _ = opened(metadata)
    first = bytes(session.request(MetadataRequest()))
    again = bytes(session.request_again(first))
    assert (again[:8], again[12:]) == (first[:8], first[12:])
    assert again[8:12] != first[8:12]
    answers = [session.answer(body_of(reply(frame[4:], metadata, ALL_VERSIONS))) for frame in (first, again)]
    assert answers[0] == answers[1]
    assert session.waiting == 0


@pytest.mark.parametrize(
    ("prefix", "said"),
    [(b"HTTP", "frame of 1213486160 bytes"), (b"\xff" * 4, "of -1 bytes"), (b"\x15\x03\x03\0", "a listener with TLS")],
)
def test_a_frame_of_somebody_else(prefix: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        frame_size(prefix)


def test_what_hanging_up_may_mean() -> None:
    fresh = ClientSession("test", "me")
    assert "TLS" in fresh.close_hint
    session, _ = opened(metadata)
    assert "SASL" in session.close_hint
    call(session, MetadataRequest())
    assert session.close_hint == ""


@pytest.mark.parametrize(
    ("mechanism", "hash_name", "frames"),
    [("PLAIN", "sha256", 1), ("SCRAM-SHA-256", "sha256", 2), ("SCRAM-SHA-512", "sha512", 2)],
)
def test_a_log_in(mechanism: str, hash_name: str, frames: int) -> None:
    session, seen = opened(AuthenticatingBroker(mechanism, hash_name), Login(mechanism, "alice", "secret"))
    assert seen == ["18v3", "17v1"] + ["36v2"] * frames
    assert call(session, MetadataRequest())
    with pytest.raises(LoginRefused, match=f"refuses the login of alice with {mechanism}: wrong password") as refused:
        opened(AuthenticatingBroker(mechanism, hash_name), Login(mechanism, "alice", "guess"))
    assert "guess" not in str(refused.value)


def test_a_mechanism_that_the_broker_does_not_take() -> None:
    with pytest.raises(LoginRefused, match="does not offer SASL PLAIN, but SCRAM-SHA-256"):
        opened(AuthenticatingBroker("SCRAM-SHA-256"), Login("PLAIN", "alice", "secret"))


def test_a_listener_without_sasl() -> None:
    def answers(request: Message, version: int) -> Answer:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    with pytest.raises(LoginRefused, match="is it a SASL listener"):
        opened(answers, Login("PLAIN", "alice", "secret"))


@pytest.mark.parametrize("server_first", [b"", b"r=nonce1,s=W22Z,i=1", b"r=other,s=W22Z,i=4096", b"r=nonce1,s=%,i=x"])
def test_a_server_that_only_plays_one(server_first: bytes) -> None:
    def answers(request: Message, version: int) -> Answer:
        if isinstance(request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(auth_bytes=server_first)
        return SaslHandshakeResponse()

    with pytest.raises(LoginRefused, match="does not complete the login with SCRAM-SHA-256"):
        opened(answers, Login("SCRAM-SHA-256", "alice", "secret"))


def test_scram_as_rfc_7677_has_it() -> None:
    client = ScramClient("sha256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.final(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ValueError, match="does not know the password"):
        client.check(b"v=AAAA")
    with pytest.raises(ValueError, match="first message is wrong"):
        ScramClient("sha256", "user", "pencil", "abc").final(b"r=other,s=W22Z,i=4096")


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Login("PLAIN", "alice", "secret"))
