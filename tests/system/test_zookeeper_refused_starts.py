"""Brokers in ZooKeeper mode that must not start, as processes: one line each, which says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl
from tests.support.zookeeper_mode import OurBroker
from tests.support.zookeeper_process import OurZooKeeper, client_of

CRITICAL, WRONG, REFUSED = 70, 2, 1


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurZooKeeper]:
    with OurZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def client(zookeeper: OurZooKeeper) -> Iterator[KazooClient]:
    with client_of(zookeeper.port) as client:
        yield client


def refused(folder: Path, connect: str, **properties: str) -> str:
    """Starts a broker that ends by itself. Returns its one line."""
    changed = {key.replace("_", "."): value for key, value in properties.items()}
    broker = OurBroker(folder, connect, 1, properties=changed)
    broker.launch()
    assert broker.process is not None
    code = broker.process.wait(60)
    assert code in (CRITICAL, WRONG, REFUSED), code
    assert "Traceback" not in broker.log
    lines = [line for line in broker.log.splitlines() if " INFO " not in line]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("version", ["3.3", "2.8-IV1", "4.0", "nonsense"])
def test_an_inter_broker_protocol_version_out_of_range(zookeeper: OurZooKeeper, tmp_path: Path, version: str) -> None:
    line = refused(tmp_path, f"127.0.0.1:{zookeeper.port}/a", inter_broker_protocol_version=version)
    assert "inter.broker.protocol.version" in line
    assert version in line
    assert "3.4" in line
    assert "3.9" in line


def test_roles_next_to_zookeeper(zookeeper: OurZooKeeper, tmp_path: Path) -> None:
    line = refused(tmp_path, f"127.0.0.1:{zookeeper.port}/a", process_roles="broker")
    assert "process.roles=broker and zookeeper.connect=" in line
    assert "exclude each other" in line


def test_the_directory_of_another_cluster(zookeeper: OurZooKeeper, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=Z29sZGVuLWNsdXN0ZXItMQ\n")
    line = refused(tmp_path, f"127.0.0.1:{zookeeper.port}/b")
    assert "doesn't match stored clusterId Some(Z29sZGVuLWNsdXN0ZXItMQ)" in line


@pytest.mark.full
def test_an_id_that_is_taken(zookeeper: OurZooKeeper, client: KazooClient, tmp_path: Path) -> None:
    client.create("/c/brokers/ids/1", b'{"version":5,"endpoints":[]}', ephemeral=True, makepath=True)
    connect = f"127.0.0.1:{zookeeper.port}/c"
    line = refused(tmp_path, connect, **{"zookeeper.session.timeout.ms": "4000"})
    assert "broker.id=1 is taken" in line
    assert "/brokers/ids/1" in line


def test_a_chroot_that_must_not_be_created(zookeeper: OurZooKeeper, client: KazooClient, tmp_path: Path) -> None:
    client.create("/closed", b"", acl=[make_acl("world", "anyone", read=True)])
    line = refused(tmp_path, f"127.0.0.1:{zookeeper.port}/closed/kafka")
    assert f"the chroot of 127.0.0.1:{zookeeper.port}/closed/kafka cannot be created: NO_AUTH" in line
