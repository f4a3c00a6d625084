"""The texts and facts of `barnabas znodes`, on znodes that Kafka 3.9.1 wrote and on damaged ones."""

from __future__ import annotations

import json

import pytest
from tests.support.recorded_znodes import recorded_trees

from barnabas.cli.app import run
from barnabas.cli.znodes import facts_of, says
from barnabas.znodes.kinds import codec_of
from barnabas.znodes.znode_follower import SeenZnode
from barnabas.zookeeper.client.store import ZnodeContent
from barnabas.zookeeper.wire.codes import ErrorCode
from barnabas.zookeeper.wire.records import Stat


def seen(data: bytes | None, version: int = 3, owner: int = 0) -> SeenZnode:
    stat = Stat(7, 9, 0, 0, version, 0, 0, owner, len(data or b""), 0, 9)
    return SeenZnode(ZnodeContent(data, version), stat)


def test_every_recorded_znode_is_read_by_its_codec_and_is_json() -> None:
    kinds = set()
    for tree in recorded_trees().values():
        for path, znode in tree.items():
            facts = facts_of(path, seen(znode.data))
            assert facts["problem"] is None, (path, facts)
            assert (facts["kind"] is None) is (codec_of(path) is None)
            kinds.add(facts["kind"])
            json.dumps(facts)
            assert "\n" not in says(facts)
    assert {"controller", "broker", "topic", "partition state", "configuration"} <= kinds


def test_a_state_says_leader_and_isr() -> None:
    state = b'{"controller_epoch":5,"leader":2,"version":1,"leader_epoch":4,"isr":[2,3],"leader_recovery_state":0}'
    facts = facts_of("/brokers/topics/t/partitions/0/state", seen(state, owner=0x1000))
    text = says(facts)
    for part in ("leader=2", "leader_epoch=4", "isr=[2,3]", "controller_epoch=5"):
        assert part in text
    assert (facts["version"], facts["session"], facts["czxid"]) == (3, "0x1000", 7)


def test_what_a_codec_cannot_read_is_shown_with_the_problem() -> None:
    facts = facts_of("/controller", seen(b"{broken"))
    assert facts["kind"] == "controller"
    assert facts["content"] is None
    assert facts["problem"]
    assert says(facts).endswith(": {broken")


def test_a_znode_that_may_not_be_read_says_so() -> None:
    facts = facts_of("/config/users/ann", SeenZnode(None, None, ErrorCode.NO_AUTH))
    assert says(facts) == "cannot be read: NO_AUTH"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, ""),
        (b"", ""),
        (b"plain", "plain"),
        ("\u00e9".encode(), "\u00e9"),
        (b"a\nb\x1b[31m", "'a\\nb\\x1b[31m'"),
        (b"\xff\xfe", "2 bytes: fffe"),
        (b"x" * 300, "x" * 200 + "... (300 bytes)"),
    ],
)
def test_other_contents_are_shown_as_text_that_cannot_harm_a_terminal(data: bytes | None, text: str) -> None:
    assert says(facts_of("/other", seen(data))) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a/b"], "Path must start with / character"),
        (["/a//b"], "empty node name"),
        (["/", "--zookeeper", "one:x"], "'one:x' is not host:port"),
    ],
)
def test_wrong_use_is_reported_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["znodes", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
