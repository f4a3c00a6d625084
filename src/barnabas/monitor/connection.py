"""A connection to one broker: asks, and waits for the answer. Dials when there is something to ask, and again after
whatever went wrong; TLS and SASL (PLAIN, SCRAM) by librdkafka's property names.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas import __version__
from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.monitor.sasl import scram_client
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.wire import skip_tagged_fields

M = TypeVar("M", bound=Message)
Address = tuple[str, int]

_FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
_API_VERSIONS: Final = 18
#: Every broker since Kafka 2.4 answers this one; an older one answers version 0 and names what it has.
_FIRST_ASKED_VERSION: Final = 3


class NoAnswer(Exception):
    """The broker could not be asked; the text says why."""


class Security(NamedTuple):
    """How to come in: from a client's properties."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """ValueError for what is not supported."""
        protocol = properties.get("security.protocol", "plaintext").lower()
        if protocol not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
            raise ValueError(f"security.protocol={protocol} is not one of plaintext, ssl, sasl_plaintext, sasl_ssl")
        tls = _tls(properties) if protocol.endswith("ssl") else None
        if not protocol.startswith("sasl"):
            return cls(tls)
        mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "PLAIN")).upper()
        if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            raise ValueError(f"sasl.mechanism={mechanism} is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")
        return cls(tls, mechanism, properties.get("sasl.username", ""), properties.get("sasl.password", ""))


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
    if properties.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true") == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = properties.get("ssl.certificate.location")
    if certificate is not None:
        context.load_cert_chain(certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password"))
    return context


class BrokerConnection:
    """One request at a time. `ask` raises NoAnswer, after which the next one dials anew."""

    def __init__(self, address: Address, security: Security, *, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._security = security
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0

    async def ask(
        self, request: Message, response: type[M], *, version_max: int | None = None, timeout_s: float | None = None
    ) -> M:
        """The answer, in the highest version that both know."""
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s or self._timeout_s):
                    if self._streams is not None:
                        try:
                            return await self._exchange(request, response, self._version(request, version_max))
                        except (ConnectionError, EOFError):
                            self.close()  # it may have hung up long ago, and be there again
                    await self._open()
                    return await self._exchange(request, response, self._version(request, version_max))
            except (OSError, EOFError, DecodeError, TimeoutError) as error:
                self.close()
                raise NoAnswer(_reason(error)) from error
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()

    def knows(self, request: type[Message]) -> bool:
        """Whether the broker has this API; after the first answer."""
        return request.API_KEY in self._versions

    async def _open(self) -> None:
        host, port = self.address
        tls = self._security.tls
        self._streams = await asyncio.open_connection(host, port, ssl=tls, server_hostname=host if tls else None)
        self._versions = {}
        answer = await self._ask_versions()
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        if self._security.mechanism is not None:
            await self._authenticate(self._security.mechanism)

    async def _ask_versions(self) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="barnabas-monitor", client_software_version=__version__)
        data, position = await self._send(request, _FIRST_ASKED_VERSION)
        # An error comes in version 0, whichever was asked for.
        if int.from_bytes(data[4:6], "big") != ErrorCode.UNSUPPORTED_VERSION:
            return codec.decode(ApiVersionsResponse, _FIRST_ASKED_VERSION, data, position)[0]
        return await self._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0)

    async def _authenticate(self, mechanism: str) -> None:
        shaken = await self._exchange(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)
        if shaken.error_code:
            raise NoAnswer(f"it takes no SASL {mechanism}, but {', '.join(shaken.mechanisms) or 'none'}")
        username, password = self._security.username, self._security.password
        if mechanism == "PLAIN":
            await self._prove(f"\0{username}\0{password}".encode())
            return
        client = scram_client(mechanism, username, password)
        server_first = await self._prove(client.first())
        try:
            client.check(await self._prove(client.final(server_first)))
        except ValueError as error:
            raise NoAnswer(f"SASL {mechanism}: {error}") from error

    async def _prove(self, data: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=data)
        answer = await self._exchange(request, SaslAuthenticateResponse, self._version(request, None))
        if answer.error_code:
            raise NoAnswer(f"authentication failed: {answer.error_message or ErrorCode(answer.error_code).name}")
        return bytes(answer.auth_bytes)

    def _version(self, request: Message, version_max: int | None) -> int:
        assert request.API_KEY is not None, "only requests are asked"
        low, high = self._versions.get(request.API_KEY, (0, -1))
        own_low, own_high = request.VERSIONS
        high = min(high, own_high, own_high if version_max is None else version_max)
        if high < max(low, own_low):
            raise NoAnswer(f"it does not know {type(request).__name__.removesuffix('Request')} as it is needed")
        return high

    async def _exchange(self, request: Message, response: type[M], version: int) -> M:
        data, position = await self._send(request, version)
        return codec.decode(response, version, data, position)[0]

    async def _send(self, request: Message, version: int) -> tuple[bytes, int]:
        """The frame of the answer and where its body begins."""
        assert self._streams is not None, "connected"
        assert request.API_KEY is not None, "only requests are sent"
        reader, writer = self._streams
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(
            request_api_key=request.API_KEY,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        frame = codec.encode(header, request_header_version(request.API_KEY, version))
        codec.encode_into(request, version, frame)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(4), "big")
        if not 4 <= size <= _FRAME_BYTES_MAX:
            raise DecodeError(f"an answer of {size} bytes: is this a Kafka listener without TLS or SASL?")
        data = await reader.readexactly(size)
        if int.from_bytes(data[:4], "big") != correlation_id:
            raise DecodeError("an answer to another question")
        if response_header_version(request.API_KEY, version) == 1:
            return data, skip_tagged_fields(memoryview(data), 4)
        return data, 4


def _reason(error: BaseException) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "it hung up"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
