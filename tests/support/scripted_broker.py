"""A broker that answers from a script of the test: frames in, frames out, over any transport."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping

from barnabas.common.errors import ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.index import request_class
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: The versions of each API key.
ALL_VERSIONS = {3: (0, 13), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
#: An answer: None closes the connection; bytes are the whole frame.
Answer = Message | bytes | None
Answers = Callable[[Message, int], Answer]


def reply(
    frame: bytes, answers: Answers, versions: Mapping[int, tuple[int, int]], seen: list[str] | None = None
) -> bytes | None:
    """Returns the whole frame that answers the body of another; ApiVersions is answered from `versions`."""
    # The frame begins with its size, like the broker's own frames.
    view = memoryview(len(frame).to_bytes(4, "big") + frame)[4:]
    key, version, correlation_id, _, position = decode_request_header(view)
    if seen is not None:
        seen.append(f"{key}v{version}")
    if key == 18 and version > versions[18][1]:
        return _framed(_versions(versions, ErrorCode.UNSUPPORTED_VERSION), key, 0, correlation_id)
    request, _ = codec.decode(request_class(key), version, view, position)
    answer = _versions(versions) if key == 18 else answers(request, version)
    return _framed(answer, key, version, correlation_id) if isinstance(answer, Message) else answer


def _versions(versions: Mapping[int, tuple[int, int]], code: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    row = ApiVersionsResponse.ApiVersion
    rows = [row(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()]
    return ApiVersionsResponse(error_code=code, api_keys=rows)


def _framed(answer: Message, key: int, version: int, correlation_id: int) -> bytes:
    body = bytearray(correlation_id.to_bytes(4, "big"))
    if response_header_version(key, version) == 1:
        body.append(0)
    codec.encode_into(answer, version, body)
    return len(body).to_bytes(4, "big") + bytes(body)


def metadata(request: Message, version: int) -> Answer:
    assert isinstance(request, MetadataRequest)
    return MetadataResponse(cluster_id=f"by version {version}")


class AuthenticatingBroker:
    """A server that authenticates alice with the password "secret"."""

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
        """Returns the messages of the server of RFC 5802, implemented without the client's code."""
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
