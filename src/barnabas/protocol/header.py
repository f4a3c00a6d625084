"""Request and response headers: the version for each (API key, version), and a fast decoder of request headers.

    request v0   api key, version, correlation id                 ControlledShutdown 0 only
    request v1   ... and client id (nullable, int16 length)
    request v2   ... and tagged fields; the client id keeps its old form (KIP-482)
    response v0  correlation id
    response v1  ... and tagged fields

Flexible versions of an API have flexible headers, but the ApiVersions response always has v0: a client must be able to
read it before it knows which versions the broker supports (KIP-511).
"""

from __future__ import annotations

import struct

from barnabas.common.errors import DecodeError
from barnabas.protocol.messages.index import FLEXIBLE_SINCE
from barnabas.protocol.wire import Buffer, skip_tagged_fields

_API_VERSIONS = 18
_CONTROLLED_SHUTDOWN = 7
_FIXED = struct.Struct(">hhih")
_WITHOUT_CLIENT_ID = struct.Struct(">hhi")


def request_header_version(api_key: int, api_version: int) -> int:
    """Returns the version of the request's header. Raises DecodeError for an unknown key."""
    flexible_since = FLEXIBLE_SINCE.get(api_key)
    if flexible_since is None:
        raise DecodeError(f"unknown API key {api_key}")
    if api_version >= flexible_since:
        return 2
    return 0 if api_key == _CONTROLLED_SHUTDOWN and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Returns the version of the response's header. Raises DecodeError for an unknown key."""
    if api_key == _API_VERSIONS:
        return 0
    return 1 if request_header_version(api_key, api_version) == 2 else 0


def decode_request_header(data: Buffer, offset: int = 0) -> tuple[int, int, int, str | None, int]:
    """Returns (api key, version, correlation id, client id, offset of the body). Raises DecodeError."""
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(data, offset)
    except struct.error:
        return _decode_shortest_header(data, offset)
    version = request_header_version(api_key, api_version)
    if version == 0:
        return _decode_shortest_header(data, offset)
    offset += 10
    client_id = None
    if length >= 0:
        end = offset + length
        if end > len(data):
            raise DecodeError(f"client id of {length} bytes, but only {len(data) - offset} are left", offset)
        try:
            client_id = str(data[offset:end], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("client id is not UTF-8", offset) from error
        offset = end
    if version == 2:
        offset = skip_tagged_fields(data, offset)
    return api_key, api_version, correlation_id, client_id, offset


def _decode_shortest_header(data: Buffer, offset: int) -> tuple[int, int, int, str | None, int]:
    try:
        api_key, api_version, correlation_id = _WITHOUT_CLIENT_ID.unpack_from(data, offset)
    except struct.error:
        raise DecodeError("request header cut off", offset) from None
    if request_header_version(api_key, api_version) != 0:
        raise DecodeError("request header cut off", offset)
    return api_key, api_version, correlation_id, None, offset + 8
