"""Connections of the monitor to a broker that says what the test wants, over a real socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.monitor.connection import BrokerConnection, NoAnswer, Security
from barnabas.monitor.sasl import ScramClient
from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.index import request_class
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TLS = Path(__file__).resolve().parents[2] / "data" / "tls"
VERSIONS = {3: (0, 13), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
#: None hangs up; an answer of bytes is the whole frame.
Answer = Message | bytes | None
Answers = Callable[[Message, int], Answer]


def run(main: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


@contextlib.asynccontextmanager
async def broker(
    answers: Answers, seen: list[str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    """Its address. ApiVersions it answers by itself."""
    open_writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                # As the broker's own frames, this one begins with its size.
                view = memoryview(len(frame).to_bytes(4, "big") + frame)[4:]
                key, version, correlation_id, _, position = decode_request_header(view)
                if seen is not None:
                    seen.append(f"{key}v{version}")
                request, _ = codec.decode(request_class(key), version, view, position)
                answer = _versions() if key == 18 else answers(request, version)
                if answer is None:
                    writer.close()
                    return
                if isinstance(answer, Message):
                    answer = _framed(answer, key, version, correlation_id)
                writer.write(answer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        for writer in open_writers:
            writer.close()


def _versions() -> ApiVersionsResponse:
    row = ApiVersionsResponse.ApiVersion
    rows = [row(api_key=key, min_version=low, max_version=high) for key, (low, high) in VERSIONS.items()]
    return ApiVersionsResponse(api_keys=rows)


def _framed(answer: Message, key: int, version: int, correlation_id: int) -> bytes:
    body = bytearray(correlation_id.to_bytes(4, "big"))
    if response_header_version(key, version) == 1:
        body.append(0)
    codec.encode_into(answer, version, body)
    return len(body).to_bytes(4, "big") + bytes(body)


def metadata(request: Message, version: int) -> Answer:
    assert isinstance(request, MetadataRequest)
    return MetadataResponse(cluster_id=f"by version {version}")


def connection(
    address: tuple[str, int], properties: dict[str, str] | None = None, timeout_s: float = 5.0
) -> BrokerConnection:
    security = Security.from_properties(properties or {})
    return BrokerConnection(address, security, client_id="test", timeout_s=timeout_s)


def test_asks_in_the_highest_version_that_both_know() -> None:
    async def main() -> None:
        seen: list[str] = []
        async with broker(metadata, seen) as address:
            asked = connection(address)
            assert (await asked.ask(MetadataRequest(), MetadataResponse)).cluster_id == "by version 13"
            assert (await asked.ask(MetadataRequest(), MetadataResponse, version_max=9)).cluster_id == "by version 9"
            assert seen == ["18v3", "3v13", "3v9"]
            asked.close()

    run(main())


def test_a_broker_that_hung_up_is_dialled_again_within_the_same_question() -> None:
    async def main() -> None:
        calls = 0

        def hangs_up_on_the_second(request: Message, version: int) -> Answer:
            nonlocal calls
            calls += 1
            return None if calls == 2 else metadata(request, version)

        async with broker(hangs_up_on_the_second) as address:
            asked = connection(address)
            await asked.ask(MetadataRequest(), MetadataResponse)
            await asked.ask(MetadataRequest(), MetadataResponse)
            assert calls == 3
            asked.close()

    run(main())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "it hung up"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is this a Kafka listener"),
        (b"\0\0\0\x08\x7f\xff\xff\xff\0\0\0\0", "another question"),
        (b"", "no answer in time"),
    ],
)
def test_why_there_is_no_answer(answer: Answer, why: str) -> None:
    async def main() -> None:
        async with broker(lambda request, version: answer) as address:
            with pytest.raises(NoAnswer, match=why):
                await connection(address, timeout_s=0.5).ask(MetadataRequest(), MetadataResponse)

    run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with broker(metadata) as address:
            pass
        with pytest.raises(NoAnswer, match="connection refused"):
            await connection(address).ask(MetadataRequest(), MetadataResponse)

    run(main())


def test_an_api_that_the_broker_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(VERSIONS, 3)

    async def main() -> None:
        async with broker(metadata) as address:
            asked = connection(address)
            with pytest.raises(NoAnswer, match="does not know Metadata"):
                await asked.ask(MetadataRequest(), MetadataResponse)
            assert not asked.knows(MetadataRequest)
            asked.close()

    run(main())


# TLS and SASL.


def test_tls_with_a_certificate_that_is_trusted_and_without() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    with_trust = {"security.protocol": "ssl", "ssl.ca.location": str(TLS / "certificate.pem")}
    unverified = {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}

    async def main() -> None:
        async with broker(metadata, tls=context) as address:
            for properties in (with_trust, unverified):
                asked = connection(address, properties)
                assert (await asked.ask(MetadataRequest(), MetadataResponse)).cluster_id == "by version 13"
                asked.close()
            with pytest.raises(NoAnswer, match="certificate"):
                await connection(address, {"security.protocol": "ssl"}).ask(MetadataRequest(), MetadataResponse)

    run(main())


def test_no_tls_where_there_should_be() -> None:
    async def main() -> None:
        async with broker(metadata) as address:
            with pytest.raises(NoAnswer):
                asked = connection(address, {"security.protocol": "ssl"}, timeout_s=1.0)
                await asked.ask(MetadataRequest(), MetadataResponse)

    run(main())


def sasl(mechanism: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


class Doorkeeper:
    """Lets alice in with "secret"."""

    def __init__(self, mechanism: str, hash_name: str = "sha256") -> None:
        self._mechanism = mechanism
        self._hash = hash_name
        self._first = ""
        self._server_first = ""

    def __call__(self, request: Message, version: int) -> Answer:
        if isinstance(request, SaslHandshakeRequest):
            known = request.mechanism == self._mechanism
            code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=code, mechanisms=[self._mechanism])
        if not isinstance(request, SaslAuthenticateRequest):
            return metadata(request, version)
        answer = self._plain(request) if self._mechanism == "PLAIN" else self._scram(bytes(request.auth_bytes))
        if answer is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="wrong password"
            )
        return SaslAuthenticateResponse(auth_bytes=answer)

    def _plain(self, request: SaslAuthenticateRequest) -> bytes | None:
        return b"" if bytes(request.auth_bytes) == b"\0alice\0secret" else None

    def _scram(self, message: bytes) -> bytes | None:
        """The server of RFC 5802, with nothing of the client's code."""
        if message.startswith(b"n,,"):
            self._first = message[3:].decode()
            self._server_first = f"{self._first.partition(',')[2]}server,s={base64.b64encode(b'salt').decode()},i=4096"
            return self._server_first.encode()
        without_proof, _, proof = message.decode().rpartition(",p=")
        text = f"{self._first},{self._server_first},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, b"secret", b"salt", 4096)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), text, self._hash)
        if bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) != client_key:
            return None
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        return b"v=" + base64.b64encode(hmac.digest(server_key, text, self._hash))


