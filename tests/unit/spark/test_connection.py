"""A connection to peers that are no Kafka servers, or that use TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.scripted_broker import ALL_VERSIONS, AuthenticatingBroker, reply

from barnabas.protocol import codec
from barnabas.protocol.client_security import ClientSecurity, client_security
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.spark.blocking_connection import Connection
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.errors import RequestRefused

TLS = Path(__file__).resolve().parents[2] / "data" / "tls"
Answer = Callable[[bytes], bytes]


@contextmanager
def server(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[ClientSettings]:
    """Serves one connection; `answer` makes the whole reply from the body of a request."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            connection, _ = listener.accept()
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                # The server closes the connection at a frame that is too large, as a broker does, for example at the
                # first bytes of TLS.
                while (size := int.from_bytes(stream.read(4), "big")) in range(1, 1 << 20):
                    connection.sendall(answer(stream.read(size)))
        except OSError:
            return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield ClientSettings((("127.0.0.1", listener.getsockname()[1]),), request_timeout_ms=5_000)
    finally:
        listener.close()
        thread.join(10)
        assert not thread.is_alive()


def framed(request: bytes, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + request[4:8] + body


def broker(request: bytes) -> bytes:
    """Knows ApiVersions and Metadata 1 only, in old versions as an old broker would."""
    key, version = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
    if key == 18:
        known = [
            ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=1),
            ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=0),
        ]
        code = 35 if version > 0 else 0
        return framed(request, bytes(codec.encode(ApiVersionsResponse(error_code=code, api_keys=known), 0)))
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=7, host="h", port=9)]
    return framed(request, bytes(codec.encode(MetadataResponse(brokers=brokers), version)))


def _connected(settings: ClientSettings) -> Connection:
    return Connection(settings.bootstrap[0], settings)


def test_an_old_broker_is_spoken_to_in_its_versions() -> None:
    with server(broker) as settings:
        connection = _connected(settings)
        assert connection.version_of(MetadataRequest) == 1
        found = connection.call(MetadataRequest(topics=None), MetadataResponse)
        assert [each.node_id for each in found.brokers] == [7]
        connection.close()


def test_an_unsupported_request_is_reported() -> None:
    with server(broker) as settings:
        connection = _connected(settings)
        with pytest.raises(RequestRefused, match="does not support FetchRequest"):
            connection.send(FetchRequest())
        connection.close()


@pytest.mark.parametrize(
    "reply, said",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol: a frame of"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x00abcd", "does not speak Kafka's protocol|another request|"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
    ],
)
def test_somebody_else_at_the_address(reply: bytes, said: str) -> None:
    with server(lambda request: reply) as settings, pytest.raises(ConnectionError, match=said):
        _connected(settings)


def test_an_answer_to_another_question_ends_it() -> None:
    def confused(request: bytes) -> bytes:
        answer = bytearray(broker(request))
        if request[1] == 3:
            answer[4] ^= 1
        return bytes(answer)

    with server(confused) as settings:
        connection = _connected(settings)
        with pytest.raises(ConnectionError, match="a response to another request"):
            connection.call(MetadataRequest(topics=None), MetadataResponse)
        connection.close()


def test_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    with server(broker, context) as plain:
        security = client_security({"security.protocol": "SSL", "ssl.ca.location": str(TLS / "certificate.pem")})
        connection = _connected(replace(plain, security=security))
        assert connection.call(MetadataRequest(topics=None), MetadataResponse).brokers[0].port == 9
        connection.close()


def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    security = client_security({"security.protocol": "SSL"})
    with server(broker, context) as plain, pytest.raises(RequestRefused, match=r"is not trusted: .*truststore"):
        _connected(replace(plain, security=security))


def test_no_tls_where_there_should_be() -> None:
    security = client_security({"security.protocol": "SSL"})
    with server(broker) as plain, pytest.raises(ConnectionError, match="did not complete the TLS handshake"):
        _connected(replace(plain, security=security))


def test_a_listener_that_wants_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    with server(broker, context) as plain, pytest.raises(ConnectionError, match=r"with TLS|want TLS|reset by peer"):
        _connected(plain)


def authenticating(mechanism: str, hash_name: str = "sha256") -> Answer:
    broker = AuthenticatingBroker(mechanism, hash_name)
    return lambda request: reply(request, broker, ALL_VERSIONS) or b""


def credentials(mechanism: str, password: str) -> ClientSecurity:
    return client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }
    )


@pytest.mark.parametrize(
    "mechanism, hash_name", [("PLAIN", "sha256"), ("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
def test_a_log_in(mechanism: str, hash_name: str) -> None:
    with server(authenticating(mechanism, hash_name)) as plain:
        connection = _connected(replace(plain, security=credentials(mechanism, "secret")))
        assert connection.call(MetadataRequest(), MetadataResponse).cluster_id == "by version 13"
        connection.close()


def test_a_wrong_password_is_reported_immediately_in_one_line() -> None:
    with server(authenticating("SCRAM-SHA-256")) as plain:
        settings = replace(plain, security=credentials("SCRAM-SHA-256", "guess"))
        with pytest.raises(RequestRefused) as refused:
            ClusterClient(settings).topics(["t"])
    port = plain.bootstrap[0][1]
    said = f"the broker at 127.0.0.1:{port} refuses the login of alice with SCRAM-SHA-256: wrong password"
    assert str(refused.value) == said
    assert "guess" not in repr(settings)
