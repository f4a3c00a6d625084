"""The 36 recorded trees of Apache Kafka 3.9.1 as metadata records, and as znodes again: the same bytes.

An image knows less than the znodes say; EXCEPTIONS lists what differs for that reason, and where.
"""

from __future__ import annotations

import re

from tests.support.recorded_znodes import Tree, recorded_trees
from tests.support.znode_images import image_of_tree

from barnabas.metadata.image import BROKER_RESOURCE
from barnabas.znodes.image_znodes import image_znodes
from barnabas.znodes.znode_tree import Znode

#: Path -> pattern of a field that the image does not have -> the number of recorded znodes that differ in it.
EXCEPTIONS = {
    # the time of the registration
    r"/brokers/ids/\d+": (rb'"timestamp":"-?\d+"', 91),
    # the controller that wrote the state: here it is the present one
    r"/brokers/topics/[^/]+/partitions/\d+/state": (rb'"controller_epoch":\d+', 21),
    # the broker that got the last block
    "/latest_producer_id_block": (rb'"broker":-?\d+', 11),
}

#: The znodes that are not metadata of an image: the controller, requests and notifications, parents without children.
NOT_IN_IMAGES = re.compile(
    r"/zookeeper.*|/controller|/controller_epoch|/cluster(/id)?|/consumers|/admin.*|/brokers/seqid|/config/changes.*"
    r"|/(isr_change|log_dir_event)_notification|/latest_producer_id_block|/"
)


def _znodes(tree: Tree) -> dict[str, Znode]:
    return {path: Znode(znode.data, znode.version, znode.czxid) for path, znode in tree.items()}


def _written(tree: Tree) -> dict[str, bytes | None]:
    epoch = tree["/controller_epoch"].data if "/controller_epoch" in tree else b"0"
    return image_znodes(image_of_tree(_znodes(tree)), int(epoch or 0))


def _is_parent(path: str) -> bool:
    return path in {"/brokers", "/brokers/ids", "/brokers/topics", "/config"} or bool(
        re.fullmatch("/config/(topics|clients|users|brokers|ips)", path)
    )


def test_every_znode_of_an_image_was_recorded_and_every_recorded_one_is_written() -> None:
    for step, tree in recorded_trees().items():
        written = _written(tree)
        deleted = {path.rpartition("/")[2] for path in tree if path.startswith("/admin/delete_topics/")}
        missing = {
            path for path in tree if path not in written and not NOT_IN_IMAGES.fullmatch(path) and not _is_parent(path)
        }
        of_deleted = {path for path in missing if set(path.split("/")[3:4]) & deleted}
        # a configuration whose overrides were all removed says nothing
        empty = {path for path in missing if tree[path].data == b'{"version":1,"config":{}}'}
        assert missing == of_deleted | empty, step
        assert written.keys() - tree.keys() <= {"/feature"}, step


def test_recorded_znodes_become_records_and_the_same_bytes_again() -> None:
    equal = 0
    differing = dict.fromkeys(EXCEPTIONS, 0)
    for step, tree in recorded_trees().items():
        for path, data in _written(tree).items():
            if path not in tree or tree[path].data == data:
                equal += path in tree
                continue
            pattern = next(pattern for pattern in EXCEPTIONS if re.fullmatch(pattern, path))
            field = EXCEPTIONS[pattern][0]
            assert re.sub(field, b"", tree[path].data or b"") == re.sub(field, b"", data or b""), (step, path)
            differing[pattern] += 1
    assert differing == {pattern: count for pattern, (_, count) in EXCEPTIONS.items()}
    assert equal == 1191


def test_what_a_tree_says_is_in_the_image() -> None:
    trees = recorded_trees()
    image = image_of_tree(_znodes(trees["28-reassign-finished"]))
    orders = image.topics_by_name["orders"]
    state = trees["28-reassign-finished"]["/brokers/topics/orders/partitions/3/state"]
    partition = orders.partitions[3]
    assert len(orders.partitions) == 6
    assert f'"leader":{partition.leader},'.encode() in (state.data or b"")
    assert partition.partition_epoch == state.version
    assert dict(image.topic_config("orders"))["min.insync.replicas"] == "2"
    assert dict(image.config_of(BROKER_RESOURCE, ""))["num.io.threads"] == "9"
    assert image.next_producer_id == 1000
    assert sorted(image.brokers) == [0, 1, 2]
    assert image.brokers[1].rack == "rack1"
    assert image.brokers[1].epoch == trees["28-reassign-finished"]["/brokers/ids/1"].czxid
    quotas = {entity: dict(values) for entity, values in image.security.quotas.items()}
    assert quotas[(("client-id", "c 1/x"),)] == {"producer_byte_rate": 1024.0}
    assert quotas[(("client-id", None), ("user", "alice"))] == {"request_percentage": 50.0}
    assert quotas[(("ip", "127.0.0.9"),)] == {"connection_creation_rate": 10.0}
    ((mechanism, user),) = image.security.scram
    assert (mechanism, user) == (1, "alice")


def test_a_recovering_leader_and_a_reassignment_are_in_the_image() -> None:
    trees = recorded_trees()
    unclean = image_of_tree(_znodes(trees["16-unclean-election"])).topics_by_name["duo"].partitions[0]
    assert unclean.leader_recovery_state == 1
    moving = image_of_tree(_znodes(trees["27-reassign-under-way"])).topics_by_name["duo"].partitions[0]
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((0, 1, 2), (0,), (2,))


def test_a_topic_that_waits_for_its_deletion_is_left_out() -> None:
    tree = recorded_trees()["32-topic-deletion-pending"]
    assert "/brokers/topics/orders" in tree
    assert "orders" not in image_of_tree(_znodes(tree)).topics_by_name
