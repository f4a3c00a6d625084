"""Content that is not what a znode should hold: one error, which names the path and what is wrong."""

from __future__ import annotations

import pytest

from barnabas.znodes import paths, topic_znodes
from barnabas.znodes.kinds import codec_of
from barnabas.znodes.znode_json import ZnodeError

_STATE = paths.state("t", 0)
_REGISTRATION = b'{"version":5,"host":"h","port":1,"jmx_port":-1,"timestamp":"1","endpoints":["A://h:1"],'
_BLOCK = b'{"version":1,"broker":0,"block_start":"%s","block_end":"%s"}'
_TOKEN = b'{"version":3,"owner":"%s","tokenRequester":"a:b","renewers":[],"issueTimestamp":1,"maxTimestamp":1,'
_ACL = b'{"version":1,"acls":[{"principal":"%s","permissionType":"%s","operation":"%s","host":"*"}]}'

_BROKEN = [
    (_STATE, None, "has no content"),
    (_STATE, b"", "has no content"),
    (_STATE, b"\xff", "is not UTF-8"),
    (_STATE, b"{", "is not JSON"),
    (_STATE, b"[" * 100_000, "is not JSON"),
    (_STATE, b'{"leader":NaN}', "is not JSON: NaN"),
    (_STATE, b'{"leader":"\\ud800"}', "is not JSON"),
    (_STATE, b"[1]", "holds a list instead of an object"),
    (_STATE, b"1", "holds a number instead of an object"),
    (_STATE, b'{"leader_epoch":0,"isr":[1],"controller_epoch":1}', "leader is missing"),
    (_STATE, b'{"leader":"1","leader_epoch":0,"isr":[1]}', "leader is text instead of a whole number"),
    (_STATE, b'{"leader":true,"leader_epoch":0,"isr":[1]}', "leader is a boolean instead of a whole number"),
    (_STATE, b'{"leader":1.0,"leader_epoch":0,"isr":[1]}', "leader is a number instead of a whole number"),
    (_STATE, b'{"leader":4294967296,"leader_epoch":0,"isr":[1]}', "outside the range of 32 bits"),
    (_STATE, b'{"leader":-2,"leader_epoch":0,"isr":[1]}', "leader is -2"),
    (_STATE, b'{"leader":1,"leader_epoch":0,"isr":[1,1],"controller_epoch":1}', "isr names a broker twice"),
    (_STATE, b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,1]}', "names a broker twice"),
    (_STATE, b'{"leader":1,"leader_epoch":0,"isr":[-1],"controller_epoch":1}', "isr holds -1"),
    (_STATE, b'{"leader":1,"leader_epoch":0,"isr":1,"controller_epoch":1}', "isr is a number instead of a list"),
    (_STATE, b'{"version":2,"leader":1,"leader_epoch":0,"isr":[1]}', "version is 2, expected 1 to 1"),
    (_STATE, b'{"leader":1,"leader_epoch":0,"isr":[1],"leader_recovery_state":2}', "leader_recovery_state is 2"),
    ("/brokers/topics/t", b'{"version":4,"partitions":{}}', "version is 4, expected 1 to 3"),
    ("/brokers/topics/t", b'{"version":3}', "partitions is missing"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"x":[1]}}', "partitions.x is not a partition number"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"01":[1]}}', "partitions.01 is not a partition number"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"0":["1"]}}', "partitions.0 holds '1'"),
    ("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1]},"topic_id":"x"}', "topic_id is not a Kafka uuid"),
    ("/brokers/ids/1", b'{"version":0}', "version is 0"),
    ("/brokers/ids/1", _REGISTRATION + b'"listener_security_protocol_map":{"A":"X"}}', "is no security protocol|'X'"),
    ("/brokers/ids/1", _REGISTRATION + b'"listener_security_protocol_map":{}}', "whose listener is not in"),
    ("/brokers/ids/1", b'{"version":2,"jmx_port":-1,"endpoints":["h:1"]}', "which is not NAME://HOST:PORT"),
    ("/brokers/ids/1", b'{"version":1,"jmx_port":-1,"host":"h","port":65536}', "port holds the port 65536"),
    ("/brokers/ids/1", b'{"version":2,"jmx_port":-1,"endpoints":[1]}', "endpoints holds a value that is not text"),
    ("/config/topics/t", b'{"version":1,"config":{"a":1}}', "config.a is a number instead of text"),
    ("/config/topics/t", b'{"version":1,"config":[]}', "config is a list instead of an object"),
    ("/config/topics/t", b'{"version":2,"config":{}}', "version is 2"),
    ("/config/changes/c", b'{"version":3,"entity_path":"topics/t"}', "version is 3"),
    ("/config/changes/c", b'{"version":2,"entity_path":"topics"}', "names no configuration"),
    ("/config/changes/c", b'{"version":2,"entity_path":"other/t"}', "names no configuration"),
    ("/controller", b'{"version":2,"timestamp":"1"}', "brokerid is missing"),
    ("/controller", b'{"version":2,"brokerid":1,"timestamp":"x"}', "timestamp is 'x'"),
    ("/controller_epoch", b"x", "holds 'x' instead of an epoch"),
    ("/controller_epoch", b"9999999999", "instead of an epoch"),
    ("/cluster/id", b'{"version":"1","id":""}', "id is empty"),
    ("/latest_producer_id_block", _BLOCK % (b"5", b"4"), "block_end is 4, but the block begins at 5"),
    ("/latest_producer_id_block", _BLOCK % (b"0", b"9223372036854775808"), "whole number of 64 bits"),
    ("/feature", b'{"version":3,"status":1,"features":{}}', "version is 3"),
    ("/feature", b'{"version":2,"status":2,"features":{}}', "status is 2"),
    ("/feature", b'{"version":2,"status":1}', "features is missing"),
    ("/feature", b'{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}', "max_version_level is 0"),
    ("/feature", b'{"version":1,"status":1,"features":{"f":{"max_version_level":1}}}', "min_version_level is missing"),
    ("/migration", b'{"version":1}', "version is 1"),
    (paths.PREFERRED_REPLICA_ELECTION, b'{"version":1,"partitions":[1]}', "partitions[0] is a number"),
    (
        paths.PREFERRED_REPLICA_ELECTION,
        b'{"partitions":[{"topic":"t","partition":-1}]}',
        "partitions[0].partition is -1",
    ),
    (paths.REASSIGN_PARTITIONS, b'{"partitions":[{"topic":"t","partition":0}]}', "partitions[0].replicas is missing"),
    ("/log_dir_event_notification/e", b'{"version":1}', "broker is missing"),
    ("/kafka-acl/Topic/t", _ACL % (b"me", b"Allow", b"Read"), "which is not TYPE:NAME"),
    ("/kafka-acl/Topic/t", _ACL % (b"User:me", b"Maybe", b"Read"), "permissionType is 'Maybe'"),
    ("/kafka-acl/Topic/t", _ACL % (b"User:me", b"Allow", b"Paint"), "operation is 'Paint'"),
    ("/kafka-acl-changes/c", b"t", "instead of TYPE:NAME"),
    ("/kafka-acl-changes/c", b"Thing:t", "resource type 'Thing'"),
    ("/kafka-acl-extended-changes/c", b'{"version":1,"patternType":"LITERAL"}', "patternType is 'LITERAL'"),
    (paths.token("i"), _TOKEN % b"me" + b'"expiryTimestamp":1,"tokenId":"i"}', "which is not a principal"),
    (paths.token("i"), _TOKEN % b"User%3Ame" + b'"expiryTimestamp":1}', "tokenId is missing"),
]


@pytest.mark.parametrize(("path", "data", "problem"), _BROKEN)
def test_broken_content_is_an_error_that_names_path_and_problem(path: str, data: bytes | None, problem: str) -> None:
    codec = codec_of(path)
    assert codec is not None
    with pytest.raises(ZnodeError) as raised:
        codec.decode(path, data)
    assert raised.value.path == path
    assert any(part in raised.value.problem for part in problem.split("|"))
    assert str(raised.value).startswith(f"znode {path}: ")


def test_a_state_is_checked_against_the_replicas() -> None:
    state = topic_znodes.PartitionState(leader=3, leader_epoch=1, isr=(3, 1), controller_epoch=1)
    topic_znodes.check_state(_STATE, state, (1, 2, 3))
    topic_znodes.check_state(_STATE, state._replace(leader=-1), (1, 2, 3))
    with pytest.raises(ZnodeError, match=r"names brokers \[3\], which are not among the replicas \[1, 2\]"):
        topic_znodes.check_state(_STATE, state, (1, 2))
