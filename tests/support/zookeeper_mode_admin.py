"""Operations of an operator on a cluster in ZooKeeper mode. Each waits for its effect: in the znodes, and in the
answers of every broker to clients.
"""

from __future__ import annotations

from functools import partial

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType
from tests.support.process_nodes import call, until
from tests.support.zookeeper_mode import WAIT_S, ZooKeeperModeCluster

from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

_PREFERRED = "/admin/preferred_replica_election"
_REASSIGN = "/admin/reassign_partitions"


def await_views(cluster: ZooKeeperModeCluster, topic: str) -> None:
    """Waits until every broker reports the state of each partition as its znode has it."""

    def agreed() -> bool:
        assignment = cluster.znode(f"/brokers/topics/{topic}")["partitions"]
        states = {int(number): cluster.state(topic, int(number)) for number in assignment}
        wanted = {
            number: (state["leader"], assignment[str(number)], sorted(state["isr"])) for number, state in states.items()
        }
        for broker in cluster.brokers:
            (found,) = cluster.metadata(broker, topic).topics
            told = {n.partition_index: (n.leader_id, n.replica_nodes, sorted(n.isr_nodes)) for n in found.partitions}
            if told != wanted:
                return False
        return True

    until(f"all brokers know {topic}", agreed, WAIT_S)


def administer(cluster: ZooKeeperModeCluster, topic: str) -> None:
    """Runs every operation that a controller decides. All brokers must be alive; the topic must not exist."""
    create_with_assignment(cluster, topic, {0: [1, 2, 3], 1: [2, 3, 1]})
    configure_at_every_broker(cluster, topic)
    grow(cluster, topic, 3)
    for change in (reassign_by_request, reassign_by_znode):
        change(cluster, topic, 2, [2, 3])
        change(cluster, topic, 2, [3, 1, 2])
        cluster.await_isrs(topic)
    for elect in (elect_by_request, elect_by_znode):
        move_leader_away(cluster, topic, 0)
        elect(cluster, topic, 0)
    await_views(cluster, topic)
    delete(cluster, topic)
    cluster.create(topic, 1)  # another topic under the same name
    cluster.await_isrs(topic)
    await_views(cluster, topic)


def create_with_assignment(cluster: ZooKeeperModeCluster, topic: str, assignment: dict[int, list[int]]) -> None:
    client = cluster.admin()
    rows = [assignment[number] for number in sorted(assignment)]
    (future,) = client.create_topics([NewTopic(topic, len(rows), replica_assignment=rows)]).values()
    future.result(WAIT_S)
    until(f"{topic} is led", lambda: all(leads(cluster, topic, number, rows[number][0]) for number in assignment))
    await_views(cluster, topic)


def leads(cluster: ZooKeeperModeCluster, topic: str, partition: int, broker: int) -> bool:
    state = cluster.state(topic, partition)
    return state is not None and bool(state["leader"] == broker)


def set_config(cluster: ZooKeeperModeCluster, topic: str, key: str, value: str, *brokers: int) -> None:
    client = cluster.admin(*brokers)
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result(WAIT_S)


def configure_at_every_broker(cluster: ZooKeeperModeCluster, topic: str) -> None:
    """Changes a setting at each broker; all brokers describe it."""
    for number in cluster.brokers:
        value = f"{number}000000"
        set_config(cluster, topic, "retention.ms", value, number)
        for other in cluster.brokers:
            until("the setting", partial(is_configured, cluster, topic, other, value), WAIT_S)


def is_configured(cluster: ZooKeeperModeCluster, topic: str, broker: int, value: str) -> bool:
    client = cluster.admin(broker)
    (described,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return bool(described.result(WAIT_S)["retention.ms"].value == value)


def grow(cluster: ZooKeeperModeCluster, topic: str, partitions: int) -> None:
    client = cluster.admin()
    (future,) = client.create_partitions([NewPartitions(topic, partitions)]).values()
    future.result(WAIT_S)
    until("the new partition is led", lambda: cluster.state(topic, partitions - 1) is not None, WAIT_S)
    cluster.await_isrs(topic)
    await_views(cluster, topic)


def reassign_by_request(cluster: ZooKeeperModeCluster, topic: str, partition: int, replicas: list[int]) -> None:
    row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=replicas)
    entry = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[row])
    request = AlterPartitionReassignmentsRequest(timeout_ms=60_000, topics=[entry])
    address = ("localhost", cluster.brokers[cluster.await_controller()].port)
    answer = call(address, request, 0, AlterPartitionReassignmentsResponse)
    assert [each.error_code for each in answer.responses[0].partitions] == [0], answer
    await_replicas(cluster, topic, partition, replicas)


def reassign_by_znode(cluster: ZooKeeperModeCluster, topic: str, partition: int, replicas: list[int]) -> None:
    row = {"topic": topic, "partition": partition, "replicas": replicas}
    cluster.put(_REASSIGN, {"version": 1, "partitions": [row]})
    await_replicas(cluster, topic, partition, replicas)
    until("the request is gone", lambda: cluster.znode(_REASSIGN) is None, WAIT_S)


