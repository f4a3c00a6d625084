"""Replicas moved and leaders elected on three brokers under load, by Barnabas's commands and by Kafka's own tools."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType
from tests.clients import programs
from tests.support.survival import create, wait_until

from barnabas.cli import entry
from barnabas.testing import Cluster

TOPIC = "orders"
QUIET = {"log_level": 0}
_attempts = itertools.count()
UNTOLD: tuple[int, list[int], list[int]] = (-2, [], [])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("moves") / "cluster", brokers=3) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic with its own name for each test, and for each time that it is tried."""
    name = f"{TOPIC}-{next(_attempts)}-{request.node.name.removeprefix('test_')[:40]}"
    create(cluster, NewTopic(name, 2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "1"}))
    return name


def client(cluster: Cluster) -> AdminClient:
    return AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})


class Load:
    """An idempotent producer that works in a thread, with its acknowledgements and refusals."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer(
            {**QUIET, "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "retry.backoff.max.ms": 100}
        )
        self._topic = topic
        self._stopped = threading.Event()
        self.acked: list[tuple[int, int, bytes]] = []
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        sent = 0
        while not self._stopped.is_set():
            self._producer.produce(self._topic, str(sent), partition=sent % 2, on_delivery=self._answered)
            self._producer.poll(0.002)
            sent += 1
        if self._producer.flush(120):
            self.failed.append("not everything was answered")

    def _answered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked.append((message.partition(), message.offset(), message.value()))  # type: ignore[attr-defined]

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def state(cluster: Cluster, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
    """Returns leader, replicas and ISR by partition; no leaders and no data while no broker answers."""
    try:
        found = client(cluster).list_topics(topic, timeout=15).topics[topic].partitions
    except KafkaException:
        found = {}
    if not found:
        return {0: UNTOLD, 1: UNTOLD}
    return {index: (row.leader, list(row.replicas), sorted(row.isrs)) for index, row in sorted(found.items())}


def everything_is_in_sync(cluster: Cluster) -> bool:
    """Returns whether every partition of every topic, internal ones included, has all its replicas in the ISR."""
    try:
        topics = client(cluster).list_topics(timeout=15).topics.values()
    except KafkaException:
        return False
    return all(sorted(row.isrs) == sorted(row.replicas) for topic in topics for row in topic.partitions.values())


def brokers(cluster: Cluster) -> set[int]:
    """Returns all brokers, including while no broker answers."""
    try:
        return set(client(cluster).list_topics(timeout=15).brokers)
    except KafkaException:
        return {1, 2, 3}


def command(cluster: Cluster, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    ended = entry.run([*arguments, "--bootstrap", cluster.bootstrap])
    captured = capsys.readouterr()
    assert ended == code, captured.out + captured.err
    return captured.out + captured.err


def plan(directory: Path, topic: str, replicas: Mapping[int, Sequence[int]]) -> str:
    rows = [{"topic": topic, "partition": index, "replicas": list(ids)} for index, ids in replicas.items()]
    path = directory / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def read_back(cluster: Cluster, topic: str, expected: list[tuple[int, int, bytes]]) -> None:
    """Checks that all acknowledged records are at their acknowledged offsets."""
    from confluent_kafka import Consumer, TopicPartition

    wanted: dict[object, object] = {(partition, offset): value for partition, offset, value in expected}
    reader = Consumer({**QUIET, "bootstrap.servers": cluster.bootstrap, "group.id": f"reader-{topic}"})
    reader.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    deadline = time.monotonic() + 120
    while wanted and time.monotonic() < deadline:
        message = reader.poll(0.5)
        if message is not None and message.error() is None:
            value = wanted.pop((message.partition(), message.offset()), message.value())
            assert value == message.value()
    reader.close()
    assert not wanted, f"{len(wanted)} acknowledged records are not there"


def test_replicas_move_under_load(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = plan(tmp_path, topic, {0: [3, 2], 1: [3, 1]})
    grown = {0: [1, 2, 3], 1: [3, 1, 2]}
    with Load(cluster, topic) as load:
        wait_until(lambda: len(load.acked) > 100, "nothing acknowledged")
        said = command(cluster, capsys, "reassign", "execute", "--reassignment-json-file", moved)
        assert f"Successfully started partition reassignment(s) for {topic}-0,{topic}-1" in said
        wait_until(lambda: state(cluster, topic) == {0: (3, [3, 2], [2, 3]), 1: (3, [3, 1], [1, 3])}, "not moved")
        verify = ("reassign", "verify", "--reassignment-json-file", moved)
        completed = f"Reassignment of partition {topic}-1 is completed."
        wait_until(lambda: completed in command(cluster, capsys, *verify), completed)
        bigger = plan(tmp_path, topic, grown)
        command(cluster, capsys, "reassign", "execute", "--reassignment-json-file", bigger)
        wait_until(lambda: all(row[2] == [1, 2, 3] for row in state(cluster, topic).values()), "not grown")
        smaller = plan(tmp_path, topic, {0: [1], 1: [2]})
        command(cluster, capsys, "reassign", "execute", "--reassignment-json-file", smaller)
        wait_until(lambda: state(cluster, topic) == {0: (1, [1], [1]), 1: (2, [2], [2])}, "not shrunk")
        count = len(load.acked)
        wait_until(lambda: len(load.acked) > count + 100, "nothing acknowledged afterwards")
    assert load.failed == []
    read_back(cluster, topic, load.acked)


def test_a_move_to_a_broker_that_dies_is_cancelled(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guard G28. The preferred leaders come back by an election afterwards."""
    target = plan(tmp_path, topic, {0: [3, 2], 1: [3, 1]})
    with Load(cluster, topic) as load:
        wait_until(lambda: len(load.acked) > 100, "nothing acknowledged")
        cluster.kill(3)
        wait_until(lambda: 3 not in brokers(cluster), "3 is still there")
        # The `barnabas` command refuses a target that is down; the cluster itself accepts one that is registered.
        said = command(cluster, capsys, "reassign", "execute", "--reassignment-json-file", target, code=1)
        assert "no such brokers: [3]" in said
        from barnabas.cli.reassign import _Cluster

        requested = _Cluster(cluster.bootstrap, None)
        assert requested.alter({(topic, 0): [3, 2], (topic, 1): [3, 1]}) == {}
        assert sorted(requested.ongoing()) == [(topic, 0), (topic, 1)]
        said = command(cluster, capsys, "reassign", "verify", "--reassignment-json-file", target)
        assert f"Reassignment of partition {topic}-0 is still in progress." in said
        said = command(cluster, capsys, "reassign", "cancel", "--reassignment-json-file", target)
        assert f"Successfully cancelled partition reassignments for: {topic}-0,{topic}-1" in said
        wait_until(lambda: [state(cluster, topic)[each][1] for each in (0, 1)] == [[2, 1], [1, 2]], "not cancelled")
        said = command(cluster, capsys, "reassign", "cancel", "--reassignment-json-file", target)
        assert "None of the specified partition reassignments are active." in said
    cluster.start_broker(3)
    assert load.failed == []
    read_back(cluster, topic, load.acked)


