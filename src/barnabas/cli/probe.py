"""A short request to a port before a client library connects to it: does a Kafka broker answer there?"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Iterable
from typing import Final

CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 2.0

_CORRELATION_ID: Final = 0x62617262
#: ApiVersions, version 0, from a client without a name: every broker answers it, even before authentication.
_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
#: A longer response does not come from a broker; the responses of brokers are much shorter.
_ANSWER_BYTES_MAX: Final = 100_000
_TLS_ALERT: Final = 0x15

Address = tuple[str, int]


def probe(addresses: Iterable[Address], *, with_request: bool = True) -> dict[Address, str]:
    """Returns {} as soon as a Kafka broker answers at one of the addresses, else the reason for each of them.

    Without `with_request`, a connection is enough. The probe takes at most five seconds, and two if all addresses
    accept connections.
    """
    return asyncio.run(_probe(list(addresses), with_request))


async def _probe(addresses: list[Address], with_request: bool) -> dict[Address, str]:
    probes = {asyncio.ensure_future(_probe_one(address, with_request)): address for address in addresses}
    reasons: dict[Address, str] = {}
    waiting = set(probes)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for look in done:
            reason = look.result()
            if reason is None:
                for other in waiting:
                    other.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
                return {}
            reasons[probes[look]] = reason
    return reasons


async def _probe_one(address: Address, with_request: bool) -> str | None:
    """Checks one address: returns None if a Kafka broker answers, else the reason why not."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(*address), CONNECT_TIMEOUT_S)
    except TimeoutError:
        return f"no connection within {CONNECT_TIMEOUT_S:.0f} s"
    except OSError as error:
        return _reason(error)
    try:
        return await asyncio.wait_for(_request_versions(reader, writer), ANSWER_TIMEOUT_S) if with_request else None
    except TimeoutError:
        return f"the port accepts connections but does not answer within {ANSWER_TIMEOUT_S:.0f} s"
    except OSError as error:
        return f"not a Kafka broker: {_reason(error)}"
    finally:
        writer.transport.abort()


async def _request_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
    writer.write(_REQUEST)
    try:
        start = await reader.readexactly(8)
    except asyncio.IncompleteReadError as error:
        return _not_kafka(error.partial)
    size, correlation_id = struct.unpack(">ii", start)
    if correlation_id != _CORRELATION_ID or not 4 <= size <= _ANSWER_BYTES_MAX:
        return _not_kafka(start)
    return None


def _not_kafka(answer: bytes) -> str:
    if not answer:
        return "not a Kafka broker without TLS: it closes the connection"
    if answer[0] == _TLS_ALERT:
        return "it speaks TLS: add --property security.protocol=SSL"
    if answer.startswith((b"HTTP", b"<")):
        return "not a Kafka broker: it speaks HTTP"
    return f"not a Kafka broker: it answers {answer[:8]!r}"


def _reason(error: OSError) -> str:
    # asyncio's text says "Connect call failed" and repeats the address.
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)
