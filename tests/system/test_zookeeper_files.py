"""The files of our ZooKeeper server and of Apache's, read by the other one and by Apache's tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.security import make_acl, make_digest_acl
from tests.support.zookeeper_process import OurZooKeeper, client_of, tree_of

from zookeeper_jars import ApacheZooKeeper, four_letter_word, run_tool

pytestmark = pytest.mark.full

_APACHE = {"extendedTypesEnabled": "true"}


def _work(client: KazooClient, root: str) -> None:
    """Does one of everything that a log can have, below `root`."""
    client.create(root, b"")
    client.create(f"{root}/data", b"first")
    client.set(f"{root}/data", b"second")
    client.create(f"{root}/\u00e9\u4e2d", b"\x00\xff" * 100)
    for _ in range(5):
        client.create(f"{root}/seq-", b"", sequence=True)
    client.delete(f"{root}/seq-{2:010d}" if client.exists(f"{root}/seq-{2:010d}") else f"{root}/seq-{3:010d}")
    client.create(
        f"{root}/closed", b"s", acl=[make_digest_acl("u", "p", all=True), make_acl("world", "anyone", read=1)]
    )
    client.set_acls(f"{root}/data", [make_acl("world", "anyone", all=True), make_acl("ip", "127.0.0.1", read=True)])
    together = client.transaction()
    together.create(f"{root}/multi", b"m")
    together.create(f"{root}/multi/child", b"c")
    together.set_data(f"{root}/data", b"by multi")
    together.check(f"{root}/data", 2)
    assert not [each for each in together.commit() if isinstance(each, Exception)]
    failing = client.transaction()
    failing.create(f"{root}/never", b"")
    failing.check(f"{root}/data", 99)
    assert isinstance(failing.commit()[1], BadVersionError)
    with pytest.raises(NodeExistsError):
        client.create(f"{root}/data")
    with pytest.raises(NoNodeError):
        client.delete(f"{root}/nothing")
    client.create(f"{root}/mine", b"e", ephemeral=True)


def _session_that_ends(port: int, root: str) -> None:
    with client_of(port) as other:
        other.create(f"{root}/theirs", b"", ephemeral=True)


def test_apaches_formatters_read_our_log_and_snapshots(tmp_path: Path) -> None:
    with OurZooKeeper(tmp_path / "ours", properties={"snapCount": "30"}) as server, client_of(server.port) as client:
        _work(client, "/a")
        _session_that_ends(server.port, "/a")
        for number in range(60):
            client.set("/a/data", b"%d" % number)
        last_zxid = client.last_zxid
        paths = set(tree_of(client))
        server.kill()

    logs = sorted(server.data.glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
    snapshots = sorted(server.data.glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))
    assert len(logs) > 2
    assert len(snapshots) > 2
    zxids = []
    for log in logs:
        shown = run_tool("org.apache.zookeeper.server.persistence.TxnLogToolkit", "-d", str(log))
        zxids += [int(zxid, 16) for zxid in re.findall(r"zxid 0x([0-9a-f]+) ", shown.stdout)]
        assert "CRC ERROR" not in shown.stdout
        assert re.search(r"EOF reached after \d+ txns", shown.stdout), shown.stdout + shown.stderr
    assert zxids == list(range(1, last_zxid + 1))
    for snapshot in snapshots:
        shown = run_tool("org.apache.zookeeper.server.SnapshotFormatter", str(snapshot))
        assert shown.returncode == 0, shown.stderr
        listed = set(re.findall(r"^(/.*)$", shown.stdout, re.MULTILINE))
        assert listed - paths <= {"/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/a/theirs"}
    assert paths <= listed


@pytest.mark.parametrize("way", ["ours to Apache's", "Apache's to ours"])
def test_a_folder_continues_under_the_other_server(tmp_path: Path, way: str) -> None:
    ours = OurZooKeeper(tmp_path / "server", properties={"snapCount": "50"})
    apache = ApacheZooKeeper(tmp_path / "server", port=ours.port, properties={**_APACHE, "snapCount": "50"})
    first, second = (ours, apache) if way == "ours to Apache's" else (apache, ours)

    with first:
        client = KazooClient(f"127.0.0.1:{ours.port}", timeout=20)
        client.start(timeout=15)
        _work(client, "/a")
        _session_that_ends(ours.port, "/a")
        for number in range(40):
            client.set("/a/data", b"%d" % number)
        before, session = tree_of(client), client.client_id
        first.kill()
        # Without a server, the client ends without ending its session.
        client.stop()
        client.close()
    # The session of the first server lives on, with its password and its ephemeral node.
    with second, client_of(ours.port, client_id=session, timeout=20) as continued:
        assert continued.client_id == session
        assert tree_of(continued) == before
        assert "zk_digest_mismatches_count\t0" in four_letter_word(ours.port, "mntr") or second is ours
        _work(continued, "/b")
        before = tree_of(continued)
        second.kill()
    with first, client_of(ours.port) as again:
        assert tree_of(again) == before
        four = four_letter_word(ours.port, "mntr")
    if first is apache:
        assert "zk_digest_mismatches_count\t0" in four
    else:
        assert "the tree differs" not in ours.log
