"""ZooKeeper's zkCli and Kafka's zookeeper-shell print of our server what they print of Apache's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.support.zookeeper_process import OurZooKeeper

import kafka39_jars
import zookeeper_jars
from zookeeper_jars import ApacheZooKeeper

pytestmark = pytest.mark.full

ZK_CLI: Final = "org.apache.zookeeper.ZooKeeperMain"
ZOOKEEPER_SHELL: Final = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
COMMANDS: Final = """\
create /a one
create -s /a/s- two
create -e /a/e mine
create -c /c
create -t 100000 /ttl t
ls -R /
ls -s /a
ls -w /a
create /a/w
stat -w /a
set /a three
get -s /a
get -w /a
set -v 7 /a bad
set -s -v 1 /a four
getAcl /a
getAcl -s /zookeeper/config
addauth digest bob:pw
create /secret s auth::crwda
getAcl /secret
setAcl /a world:anyone:r
getAcl -s /a
set /a denied
delete /a
deleteall /a
stat /missing
setquota -n 3 /c
listquota /c
delquota /c
config
sync /c
getEphemerals
getAllChildrenNumber /
removewatches /a
addWatch -m PERSISTENT_RECURSIVE /c
create /c/x
create /c/x/y
delete /c/x/y
stat /c
deleteall /c
close
"""
_PROMPT: Final = re.compile(r"\[zk: [^\]]*\] \d*\]? ?")
_VARIES: Final = re.compile(r"127\.0\.0\.1:\d+|(?<=time = ).*")


class Printed(NamedTuple):
    """The output of a shell. Events come from another thread: their places between the other lines vary."""

    lines: list[str]
    events: list[str]
    errors: list[str]


def printed(main: str, port: int) -> Printed:
    jars = zookeeper_jars if main == ZK_CLI else kafka39_jars
    done = jars.run_tool(main, "-server", f"127.0.0.1:{port}", stdin=COMMANDS)
    bare = [_VARIES.sub("", _PROMPT.sub("", line)).strip() for line in done.stdout.splitlines()]
    lines = [line for line in bare if line and line not in ("WATCHER::", "JLine support is enabled")]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return Printed([line for line in lines if line not in events], events, done.stderr.splitlines())


@pytest.mark.parametrize("main", [ZK_CLI, ZOOKEEPER_SHELL])
def test_the_shell_prints_of_our_server_what_it_prints_of_apaches(main: str, tmp_path: Path) -> None:
    properties = {"extendedTypesEnabled": "true"}
    with ApacheZooKeeper(tmp_path / "apache", properties=properties) as apache:
        theirs = printed(main, apache.port)
    with OurZooKeeper(tmp_path / "ours", properties=properties) as our:
        ours = printed(main, our.port)
    assert "/zookeeper/quota" in theirs.lines
    assert len(theirs.events) > 5
    assert ours == theirs
