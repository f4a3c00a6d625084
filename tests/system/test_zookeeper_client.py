"""Our ZooKeeper client on real sockets, with our server and with Apache's: requests, watches, and servers that die."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.zookeeper_async import loop_client
from tests.support.zookeeper_process import OurZooKeeper, client_of

from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import CreateFlags, ErrorCode, OpCode
from barnabas.zookeeper.wire.operations import Part
from kafka_jars import free_ports
from zookeeper_jars import ApacheZooKeeper

#: Sessions of the tests are short.
_PROPERTIES = {"tickTime": "500"}
Server = OurZooKeeper | ApacheZooKeeper


def _ours(directory: Path, port: int = 0) -> Server:
    return OurZooKeeper(directory, port=port, properties=_PROPERTIES)


def _apaches(directory: Path, port: int = 0) -> Server:
    return ApacheZooKeeper(directory, port=port, properties=_PROPERTIES)


@pytest.fixture(params=[_ours, pytest.param(_apaches, marks=pytest.mark.full)], ids=["ours", "apache"])
def new_server(request: pytest.FixtureRequest) -> Callable[..., Server]:
    made: Callable[..., Server] = request.param
    return made


def test_requests_and_watches_next_to_another_client(new_server: Callable[..., Server], tmp_path: Path) -> None:
    async def work(port: int) -> None:
        async with loop_client(f"127.0.0.1:{port}/kafka/one") as ours:
            client, ask = ours.client, ours.ask
            assert await ask(client.make_chroot) == 0
            made = [ask(client.create, f"/n{number}", b"x" * number, 0, r.OPEN_ACL) for number in range(200)]
            assert [reply.error for reply in await asyncio.gather(*made)] == [0] * 200
            assert len((await ask(client.children, "/")).names) == 200
            await ask(client.read, "/n1", watch=True)
            await ask(client.exists, "/new", watch=True)
            await ask(client.children, "/n2", watch=True)
            await asyncio.to_thread(_change_by_kazoo, port)
            await ours.receives("/n1 NODE_DATA_CHANGED", "/new NODE_CREATED", "/n2 NODE_CHILDREN_CHANGED")
            refused = await ask(client.multi, [_set("/n1", b"", 7), _set("/n2", b"")])
            assert refused.errors == (ErrorCode.BAD_VERSION, ErrorCode.RUNTIME_INCONSISTENCY)
            assert (await ask(client.read, "/n1")).znode == (b"by kazoo", 1)

    with new_server(tmp_path) as server:
        asyncio.run(work(server.port))


def _change_by_kazoo(port: int) -> None:
    with client_of(port) as other:
        other.set("/kafka/one/n1", b"by kazoo")
        other.create("/kafka/one/new")
        other.create("/kafka/one/n2/child")


def _set(path: str, data: bytes, version: int = -1) -> Part:
    return Part(OpCode.SET_DATA, r.SetDataRequest(path, data, version))


def test_a_session_continues_when_its_server_was_killed(new_server: Callable[..., Server], tmp_path: Path) -> None:
    """The session, its ephemeral znode and its watches are those of before; requests of the time between wait."""

    async def work(server: Server) -> None:
        async with loop_client(f"127.0.0.1:{server.port}") as ours:
            client, session_id = ours.client, ours.client.session_id
            await ours.ask(client.create, "/e", b"", CreateFlags.EPHEMERAL, r.OPEN_ACL)
            await ours.ask(client.exists, "/new", watch=True)
            server.kill()
            await ours.receives("disconnected")
            waits = asyncio.ensure_future(ours.ask(client.exists, "/e"))
            await asyncio.to_thread(server.start)
            await ours.receives("reconnected")
            assert client.session_id == session_id
            assert (await waits).stat.ephemeral_owner == session_id
            await ours.ask(client.create, "/new", b"", 0, r.OPEN_ACL)
            await ours.receives("/new NODE_CREATED")

    with new_server(tmp_path) as server:
        asyncio.run(work(server))


def test_a_server_that_hangs_is_left_for_another_connection(new_server: Callable[..., Server], tmp_path: Path) -> None:
    async def work(server: Server) -> None:
        assert server.process is not None
        async with loop_client(f"127.0.0.1:{server.port}", session_timeout_ms=3_000) as ours:
            replies: list[Any] = []
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                ours.client.exists("/", replies.append)
                await ours.receives("disconnected", timeout_s=10)
                assert replies[0].is_lost
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            await ours.receives("reconnected")

    with new_server(tmp_path) as server:
        asyncio.run(work(server))


def test_the_end_of_a_session_is_reported_and_the_next_one_works(
    new_server: Callable[..., Server], tmp_path: Path
) -> None:
    """Another client closes the session, as a server ends it: the client learns it when it comes back."""

    async def work(server: Server) -> None:
        async with loop_client(f"127.0.0.1:{server.port}") as ours:
            session = ours.client._session
            await ours.ask(ours.client.create, "/e", b"", CreateFlags.EPHEMERAL, r.OPEN_ACL)
            await asyncio.to_thread(_close_by_kazoo, server.port, (session.session_id, session._password))
            await ours.receives("disconnected", "expired")
            ours.client.open()
            await ours.receives("opened")
            assert (await ours.ask(ours.client.exists, "/e")).error == ErrorCode.NO_NODE

    with new_server(tmp_path) as server:
        asyncio.run(work(server))


def _close_by_kazoo(port: int, session: tuple[int, bytes]) -> None:
    with client_of(port, client_id=session):
        pass


def test_the_first_server_that_answers_is_used(new_server: Callable[..., Server], tmp_path: Path) -> None:
    async def work(port: int) -> None:
        dead = free_ports(2)
        servers = ",".join(f"127.0.0.1:{each}" for each in (*dead, port))
        async with loop_client(servers) as ours:
            assert not (await ours.ask(ours.client.exists, "/")).error

    with new_server(tmp_path) as server:
        asyncio.run(work(server.port))
