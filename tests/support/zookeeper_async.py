"""Our ZooKeeper client on the real host: sockets and the clock of an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.zookeeper_links import RecordingListener

from barnabas.server.host import ServerHost
from barnabas.zookeeper.client.hosts import parse_connect_string
from barnabas.zookeeper.client.zookeeper_client import ClientSettings, ZooKeeperClient


class LoopClient:
    """A client, with the events that it received as lines of text."""

    def __init__(self, host: ServerHost, servers: str, **settings: Any) -> None:
        self.listener = RecordingListener()
        wanted = {"session_timeout_ms": 6_000} | settings
        self.client = ZooKeeperClient(host, ClientSettings(parse_connect_string(servers), **wanted), self.listener)

    async def ask(self, method: Callable[..., None], *arguments: Any, **options: Any) -> Any:
        """Makes a request and returns its reply."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        method(*arguments, done.set_result, **options)
        return await asyncio.wait_for(done, 60)

    async def receives(self, *lines: str, timeout_s: float = 30) -> None:
        """Waits for events, and checks that these are exactly those since the last call."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while len(self.listener.lines) < len(lines) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        assert self.listener.take() == list(lines)

    async def close(self) -> None:
        done = asyncio.Event()
        self.client.close(done.set)
        await asyncio.wait_for(done.wait(), 30)


@asynccontextmanager
async def loop_client(servers: str, **settings: Any) -> AsyncIterator[LoopClient]:
    """Yields a client with a session, which is closed at the end."""
    host = ServerHost(asyncio.get_running_loop())
    client = LoopClient(host, servers, **settings)
    try:
        client.client.open()
        await client.receives("opened")
        yield client
        await client.close()
    finally:
        host.close()