def test_preferred_leaders_come_back_after_a_restart(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Load(cluster, topic) as load:
        wait_until(lambda: len(load.acked) > 100, "nothing acknowledged")
        cluster.stop_broker(1)
        wait_until(lambda: {row[0] for row in state(cluster, topic).values()} == {2}, "2 does not lead")
        said = command(cluster, capsys, "elect", "--type", "preferred", "--topic", topic, "--partition", "0", code=1)
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in said
        cluster.start_broker(1)
        wait_until(lambda: all(row[2] == [1, 2] for row in state(cluster, topic).values()), "1 is not in sync")
        said = command(cluster, capsys, "elect", "--type", "preferred", "--topic", topic, "--partition", "0")
        assert f"(PREFERRED) for partitions {topic}-0" in said
        wait_until(lambda: state(cluster, topic)[0][0] == 1, "1 does not lead")
        said = command(cluster, capsys, "elect", "--type", "preferred", "--topic", topic, "--partition", "0")
        assert f"Valid replica already elected for partitions {topic}-0" in said
        # Partitions of other topics may take longer: the preferred leader of each must be in sync to be elected.
        wait_until(lambda: everything_is_in_sync(cluster), "the partitions of other topics are not in sync")
        command(cluster, capsys, "elect", "--type", "preferred", "--all-topic-partitions")
    assert load.failed == []
    read_back(cluster, topic, load.acked)


def test_an_unclean_leader_is_elected_on_request(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.kill(2)
    # A survivor may not know the topic yet: it was made a moment ago.
    wait_until(lambda: state(cluster, topic)[0] == (1, [1, 2], [1]), "2 is still in sync")
    cluster.kill(1)
    cluster.start_broker(2)
    wait_until(lambda: state(cluster, topic)[0][0] == -1, "there is a leader")
    partitions = tmp_path / "partitions.json"
    partitions.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    arguments = ("elect", "--path-to-json-file", str(partitions), "--type")
    said = command(cluster, capsys, *arguments, "preferred", code=1)
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in said
    said = command(cluster, capsys, *arguments, "unclean")
    assert f"(UNCLEAN) for partitions {topic}-0" in said
    wait_until(lambda: state(cluster, topic)[0] == (2, [1, 2], [2]), "2 does not lead")
    cluster.start_broker(1)
    wait_until(lambda: all(row[2] == [1, 2] for row in state(cluster, topic).values()), "1 is not in sync")


def test_throttles_and_directories(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(cluster.data_directory_of(3))
    rows = [{"topic": topic, "partition": 0, "replicas": [3, 2], "log_dirs": [directory, "any"]}]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    flags = ("--reassignment-json-file", str(path))
    command(cluster, capsys, "reassign", "execute", *flags, "--throttle", "100000000")
    assert "follower.replication.throttled.replicas" in configs(cluster, topic)
    wait_until(lambda: state(cluster, topic)[0] == (3, [3, 2], [2, 3]), "not moved")
    said = command(cluster, capsys, "reassign", "verify", *flags)
    assert f"Reassignment of replica {topic}-0-3 completed successfully." in said
    assert f"Clearing topic-level throttles on topics {topic}" in said
    assert "follower.replication.throttled.replicas" not in configs(cluster, topic)


def configs(cluster: Cluster, topic: str) -> set[str]:
    """Returns the configs that are set on the topic itself."""
    admin = client(cluster)
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    found = future.result(120).values()
    return {str(entry.name) for entry in found if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}


def test_a_proposal_keeps_the_replication_factor(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = command(
        cluster, capsys, "reassign", "generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,3"
    )
    proposal = json.loads(said.rstrip().splitlines()[-1])
    assert [set(row["replicas"]) for row in proposal["partitions"]] == [{1, 3}, {1, 3}]


def test_kafkas_own_tools_move_and_elect(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    moved = plan(tmp_path, topic, {0: [3, 2], 1: [3, 1]})
    done = tool("reassign.ReassignPartitionsCommand", cluster, "--reassignment-json-file", moved, "--execute")
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in done
    wait_until(lambda: all(row[0] == 3 for row in state(cluster, topic).values()), "not moved")
    done = tool("reassign.ReassignPartitionsCommand", cluster, "--reassignment-json-file", moved, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in done
    assert "Clearing broker-level throttles on brokers 1,2,3" in done
    cluster.stop_broker(3)
    cluster.start_broker(3)
    wait_until(lambda: all(3 in row[2] for row in state(cluster, topic).values()), "3 is not in sync")
    done = tool("LeaderElectionCommand", cluster, "--election-type", "preferred", "--all-topic-partitions")
    assert f"{topic}-0" in done
    wait_until(lambda: {row[0] for row in state(cluster, topic).values()} == {3}, "3 does not lead")


@pytest.mark.full
def test_kafkas_own_tools_say_what_is_true_during_faults(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """A move to a dead broker, a dead preferred leader, and a partition without a leader."""
    from barnabas.cli.reassign import _Cluster

    jvm = programs.java(cluster.bootstrap)

    def run(name: str, *arguments: str, code: int = 0) -> str:
        result = jvm.tool(f"org.apache.kafka.tools.{name}", "--bootstrap-server", cluster.bootstrap, *arguments)
        assert result.code == code, result.text
        return result.text

    def listed(which: str) -> set[str]:
        shown = run("TopicCommand", "--describe", f"--{which}-partitions")
        return {
            f"{name}-{index}" for name, index in re.findall(r"Topic: (\S+)\s+Partition: (\d+)", shown) if name == topic
        }

    moved = plan(tmp_path, topic, {0: [3, 2], 1: [3, 1]})
    reassign, elect = "reassign.ReassignPartitionsCommand", "LeaderElectionCommand"
    both = {f"{topic}-0", f"{topic}-1"}
    try:
        cluster.kill(3)
        wait_until(lambda: 3 not in brokers(cluster), "3 is fenced")
        # Kafka's tool begins no move to a broker that is down; the cluster itself accepts one.
        assert "Unknown broker id 3" in run(reassign, "--reassignment-json-file", moved, "--execute", code=1)
        assert _Cluster(cluster.bootstrap, None).alter({(topic, 0): [3, 2], (topic, 1): [3, 1]}) == {}
        assert f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1." in run(reassign, "--list")
        assert f"{topic}-0 is still in progress" in run(reassign, "--reassignment-json-file", moved, "--verify")
        assert "Adding Replicas: 3" in run("TopicCommand", "--describe", "--topic", topic)
        assert listed("under-replicated") == set(), "replicas that are being added are not missed"
        cancelled = run(reassign, "--reassignment-json-file", moved, "--preserve-throttles", "--cancel")
        assert f"Successfully cancelled partition reassignments for: {topic}-0,{topic}-1" in cancelled
        assert "No partition reassignments found." in run(reassign, "--list")
        cluster.start_broker(3)
        cluster.kill(1)
        wait_until(lambda: {row[0] for row in state(cluster, topic).values()} == {2}, "2 does not lead")
        assert listed("under-replicated") == listed("at-min-isr") == both
        assert listed("under-min-isr") == listed("unavailable") == set()
        # The cancelled move left the replicas in the order 2,1 and 1,2.
        refused = run(elect, "--election-type", "preferred", "--topic", topic, "--partition", "1", code=1)
        assert "PreferredLeaderNotAvailableException" in refused
        needless = run(elect, "--election-type", "preferred", "--topic", topic, "--partition", "0")
        assert f"Valid replica already elected for partitions {topic}-0" in needless
        cluster.kill(2)
        cluster.start_broker(1)
        wait_until(lambda: {row[0] for row in state(cluster, topic).values()} == {-1}, "somebody leads")
        assert listed("unavailable") == listed("under-min-isr") == both
        elected = run(elect, "--election-type", "unclean", "--topic", topic, "--partition", "0")
        assert f"(UNCLEAN) for partitions {topic}-0" in elected
        assert listed("unavailable") == {f"{topic}-1"}
        cluster.start_broker(2)
        wait_until(lambda: all(row[2] == [1, 2] for row in state(cluster, topic).values()), "1 and 2 are not in sync")
        assert listed("under-replicated") == listed("unavailable") == set()
    finally:
        jvm.close()


def tool(name: str, cluster: Cluster, *arguments: str) -> str:
    jvm = programs.java(cluster.bootstrap)
    done = jvm.tool(f"org.apache.kafka.tools.{name}", "--bootstrap-server", cluster.bootstrap, *arguments)
    assert done.code == 0, done.text
    return done.out
