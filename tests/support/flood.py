"""Clients that use up a server's memory, in a separate process, so that the measurement next to it is not disturbed:

    python -m tests.support.flood PORT announce CONNECTIONS     announce 90 MB each and send 200 kB
    python -m tests.support.flood PORT readers CONNECTIONS      request 50 MB of topic `flood` 20 times, read nothing
    python -m tests.support.flood PORT members CONNECTIONS      join groups as 100 members each, of 50 kB of metadata

It prints `ready` when everything is sent or refused, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ANNOUNCED_BYTES = 90_000_000
SENT_BYTES = 200_000
FETCHES = 20
MEMBERS = 100
METADATA_BYTES = 50_000
TOPIC = b"flood"


async def _announce(port: int) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">ihhih", ANNOUNCED_BYTES, 0, 7, 1, -1) + bytes(SENT_BYTES))
    with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
        await asyncio.wait_for(writer.drain(), 2)
    return writer


async def _read_nothing(port: int) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    body = struct.pack(">iiiib", -1, 0, 1, 50_000_000, 0)
    body += struct.pack(f">ih{len(TOPIC)}siiqi", 1, len(TOPIC), TOPIC, 1, 0, 0, 50_000_000)
    for number in range(FETCHES):
        frame = struct.pack(">hhih", 1, 4, number, -1) + body
        writer.write(struct.pack(">i", len(frame)) + frame)
    with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
        await asyncio.wait_for(writer.drain(), 2)
    return writer


def _text(text: str) -> bytes:
    return struct.pack(f">h{len(text)}s", len(text), text.encode())


async def _join(port: int) -> asyncio.StreamWriter:
    """Joins members that are alone in their groups, are never synced, and end with their sessions."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    find = struct.pack(">hhih", 10, 1, 0, -1) + _text("flood") + b"\0"
    error = -1
    while error:  # the coordinators do not exist immediately
        writer.write(struct.pack(">i", len(find)) + find)
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        error = int.from_bytes(answer[8:10], "big")
        await asyncio.sleep(0.5)
    name = writer.transport.get_extra_info("sockname")[1]
    for number in range(MEMBERS):
        body = _text(f"flood-{name}-{number}") + struct.pack(">ii", 6_000, 60_000) + _text("") + _text("consumer")
        body += struct.pack(">i", 1) + _text("range") + struct.pack(">i", METADATA_BYTES) + bytes(METADATA_BYTES)
        frame = struct.pack(">hhih", 11, 2, number, -1) + body
        writer.write(struct.pack(">i", len(frame)) + frame)
    for _ in range(MEMBERS):
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    return writer


_ATTACKS = {"announce": _announce, "readers": _read_nothing, "members": _join}


async def _flood(port: int, kind: str, count: int) -> None:
    attack = _ATTACKS[kind]
    kept: list[asyncio.StreamWriter] = []
    for start in range(0, count, 100):
        tasks = (attack(port) for _ in range(min(100, count - start)))
        kept += [
            each for each in await asyncio.gather(*tasks, return_exceptions=True) if not isinstance(each, BaseException)
        ]
    print("ready", len(kept), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for writer in kept:
        writer.transport.abort()


@contextlib.contextmanager
def flooding(port: int, kind: str, count: int) -> Iterator[None]:
    """Runs a flood, which holds the memory that it obtained until the context ends."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.support.flood", str(port), kind, str(count)]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline().startswith(b"ready")
            yield
        finally:
            process.stdin.close()
            process.wait(60)


if __name__ == "__main__":
    asyncio.run(_flood(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
