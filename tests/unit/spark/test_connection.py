"""A connection against servers that are none, or speak TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.protocol import codec
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.connection import Connection
from barnabas.spark.faults import RequestRefused

TLS = Path(__file__).resolve().parents[2] / "data" / "tls"
Answer = Callable[[bytes], bytes]


@contextmanager
def server(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[ClientSettings]:
    """One connection; `answer` makes the whole reply from the body of a request."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            connection, _ = listener.accept()
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                while size := stream.read(4):
                    connection.sendall(answer(stream.read(int.from_bytes(size, "big"))))
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
        found = connection.ask(MetadataRequest(topics=None), MetadataResponse)
        assert [each.node_id for each in found.brokers] == [7]
        connection.close()


def test_what_it_does_not_know_is_told() -> None:
    with server(broker) as settings:
        connection = _connected(settings)
        with pytest.raises(RequestRefused, match="does not know FetchRequest"):
            connection.send(FetchRequest())
        connection.close()


@pytest.mark.parametrize(
    "reply, said",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol: a frame of"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x00abcd", "does not speak Kafka's protocol|answers ApiVersions with"),
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
        with pytest.raises(ConnectionError, match="an answer to another request"):
            connection.ask(MetadataRequest(topics=None), MetadataResponse)
        connection.close()


def test_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    with server(broker, context) as plain:
        security = (("security.protocol", "SSL"), ("ssl.ca.location", str(TLS / "certificate.pem")))
        connection = _connected(ClientSettings(plain.bootstrap, security=security))
        assert connection.ask(MetadataRequest(topics=None), MetadataResponse).brokers[0].port == 9
        connection.close()


def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    with server(broker, context) as plain, pytest.raises(ssl.SSLCertVerificationError):
        _connected(ClientSettings(plain.bootstrap, security=(("security.protocol", "SSL"),)))