def await_replicas(cluster: ZooKeeperModeCluster, topic: str, partition: int, replicas: list[int]) -> None:
    def moved() -> bool:
        assignment = cluster.znode(f"/brokers/topics/{topic}")
        under_way = assignment["adding_replicas"] or assignment["removing_replicas"]
        return not under_way and bool(assignment["partitions"][str(partition)] == replicas)

    until(f"{topic}-{partition} is on {replicas}", moved, WAIT_S)
    assert set(cluster.state(topic, partition)["isr"]) == set(replicas)
    await_views(cluster, topic)


def move_leader_away(cluster: ZooKeeperModeCluster, topic: str, partition: int) -> None:
    """Turns the order of the replicas around, so that the leader is not the preferred one any more."""
    replicas = cluster.znode(f"/brokers/topics/{topic}")["partitions"][str(partition)]
    elect_by_request(cluster, topic, partition)
    reassign_by_request(cluster, topic, partition, [*replicas[1:], replicas[0]])
    assert leads(cluster, topic, partition, replicas[0])


def elect_by_request(cluster: ZooKeeperModeCluster, topic: str, partition: int) -> None:
    client = cluster.admin()
    wanted = [TopicPartition(topic, partition)]
    found = client.elect_leaders(ElectionType.PREFERRED, wanted).result(WAIT_S)
    for error in found.values():
        assert error is None or "ELECTION_NOT_NEEDED" in error.name(), error
    await_preferred(cluster, topic, partition)


def elect_by_znode(cluster: ZooKeeperModeCluster, topic: str, partition: int) -> None:
    cluster.put(_PREFERRED, {"version": 1, "partitions": [{"topic": topic, "partition": partition}]})
    await_preferred(cluster, topic, partition)
    until("the request is gone", lambda: cluster.znode(_PREFERRED) is None, WAIT_S)


def await_preferred(cluster: ZooKeeperModeCluster, topic: str, partition: int) -> None:
    preferred = cluster.znode(f"/brokers/topics/{topic}")["partitions"][str(partition)][0]
    until("the preferred replica leads", lambda: leads(cluster, topic, partition, preferred), WAIT_S)


def delete(cluster: ZooKeeperModeCluster, topic: str) -> None:
    client = cluster.admin()
    (future,) = client.delete_topics([topic]).values()
    future.result(WAIT_S)
    paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")
    until(f"{paths} are gone", lambda: all(cluster.znode(path) is None for path in paths), WAIT_S)
    until(f"the logs of {topic} are gone", lambda: not logs_of(cluster, topic), WAIT_S)


def logs_of(cluster: ZooKeeperModeCluster, topic: str) -> list[str]:
    """Returns the directories of the topic's partitions, without those that wait for their deletion."""
    found = [path for broker in cluster.brokers.values() for path in (broker.directory / "data").glob(f"{topic}-*")]
    return [str(path) for path in found if not path.name.endswith("-delete")]


def elect_unclean(cluster: ZooKeeperModeCluster, topic: str, *, by_request: bool) -> None:
    """Kills the only member of an ISR, and has the other replica elected: no controller elects it without a request."""
    stale, last = (number for number in cluster.brokers if number != cluster.controller_id)
    create_with_assignment(cluster, topic, {0: [last, stale]})
    cluster.produce(topic, ["both have it"])
    cluster.brokers[stale].kill()
    until("the ISR has one member", lambda: cluster.isrs(topic) == [{last}], WAIT_S)
    cluster.produce(topic, ["one has it"])
    cluster.brokers[last].kill()
    until("nobody leads", lambda: leads(cluster, topic, 0, -1), WAIT_S)
    cluster.start_again(stale)
    # librdkafka waits for a controller without asking again, if the first broker that answers knows of none yet.
    until("it knows the controller", lambda: cluster.metadata(stale).controller_id == cluster.controller_id, WAIT_S)
    before = cluster.state(topic, 0)
    assert (before["leader"], before["isr"]) == (-1, [last])
    if by_request:
        client = cluster.admin()
        client.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]).result(WAIT_S)
    else:
        set_config(cluster, topic, "unclean.leader.election.enable", "true")
    until("the other replica leads", lambda: leads(cluster, topic, 0, stale), WAIT_S)
    after = cluster.state(topic, 0)
    assert after["isr"] == [stale]
    assert after["leader_epoch"] > before["leader_epoch"]
    cluster.start_again(last)
    until("both are in the ISR", lambda: cluster.isrs(topic) == [{stale, last}], WAIT_S)
    assert cluster.consume(topic, 1) == ["both have it"]
    delete(cluster, topic)


def shut_down(cluster: ZooKeeperModeCluster, broker: int, topic: str) -> None:
    """Ends a broker as an operator does: others lead its partitions when its process ends. Starts it again."""
    stopped = cluster.brokers[broker]
    assert stopped.stop() in (0, 143), "143 is the exit code of a JVM after SIGTERM"
    assert cluster.znode(f"/brokers/ids/{broker}") is None
    for number in range(len(cluster.isrs(topic))):
        state = cluster.state(topic, number)
        assert state["leader"] not in (-1, broker)
        assert broker not in state["isr"]
    stopped.start(WAIT_S)
    cluster.await_isrs(topic)
    await_views(cluster, topic)
