"""The blocking session with ZooKeeper of commands and tests, beside an independent client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from tests.support.zookeeper_process import OurZooKeeper

from barnabas.embedded.failures import Failure
from barnabas.embedded.zookeeper_session import ZookeeperSession, expire


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurZooKeeper]:
    server = OurZooKeeper(Path(tmp_path_factory.mktemp("zookeeper"))).start()
    yield server
    server.stop()


@pytest.fixture
def client(server: OurZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(f"127.0.0.1:{server.port}", timeout=8.0)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


def test_znodes_are_read_below_the_chroot(server: OurZooKeeper, client: KazooClient) -> None:
    client.create("/root/brokers/ids/1", b"one", makepath=True)
    with ZookeeperSession(f"127.0.0.1:{server.port}/root") as session:
        found = session.read("/brokers/ids/1")
        assert found is not None
        assert (found.data, found.stat.data_length, found.stat.version) == (b"one", 3, 0)
        assert session.children("/brokers") == ["ids"]
        assert session.read("/absent") is None
        assert session.children("/absent") == []


def test_an_expired_session_loses_its_ephemeral_znodes(server: OurZooKeeper, client: KazooClient) -> None:
    lost = threading.Event()
    client.add_listener(lambda state: lost.set() if state == KazooState.LOST else None)
    client.create("/broker", b"", ephemeral=True)
    connect = f"127.0.0.1:{server.port}"
    with ZookeeperSession(connect) as session:
        found = session.read("/broker")
        assert found is not None
        assert found.stat.ephemeral_owner == client.client_id[0]
        expire(connect, found.stat.ephemeral_owner)
        assert session.read("/broker") is None
    assert lost.wait(15)
    with pytest.raises(Failure, match="has expired"):
        expire(connect, found.stat.ephemeral_owner)


def test_no_server_is_named() -> None:
    with pytest.raises(Failure, match=r"cannot reach ZooKeeper at 127\.0\.0\.1:1 \(Connection refused\)"):
        ZookeeperSession("127.0.0.1:1")


@pytest.mark.parametrize("connect", ["one:port", "one,two:0/chroot", "::1"])
def test_what_is_not_a_connect_string_is_a_failure_in_one_line(connect: str) -> None:
    with pytest.raises(Failure, match=r"zookeeper\.connect"):
        ZookeeperSession(connect)
