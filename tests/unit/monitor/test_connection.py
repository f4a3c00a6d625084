"""Connections of the monitor to a scripted broker, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import pytest
from tests.support.scripted_broker import ALL_VERSIONS, Answer, Answers, AuthenticatingBroker, metadata, reply

from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer, Repeated, Security
from barnabas.protocol.message import Message
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

TLS = Path(__file__).resolve().parents[2] / "data" / "tls"
VERSIONS = dict(ALL_VERSIONS)


def run(main: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 120))


@contextlib.asynccontextmanager
async def broker(
    answers: Answers, seen: list[str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    """Serves a scripted broker and yields its address. It answers ApiVersions by itself."""
    open_writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                answer = reply(frame, answers, VERSIONS, seen)
                if answer is None:
                    writer.close()
                    return
                writer.write(answer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        for writer in open_writers:
            writer.close()


def connection(
    address: tuple[str, int], properties: dict[str, str] | None = None, timeout_s: float = 60.0
) -> BrokerConnection:
    security = Security.from_properties(properties or {})
    return BrokerConnection(address, security, client_id="test", timeout_s=timeout_s)


def test_asks_in_the_highest_version_that_both_know() -> None:
    async def main() -> None:
        seen: list[str] = []
        async with broker(metadata, seen) as address:
            requested = connection(address)
            assert (await requested.call(MetadataRequest(), MetadataResponse)).cluster_id == "by version 13"
            assert (
                await requested.call(MetadataRequest(), MetadataResponse, version_max=9)
            ).cluster_id == "by version 9"
            assert seen == ["18v3", "3v13", "3v9"]
            requested.close()

    run(main())


def test_a_broker_that_hung_up_is_dialled_again_within_the_same_question() -> None:
    async def main() -> None:
        calls = 0

        def hangs_up_on_the_second(request: Message, version: int) -> Answer:
            nonlocal calls
            calls += 1
            return None if calls == 2 else metadata(request, version)

        async with broker(hangs_up_on_the_second) as address:
            requested = connection(address)
            await requested.call(MetadataRequest(), MetadataResponse)
            await requested.call(MetadataRequest(), MetadataResponse)
            assert calls == 3
            requested.close()

    run(main())


def test_a_repeated_request_is_made_once_for_each_connection_and_the_same_answer_is_no_news() -> None:
    async def main() -> None:
        calls = 0
        made: list[Message] = []

        def build() -> Message:
            made.append(MetadataRequest())
            return made[-1]

        def hangs_up_on_the_fourth(request: Message, version: int) -> Answer:
            nonlocal calls
            calls += 1
            return None if calls == 4 else metadata(request, version)

        async with broker(hangs_up_on_the_fourth) as address:
            asked, repeated = connection(address), Repeated(build, MetadataResponse)
            first = await asked.call_again(repeated)
            assert first is not None
            assert first.cluster_id == "by version 13"
            assert await asked.call_again(repeated) is None
            assert await asked.call_again(repeated) is None
            assert len(made) == 1
            assert await asked.call_again(repeated) is None
            assert (calls, len(made)) == (5, 2), "another connection can have other versions"
            asked.close()

    run(main())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "it closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is this a Kafka listener"),
        (b"\0\0\0\x08\x7f\xff\xff\xff\0\0\0\0", "another request"),
        (b"", "no response in time"),
    ],
)
def test_why_there_is_no_answer(answer: Answer, why: str) -> None:
    async def main() -> None:
        async with broker(lambda request, version: answer) as address:
            with pytest.raises(NoAnswer, match=why):
                await connection(address, timeout_s=0.5).call(MetadataRequest(), MetadataResponse)

    run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with broker(metadata) as address:
            pass
        with pytest.raises(NoAnswer, match="connection refused"):
            await connection(address).call(MetadataRequest(), MetadataResponse)

    run(main())


def test_an_api_that_the_broker_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(VERSIONS, 3)

    async def main() -> None:
        async with broker(metadata) as address:
            requested = connection(address)
            with pytest.raises(NoAnswer, match="does not support Metadata"):
                await requested.call(MetadataRequest(), MetadataResponse)
            assert not requested.knows(MetadataRequest)
            requested.close()

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
                requested = connection(address, properties)
                assert (await requested.call(MetadataRequest(), MetadataResponse)).cluster_id == "by version 13"
                requested.close()
            with pytest.raises(NoAnswer, match="certificate"):
                await connection(address, {"security.protocol": "ssl"}).call(MetadataRequest(), MetadataResponse)

    run(main())


def test_no_tls_where_there_should_be() -> None:
    async def main() -> None:
        async with broker(metadata) as address:
            with pytest.raises(NoAnswer):
                requested = connection(address, {"security.protocol": "ssl"}, timeout_s=1.0)
                await requested.call(MetadataRequest(), MetadataResponse)

    run(main())


def sasl(mechanism: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize(
    ("mechanism", "hash_name"), [("PLAIN", "sha256"), ("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")]
)
def test_authentication(mechanism: str, hash_name: str) -> None:
    async def main() -> None:
        async with broker(AuthenticatingBroker(mechanism, hash_name)) as address:
            requested = connection(address, sasl(mechanism, "secret"))
            assert (await requested.call(MetadataRequest(), MetadataResponse)).cluster_id == "by version 13"
            requested.close()
        async with broker(AuthenticatingBroker(mechanism, hash_name)) as address:
            with pytest.raises(NoAnswer, match=r"it refuses the login of alice with .*: wrong password"):
                await connection(address, sasl(mechanism, "guess")).call(MetadataRequest(), MetadataResponse)

    run(main())


def test_a_mechanism_that_the_broker_does_not_take() -> None:
    async def main() -> None:
        async with broker(AuthenticatingBroker("SCRAM-SHA-256")) as address:
            with pytest.raises(NoAnswer, match="it does not offer SASL PLAIN, but SCRAM-SHA-256"):
                await connection(address, sasl("PLAIN", "secret")).call(MetadataRequest(), MetadataResponse)

    run(main())


def test_properties_that_are_not_known() -> None:
    with pytest.raises(ValueError, match=r"security\.protocol=x: it is not one of"):
        Security.from_properties({"security.protocol": "x"})
    with pytest.raises(ValueError, match=r"sasl\.mechanism=gssapi: it is not one of"):
        Security.from_properties({"security.protocol": "sasl_ssl", "sasl.mechanism": "gssapi"})
    assert Security.from_properties({"security.protocol": "ssl"}).tls is not None
