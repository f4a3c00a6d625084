"""Groups of unmodified clients on three brokers: members join, leave and are killed under load, and so is their
coordinator. Their diaries are judged (tests/support/group_verdict.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients import programs
from tests.support.group_survival import Group
from tests.support.survival import create_topic, wait_until

from barnabas.testing import Cluster

PARTITIONS = 6
#: Several clients that start at the same time, some of them with a JVM, need long on a busy machine.
START_S = 100
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}

_names = (f"group-{number}" for number in itertools.count())
NewGroup = Callable[[], Group]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("brokers"), brokers=3, properties=PROPERTIES) as made:
        yield made


@pytest.fixture
def new_group(cluster: Cluster, tmp_path: Path) -> NewGroup:
    def make() -> Group:
        name = next(_names)
        create_topic(cluster, name, PARTITIONS)
        return Group(cluster, tmp_path, name, PARTITIONS, programs.member)

    return make


def survive(cluster: Cluster, made: Group, clients: list[str]) -> None:
    """Starts all members but one, then that one; kills the first, then the coordinator; restarts the first; stops the
    second.
    """
    with made as group:
        members = [group.start(client) for client in clients[:-1]]
        group.await_owners(START_S)
        group.start(clients[-1])
        group.await_owners(START_S)
        members[0].kill()
        group.await_owners()
        victim = group.coordinator()
        cluster.kill(victim)
        group.start(clients[0])
        group.await_owners(START_S)
        cluster.start_broker(victim)
        members[1].leave()
        group.await_owners()
        group.settle()
        group.judge()


@pytest.mark.full
def test_members_of_three_makes_survive_their_own_crashes_and_their_coordinators(
    cluster: Cluster, new_group: NewGroup
) -> None:
    survive(cluster, new_group(), ["confluent-range", "aiokafka", "kafka-python", "confluent-range"])


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "client",
    [
        "confluent-cooperative",
        "confluent-range",
        "confluent-consumer",
        "aiokafka",
        "kafka-python",
        "java-range",
        "java-cooperative",
        "java-consumer",
        "franz-range",
        "franz-cooperative",
        "franz-consumer",
        "sarama-range",
        "sarama-sticky",
        "kafkajs",
    ],
)
def test_members_of_one_make_survive(cluster: Cluster, new_group: NewGroup, client: str) -> None:
    survive(cluster, new_group(), [client] * 4)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "clients",
    [
        ["java-range", "franz-range", "sarama-range", "aiokafka", "kafka-python", "confluent-range"],
        ["java-consumer", "franz-consumer", "confluent-consumer", "java-consumer"],
    ],
    ids=["classic", "consumer"],
)
def test_members_of_all_makes_survive(cluster: Cluster, new_group: NewGroup, clients: list[str]) -> None:
    survive(cluster, new_group(), clients)


@pytest.mark.full
@pytest.mark.parametrize("client", ["confluent-cooperative", "confluent-range", "confluent-consumer"])
def test_a_static_member_that_comes_back_in_time_finds_its_partitions(new_group: NewGroup, client: str) -> None:
    """The other members do not rebalance (KIP-345). In the consumer protocol the member leaves first: the instance id
    of a killed one is blocked until its session ends (UNRELEASED_INSTANCE_ID).
    """
    with new_group() as group:
        others = [group.start(client, instance) for instance in ("one", "two")]
        third = group.start(client, "three")
        group.await_owners()
        before = [len(member.events()) for member in others]
        owned = third.owns_now()
        (third.leave if client == "confluent-consumer" else third.kill)()
        again = group.start(client, "three")
        group.await_owners()
        assert again.owns_now() == owned
        for member, count in zip(others, before, strict=True):
            later = member.events()[count:]
            assert not [event for event in later if event["event"] in ("assigned", "revoked")]
        wait_until(lambda: any(event["event"] == "committed" for event in again.events()), "it continues")
        group.settle()
        group.judge()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "clients",
    [
        ["confluent-range", "confluent-range", "aiokafka"],
        ["java-consumer", "franz-consumer", "confluent-consumer"],
    ],
    ids=["classic", "consumer"],
)
def test_the_coordinator_is_killed_again_and_again(cluster: Cluster, new_group: NewGroup, clients: list[str]) -> None:
    with new_group() as group:
        for client in clients:
            group.start(client)
        group.await_owners(START_S)
        for _ in range(4):
            victim = group.coordinator()
            cluster.kill(victim)
            newcomer = group.start(clients[0])
            group.await_owners(START_S)
            newcomer.kill()
            cluster.start_broker(victim)
            group.await_owners(60)
        group.settle()
        group.judge()
