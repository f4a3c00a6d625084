"""Brokers in memory whose clients must log in, and the frames of a log-in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.support.wired import WiredBroker, WiredClient

from barnabas.protocol import codec
from barnabas.protocol.client_session import ClientSession
from barnabas.protocol.header import request_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.sasl.logins import Login, exchange

PASSWORD: Final = "alice-marker-Secret"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: The properties of a broker with a log-in on its listener PLAINTEXT.
SECURED: Final = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{_PLAIN} required username="node" password="node-marker-Secret" user_node="node-marker-Secret" '
        f'user_alice="{PASSWORD}" user_bob="bob-marker-Secret";'
    ),
}


def jaas(username: str, password: str, mechanism: str = "PLAIN") -> str:
    return f'{_PLAIN if mechanism == "PLAIN" else _SCRAM} required username="{username}" password="{password}";'


def secured_broker(**properties: str) -> WiredBroker:
    chosen = {**SECURED, **{key.replace("_", "."): value for key, value in properties.items()}}
    return WiredBroker(**chosen)  # type: ignore[arg-type]


def plain(username: str = "alice", password: str = PASSWORD) -> bytes:
    return f"\0{username}\0{password}".encode()


def frame_of(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """Returns the body of a request's frame."""
    api_key = type(request).API_KEY
    assert api_key is not None
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id="wired"
    )
    frame = codec.encode(header, request_header_version(api_key, version))
    codec.encode_into(request, version, frame)
    return bytes(frame)


def sized(*frames: bytes) -> bytes:
    """Returns the frames as they are sent, each after its size."""
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def versions(version: int = 3) -> bytes:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return frame_of(request if version >= 3 else ApiVersionsRequest(), version)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame_of(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(message: bytes, version: int = 2) -> bytes:
    return frame_of(SaslAuthenticateRequest(auth_bytes=message), version)


def call_handshake(client: WiredClient, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    return client.call(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)


def call_authenticate(client: WiredClient, message: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return client.call(SaslAuthenticateRequest(auth_bytes=message), version, SaslAuthenticateResponse)


def log_in(
    client: WiredClient,
    username: str = "alice",
    password: str = PASSWORD,
    mechanism: str = "PLAIN",
    *,
    by_token: bool = False,
) -> SaslAuthenticateResponse:
    """Logs in. Returns the last response."""
    assert call_handshake(client, mechanism).error_code == 0
    messages = exchange(Login(mechanism, username, password, by_token), "nonce-of-the-client")
    answer = call_authenticate(client, next(messages))
    while not answer.error_code:
        try:
            message = messages.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer
        answer = call_authenticate(client, message)
    return answer


def handshake_frames(session: ClientSession, client: WiredClient) -> Iterator[bytes]:
    """Drives the handshake of a client's session. Yields each frame that it sent."""
    frames = session.handshake()
    frame = next(frames)
    while True:
        yield bytes(frame)
        client.send_raw(frame)
        data = client.link.take()
        try:
            frame = frames.send(data[4:])
        except StopIteration:
            return
