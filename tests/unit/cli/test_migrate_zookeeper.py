"""`barnabas migrate-zookeeper` on files: ZooKeeper's with a recorded tree, and the log directories of its brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.recorded_znodes import recorded_trees
from tests.support.zookeeper_files import FilesWorld

from barnabas.cli.app import run
from barnabas.raft.snapshots import decode_snapshot
from barnabas.storage.checkpoints import MetaProperties, encode_meta_properties

_CLUSTER = "mXlaWKrERa-ZxMUJhTZPXw"


def _zookeeper(folder: Path, step: str = "35-cluster-stopped", chroot: str = "", **changed: bytes) -> Path:
    """Writes a data directory of ZooKeeper with the tree of a step, and returns it."""
    world = FilesWorld()
    if chroot:
        world.create(chroot)
    for path, znode in sorted(recorded_trees()[step].items()):
        if path != "/" and not path.startswith("/zookeeper"):
            data = changed.get(path.rpartition("/")[2], znode.data)
            world.create(chroot + path, data if data is not None else b"")
    world.sync()
    world.stop()
    target = folder / "zookeeper" / "version-2"
    target.mkdir(parents=True)
    for name in world.names():
        (target / name).write_bytes(world.read(name))
    return target.parent


def _log_directory(folder: Path, name: str, node: int = 1, cluster: str = _CLUSTER) -> Path:
    directory = folder / name
    (directory / "orders-0").mkdir(parents=True)
    (directory / "meta.properties").write_bytes(encode_meta_properties(MetaProperties(0, node, cluster, None), 0))
    return directory


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _migrate(*arguments: object) -> int:
    return run(["migrate-zookeeper", *map(str, arguments)])


def test_a_broker_is_migrated_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zookeeper = _zookeeper(tmp_path)
    first, second = _log_directory(tmp_path, "a"), _log_directory(tmp_path, "b")
    arguments = ("--data-dir", zookeeper, "--log-dirs", f"{first},{second}")
    before = _files(tmp_path)
    assert _migrate(*arguments, "--dry-run") == 0
    assert "Nothing was changed" in capsys.readouterr().out
    assert _files(tmp_path) == before
    assert _migrate(*arguments) == 0
    out = capsys.readouterr().out
    assert f"Cluster {_CLUSTER}" in out
    assert "4 topics, 9 partitions" in out
    assert "1 SCRAM credentials" in out
    assert "next producer id is 1000" in out
    for directory in (first, second):
        lines = (directory / "meta.properties").read_text().splitlines()
        assert {"version=1", "node.id=1", f"cluster.id={_CLUSTER}"} <= set(lines)
        assert decode_snapshot((directory / "bootstrap.checkpoint").read_bytes()).records
    after = _files(tmp_path)
    assert {path: data for path, data in after.items() if path.startswith("zookeeper")} == {
        path: data for path, data in before.items() if path.startswith("zookeeper")
    }
    assert _migrate(*arguments) == 0
    assert "already migrated" in capsys.readouterr().out
    assert _files(tmp_path) == after


def test_a_new_controller_gets_the_same_records_as_the_broker(tmp_path: Path) -> None:
    zookeeper = _zookeeper(tmp_path, chroot="/kafka")
    broker, controller = _log_directory(tmp_path, "a"), tmp_path / "c"
    controller.mkdir()
    shared = ("--data-dir", zookeeper, "--chroot", "/kafka", "--log-dirs")
    assert _migrate(*shared, broker) == 0
    assert _migrate(*shared, controller, "--node-id", 3000, "--release-version", "4.1") == 0
    written = [decode_snapshot((each / "bootstrap.checkpoint").read_bytes()).records for each in (broker, controller)]
    assert written[0] == written[1]
    assert "node.id=3000" in (controller / "meta.properties").read_text()


def test_brokers_that_were_registered_and_pending_deletions_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zookeeper = _zookeeper(tmp_path, "32-topic-deletion-pending")
    assert _migrate("--data-dir", zookeeper, "--log-dirs", _log_directory(tmp_path, "a")) == 0
    out = capsys.readouterr().out
    assert "Topic orders is being deleted and is not migrated." in out
    assert "Brokers 0, 2 are registered" in out


def test_a_broken_znode_stops_the_migration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zookeeper = _zookeeper(tmp_path, duo=b"{")
    before = _files(tmp_path)
    directory = _log_directory(tmp_path, "a")
    assert _migrate("--data-dir", zookeeper, "--log-dirs", directory) == 1
    shown = capsys.readouterr()
    assert "Problem: znode /brokers/topics/duo: is not JSON" in shown.out
    assert "error: 1 znode would be lost; nothing was changed" in shown.err
    assert not (directory / "bootstrap.checkpoint").exists()
    assert before.items() <= _files(tmp_path).items()


def test_the_folder_above_the_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`up` keeps the znodes of its server in DIR/zookeeper/data."""
    zookeeper = _zookeeper(tmp_path)
    folder = tmp_path / "up" / "zookeeper"
    folder.mkdir(parents=True)
    zookeeper.rename(folder / "data")
    assert _migrate("--data-dir", folder, "--log-dirs", _log_directory(tmp_path, "a")) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: {folder} is not a data directory of ZooKeeper: it has no folder version-2",
        f"{folder / 'data'} is one",
    ]


def test_wrong_places_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zookeeper = _zookeeper(tmp_path)
    directory = _log_directory(tmp_path, "a", cluster="other")
    for arguments, problem in (
        (("--data-dir", tmp_path, "--log-dirs", directory), "is not a data directory of ZooKeeper"),
        (("--data-dir", zookeeper, "--log-dirs", directory, "--chroot", "/x"), "below /x has no Kafka cluster"),
        (("--data-dir", zookeeper, "--log-dirs", directory), "belongs to cluster other"),
        (("--log-dirs", directory), "one of --connect and --data-dir is needed"),
        (("--connect", "127.0.0.1:1", "--log-dirs", directory), "cannot reach ZooKeeper at 127.0.0.1:1"),
        (("--connect", "a:1", "--chroot", "/x", "--log-dirs", directory), "--connect contains the chroot"),
        (("--data-dir", zookeeper, "--log-dirs", ","), "--log-dirs names no directory"),
        (("--data-dir", zookeeper, "--log-dirs", directory, "-r", "9.9"), "unknown release version 9.9"),
    ):
        assert _migrate(*arguments) == 1
        assert problem in capsys.readouterr().err