@pytest.mark.parametrize(
    ("mechanism", "hash_name"), [("PLAIN", "sha256"), ("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
def test_authentication(mechanism: str, hash_name: str) -> None:
    async def main() -> None:
        async with broker(Doorkeeper(mechanism, hash_name)) as address:
            asked = connection(address, sasl(mechanism, "secret"))
            assert (await asked.ask(MetadataRequest(), MetadataResponse)).cluster_id == "by version 13"
            asked.close()
        async with broker(Doorkeeper(mechanism, hash_name)) as address:
            with pytest.raises(NoAnswer, match="authentication failed: wrong password"):
                await connection(address, sasl(mechanism, "guess")).ask(MetadataRequest(), MetadataResponse)

    run(main())


def test_a_mechanism_that_the_broker_does_not_take() -> None:
    async def main() -> None:
        async with broker(Doorkeeper("SCRAM-SHA-256")) as address:
            with pytest.raises(NoAnswer, match="it takes no SASL PLAIN, but SCRAM-SHA-256"):
                await connection(address, sasl("PLAIN", "secret")).ask(MetadataRequest(), MetadataResponse)

    run(main())


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


def test_properties_that_are_not_known() -> None:
    with pytest.raises(ValueError, match=r"security\.protocol=x is not one of"):
        Security.from_properties({"security.protocol": "x"})
    with pytest.raises(ValueError, match=r"sasl\.mechanism=GSSAPI is not one of"):
        Security.from_properties({"security.protocol": "sasl_ssl", "sasl.mechanism": "gssapi"})
    assert Security.from_properties({"security.protocol": "ssl"}).tls is not None
