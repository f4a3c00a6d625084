"""Trees of znodes as records: what ZooKeeper clusters can have, what is refused, and what a refusal harms."""

from __future__ import annotations

import pytest
from tests.support.znode_images import image_of_tree

from barnabas.metadata.image import METADATA_VERSION
from barnabas.protocol.messages import records_metadata as r
from barnabas.znodes import paths
from barnabas.znodes.image_znodes import image_znodes, quota_path
from barnabas.znodes.tree_records import TreeRecords, broker_records, tree_records
from barnabas.znodes.znode_tree import Znode, ZnodeTree

_ID = b"t" * 16
_TOPIC = b'{"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"dHR0dHR0dHR0dHR0dHR0dA","version":3}'
_STATE = b'{"controller_epoch":4,"leader":2,"version":1,"leader_epoch":7,"isr":[2]}'
_SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


def _read(znodes: dict[str, bytes | None]) -> TreeRecords:
    tree = ZnodeTree({path: Znode(data, 3, 5) for path, data in znodes.items()})
    return tree_records(tree, lambda: _ID)


def _config(**overrides: str) -> bytes:
    fields = ",".join(
        f'"{key.replace("_", "-") if key.isupper() else key}":"{value}"' for key, value in overrides.items()
    )
    return f'{{"version":1,"config":{{{fields}}}}}'.encode()


def test_a_topic_with_a_state_and_a_partition_that_was_never_led() -> None:
    read = _read({paths.topic("t"): _TOPIC, paths.state("t", 0): _STATE})
    assert not read.problems
    topic, led, new = read.records
    assert isinstance(topic, r.TopicRecord)
    assert isinstance(led, r.PartitionRecord)
    assert isinstance(new, r.PartitionRecord)
    assert (topic.name, topic.topic_id) == ("t", _ID)
    assert (led.leader, led.leader_epoch, led.partition_epoch, led.isr) == (2, 7, 3, [2])
    assert (new.leader, new.leader_epoch, new.partition_epoch, new.isr) == (2, 0, 0, [2, 1])


def test_a_topic_without_an_id_gets_one() -> None:
    (topic, _) = _read({paths.topic("t"): b'{"version":1,"partitions":{"0":[1]}}'}).records
    assert isinstance(topic, r.TopicRecord)
    assert topic.topic_id == _ID


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        (paths.topic("bad"), b"{", "is not JSON"),
        (
            paths.topic("bad"),
            b'{"version":1,"partitions":{"0":[1],"2":[1]}}',
            "has no partition 1",
        ),
        (paths.topic("bad"), b'{"version":1,"partitions":{}}', "has no partitions"),
        (paths.topic("bad"), b'{"version":1,"partitions":{"0":[]}}', "has no replicas of partition 0"),
        (paths.state("t2", 0), _STATE, r"names brokers \[2\], which are not among the replicas \[1\]"),
        (paths.config("topics", "t2"), b"{", "is not JSON"),
        (paths.config("brokers", "x"), b"{}", "has a name that is not a broker id"),
        (paths.config("users", "u"), _config(producer_byte_rate="much"), "'much' instead of a number"),
        (paths.config("users", "u"), b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}', "is not a SCRAM credential"),
        (paths.config("users", "%C3"), _config(producer_byte_rate="7"), "is not percent-encoded UTF-8"),
        (paths.PRODUCER_ID_BLOCK, b"{}", "broker is missing"),
        ("/kafka-acl/Thing/t", b"{}", "is not a resource that has ACLs"),
        (paths.token("i"), b"{}", "version is missing"),
        (paths.FEATURE, b"{}", "version is missing"),
    ],
)
def test_a_broken_znode_harms_itself_only(path: str, data: bytes, problem: str) -> None:
    second = b'{"version":1,"partitions":{"0":[1]}}'
    read = _read({paths.topic("t"): _TOPIC, paths.topic("t2"): second, path: data})
    (found,) = read.problems
    assert found.path == path
    with pytest.raises(type(found), match=problem):
        raise found
    names = [record.name for record in read.records if isinstance(record, r.TopicRecord)]
    assert names == (["t"] if path in (paths.state("t2", 0), paths.config("topics", "t2")) else ["t", "t2"])


def test_brokers_are_sorted_by_number_and_keep_their_czxid() -> None:
    registration = b'{"version":5,"jmx_port":-1,"endpoints":["SSL://h:9"]}'
    tree = {"/brokers/ids/10": registration, "/brokers/ids/9": registration, "/brokers/ids/x": registration}
    read = broker_records(ZnodeTree({path: Znode(data, 0, 77) for path, data in tree.items()}))
    found = [
        (record.broker_id, record.broker_epoch) for record in read.records if isinstance(record, r.RegisterBrokerRecord)
    ]
    assert found == [(9, 77), (10, 77)]
    assert [problem.path for problem in read.problems] == ["/brokers/ids/x"]


def test_security_and_quotas_become_records_and_the_same_bytes_again() -> None:
    token = (
        b'{"issueTimestamp":1,"renewers":["User%3Ab"],"tokenRequester":"User%3Ac","tokenId":"i","owner":"User%3Aa",'
        b'"expiryTimestamp":3,"maxTimestamp":2,"version":3}'
    )
    acl = (
        b'{"acls":[{"principal":"User:a","permissionType":"Deny","host":"*","operation":"Write"},'
        b'{"principal":"User:b","permissionType":"Allow","host":"h","operation":"Read"}],"version":1}'
    )
    scram = f'{{"version":1,"config":{{"SCRAM-SHA-512":"{_SCRAM}","SCRAM-SHA-256":"{_SCRAM}"}}}}'.encode()
    znodes: dict[str, bytes] = {
        paths.config("users", "a%20b"): scram,
        paths.config("users", "<default>"): _config(producer_byte_rate="7"),
        paths.config("users", "u/clients/c%2F1"): _config(request_percentage="12.5"),
        paths.config("clients", "<default>"): _config(controller_mutation_rate="1.0E7"),
        paths.config("ips", "10.0.0.1"): _config(connection_creation_rate="3"),
        paths.config("brokers", "<default>"): _config(a="1"),
        paths.config("brokers", "4"): _config(b="2"),
        paths.token("i"): token,
        "/kafka-acl/Topic/t": acl,
        "/kafka-acl-extended/prefixed/Group/g": acl,
        paths.FEATURE: b'{"features":{"f":{"max_version_level":3}},"version":2,"status":1}',
    }
    image = image_of_tree({path: Znode(data) for path, data in znodes.items()})
    assert len(image.security.acls) == 4
    assert len(image.security.scram) == 2
    assert dict(image.features) == {"f": 3}
    written = {path: data for path, data in image_znodes(image, 1).items() if data is not None}
    assert written == znodes


def test_metadata_version_is_not_taken_from_zookeeper() -> None:
    image = image_of_tree(
        {paths.FEATURE: Znode(b'{"features":{"metadata.version":{"max_version_level":7}},"version":2,"status":1}')}
    )
    assert METADATA_VERSION not in image.features


def test_entities_that_zookeeper_cannot_name() -> None:
    assert quota_path((("ip", "1"), ("user", "u"))) is None
    assert quota_path((("user", None),)) == "/config/users/<default>"
