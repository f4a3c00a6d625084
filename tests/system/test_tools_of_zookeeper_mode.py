"""Kafka's command line tools, unmodified, on a cluster of ours in ZooKeeper mode: those of 2.8.2 with `--zookeeper`, as
articles show them, which write znodes and leave the rest to the controller; those of 3.9.1 and 4.1.0 with
`--bootstrap-server`. Besides them our own commands that only the controller answers.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.clients import wire
from tests.support.process_nodes import until

import kafka28_jars
import kafka39_jars
import kafka_jars
from barnabas.cli import entry
from barnabas.embedded.zookeeper_session import ZookeeperSession
from barnabas.testing import Cluster

TOOLS = "org.apache.kafka.tools"
TOPICS_28, TOPICS_39 = "kafka.admin.TopicCommand", f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS, TRANSACTIONS = f"{TOOLS}.consumer.group.ConsumerGroupCommand", f"{TOOLS}.TransactionsCommand"
RECORDS, LOG_DIRS = f"{TOOLS}.DeleteRecordsCommand", f"{TOOLS}.LogDirsCommand"
ELECTION = f"{TOOLS}.LeaderElectionCommand"
PREFERRED_28 = "kafka.admin.PreferredReplicaLeaderElectionCommand"
REASSIGN_28, REASSIGN_39 = "kafka.admin.ReassignPartitionsCommand", f"{TOOLS}.reassign.ReassignPartitionsCommand"
ROW = re.compile(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S+)")
WAIT_S = 60.0
Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    properties = {
        "auto.leader.rebalance.enable": "false",
        "zookeeper.session.timeout.ms": "6000",
        "group.initial.rebalance.delay.ms": "0",
        # A test may leave a transaction that no coordinator knows.
        "transaction.partition.verification.enable": "false",
    }
    folder = tmp_path_factory.mktemp("brokers")
    with Cluster(folder, brokers=3, zookeeper=True, properties=properties) as made:
        yield made


def text_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout
    return done.stdout


@pytest.fixture
def old(cluster: Cluster) -> Run:
    """Runs a tool of 2.8.2 on the ZooKeeper server."""
    return lambda main, *args: text_of(kafka28_jars.run_tool(main, "--zookeeper", cluster.zookeeper, *args))


@pytest.fixture
def new(cluster: Cluster) -> Run:
    """Runs a tool of 3.9.1 on the brokers."""
    return lambda main, *args: text_of(kafka39_jars.run_tool(main, "--bootstrap-server", cluster.bootstrap, *args))


def state(cluster: Cluster, topic: str, partition: int) -> Any:
    with ZookeeperSession(cluster.zookeeper) as session:
        found = session.read(f"/brokers/topics/{topic}/partitions/{partition}/state")
    return None if found is None or found.data is None else json.loads(found.data)


def leader_of(cluster: Cluster, topic: str, partition: int) -> int | None:
    found = state(cluster, topic, partition)
    return None if found is None else int(found["leader"])


def exists(cluster: Cluster, path: str) -> bool:
    with ZookeeperSession(cluster.zookeeper) as session:
        return session.read(path) is not None


def leaders(described: str) -> dict[int, int]:
    return {int(number): int(leader) for number, leader, _, _ in ROW.findall(described)}


def replicas(described: str) -> dict[int, str]:
    return {int(number): listed for number, _, listed, _ in ROW.findall(described)}


def plan(folder: Path, moves: dict[tuple[str, int], list[int]]) -> str:
    rows = [{"topic": topic, "partition": number, "replicas": row} for (topic, number), row in moves.items()]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def fill(cluster: Cluster, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(100 * partitions):
        producer.produce(topic, b"x" * 1000, partition=number % partitions)
    assert producer.flush(WAIT_S) == 0


@pytest.mark.full
def test_topics_and_a_preferred_election_by_znodes(cluster: Cluster, old: Run) -> None:
    """The failover that articles tell: a leader dies, another one leads, and a tool brings it back."""

    def first_leaders() -> list[int | None]:
        return [leader_of(cluster, "articles", number) for number in range(3)]

    def isrs_are_full() -> bool:
        return all(len(state(cluster, "articles", number)["isr"]) == 3 for number in range(3))

    assignment = ("--replica-assignment", "1:2:3,2:3:1,3:1:2")
    assert "Created topic articles." in old(TOPICS_28, "--create", "--topic", "articles", *assignment)
    until("leaders", lambda: first_leaders() == [1, 2, 3])
    cluster.kill(1)
    try:
        until("another leader", lambda: first_leaders() == [2, 2, 3])
        described = old(TOPICS_28, "--describe", "--under-replicated-partitions", "--topic", "articles")
        assert leaders(described) == {0: 2, 1: 2, 2: 3}
    finally:
        cluster.start_broker(1)
    until("full ISRs", isrs_are_full)
    assert first_leaders() == [2, 2, 3]
    assert "Successfully started preferred replica election" in old(PREFERRED_28)
    until("the end of the election", lambda: not exists(cluster, "/admin/preferred_replica_election"))
    assert first_leaders() == [1, 2, 3]


def test_our_commands_ask_the_controller(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The controller is not the first broker that a client knows."""

    def command(*words: str) -> str:
        assert entry.run([*words, "--bootstrap", cluster.bootstrap]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    def controller() -> int | None:
        with ZookeeperSession(cluster.zookeeper) as session:
            found = session.read("/controller")
        return None if found is None or found.data is None else int(json.loads(found.data)["brokerid"])

    def registered() -> list[str]:
        with ZookeeperSession(cluster.zookeeper) as session:
            return sorted(session.children("/brokers/ids"))

    if controller() == 1:
        cluster.expire_session(1)
    until("another controller", lambda: controller() in (2, 3))
    until("all brokers registered", lambda: registered() == ["1", "2", "3"])
    command("topics", "create", "ours", "--partitions", "2", "--replication-factor", "3")
    moves = ("--reassignment-json-file", plan(tmp_path, {("ours", 0): [1, 2, 3], ("ours", 1): [3, 2, 1]}))
    assert "Successfully started partition reassignment(s) for ours-0,ours-1" in command("reassign", "execute", *moves)
    until("the end of the moves", lambda: command("reassign", "verify", *moves).count("is completed.") == 2)
    command("elect", "--type", "preferred", "--all-topic-partitions")
    until("preferred leaders", lambda: [leader_of(cluster, "ours", number) for number in (0, 1)] == [1, 3])
    elected = command("elect", "--type", "preferred", "--topic", "ours", "--partition", "1")
    assert "Valid replica already elected for partitions ours-1" in elected
    # Brokers in ZooKeeper mode cannot check that the replication factor stays, so the command does.
    fewer = plan(tmp_path, {("ours", 0): [2, 3], ("ours", 1): [1, 2, 3]})
    fixed = ["reassign", "execute", "--reassignment-json-file", fewer, "--disallow-replication-factor-change"]
    assert entry.run([*fixed, "--bootstrap", cluster.bootstrap]) == 1
    refusal = "ours-0: The replication factor is changed from 3 to 2 (INVALID_REPLICATION_FACTOR)"
    assert refusal in capsys.readouterr().err
    until("the move that keeps it", lambda: command("reassign", "verify", *moves).count("is completed.") == 1)
    described = json.loads(command("topics", "describe", "ours", "--json"))
    assert [row["replicas"] for row in described[0]["partitions"]] == [[1, 2, 3], [1, 2, 3]], described


@pytest.mark.full
def test_configurations_partitions_and_moves_by_znodes(cluster: Cluster, old: Run, new: Run, tmp_path: Path) -> None:
    assignment = ("--replica-assignment", "1:2,2:3")
    old(TOPICS_28, "--create", "--topic", "old", *assignment, "--config", "retention.ms=90000")
    until("leaders", lambda: leaders(old(TOPICS_28, "--describe", "--topic", "old")) == {0: 1, 1: 2})
    assert "old" in old(TOPICS_28, "--list").split()
    assert "retention.ms=90000" in new(TOPICS_39, "--describe", "--topic", "old")
    fill(cluster, "old", 2)

    entity = ("--entity-type", "topics", "--entity-name", "old")
    old(CONFIGS, *entity, "--alter", "--add-config", "cleanup.policy=[compact,delete]")
    assert "cleanup.policy=compact,delete" in old(CONFIGS, *entity, "--describe")
    until("the setting", lambda: "cleanup.policy=compact,delete" in new(TOPICS_39, "--describe", "--topic", "old"))

    assert "Adding partitions succeeded!" in old(TOPICS_28, "--alter", "--topic", "old", "--partitions", "4")
    until("partitions", lambda: set(leaders(new(TOPICS_39, "--describe", "--topic", "old"))) == {0, 1, 2, 3})

    where = ("--reassignment-json-file", plan(tmp_path, {("old", 0): [3], ("old", 1): [1, 2]}))
    assert "Successfully started partition reassignments" in old(REASSIGN_28, *where, "--execute")
    until("the end of the moves", lambda: not exists(cluster, "/admin/reassign_partitions"))
    verified = old(REASSIGN_28, *where, "--verify")
    assert [f"Reassignment of partition old-{number} is complete." in verified for number in (0, 1)] == [True] * 2
    described = new(TOPICS_39, "--describe", "--topic", "old")
    assert {number: replicas(described)[number] for number in (0, 1)} == {0: "3", 1: "1,2"}

    assert "Topic old is marked for deletion." in old(TOPICS_28, "--delete", "--topic", "old")
    until("the end of the topic", lambda: not exists(cluster, "/brokers/topics/old"))
    assert "old" not in new(TOPICS_39, "--list").split()


@pytest.mark.full
def test_the_tools_of_the_last_release_with_zookeeper(cluster: Cluster, new: Run, tmp_path: Path) -> None:
    new(
        TOPICS_39, "--create", "--topic", "new", "--replica-assignment", "1:2:3,2:3:1", "--config", "retention.ms=90000"
    )
    fill(cluster, "new", 2)
    new(TOPICS_39, "--alter", "--topic", "new", "--partitions", "3", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    assert leaders(new(TOPICS_39, "--describe", "--topic", "new")) == {0: 1, 1: 2, 2: 3}

    for entity, setting in (
        (("--entity-type", "topics", "--entity-name", "new"), "cleanup.policy=compact"),
        (("--entity-type", "brokers", "--entity-name", "2"), "log.cleaner.threads=2"),
        (("--entity-type", "brokers", "--entity-default"), "log.cleaner.backoff.ms=14000"),
    ):
        assert "Completed updating" in new(CONFIGS, *entity, "--alter", "--add-config", setting)
        until(setting, lambda entity=entity, setting=setting: setting in new(CONFIGS, *entity, "--describe"))  # type: ignore[misc]
        name = setting.partition("=")[0]
        new(CONFIGS, *entity, "--alter", "--delete-config", name)
        until(f"no {name}", lambda entity=entity, setting=setting: setting not in new(CONFIGS, *entity, "--describe"))  # type: ignore[misc]

    where = ("--reassignment-json-file", plan(tmp_path, {("new", 0): [2, 3], ("new", 1): [1, 3, 2]}))
    new(REASSIGN_39, *where, "--execute", "--throttle", "10000000")
    until("the end of the moves", lambda: "No partition reassignments found." in new(REASSIGN_39, "--list"))
    verified = new(REASSIGN_39, *where, "--verify")
    assert verified.count("is completed.") == 2
    assert "Clearing topic-level throttles on topic new" in verified

    new(f"{TOOLS}.LeaderElectionCommand", "--election-type", "PREFERRED", "--all-topic-partitions")
    described = new(TOPICS_39, "--describe", "--topic", "new")
    assert leaders(described) == {0: 2, 1: 1, 2: 3}
    assert replicas(described) == {0: "2,3", 1: "1,3,2", 2: "3,1,2"}

    directories = new(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "new")
    answer = json.loads(next(line for line in directories.splitlines() if line.startswith("{")))
    found = {
        broker["broker"]: {row["partition"]: row["size"] for row in directory["partitions"]}
        for broker in answer["brokers"]
        for directory in broker["logDirs"]
    }
    assert {number: set(rows) for number, rows in found.items()} == {
        1: {"new-1", "new-2"},
        2: {"new-0", "new-1", "new-2"},
        3: {"new-0", "new-1", "new-2"},
    }
    assert len({found[number]["new-1"] for number in (1, 2, 3)}) == 1

    consumer = ("--topic", "new", "--group", "readers", "--from-beginning", "--max-messages", "200")
    read = new(f"{TOOLS}.consumer.ConsoleConsumer", *consumer, "--timeout-ms", "30000")
    assert len(read.splitlines()) == 200
    groups = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    assert new(groups, "--list").split() == ["readers"]
    shown = new(groups, "--describe", "--group", "readers")
    assert sorted(re.findall(r"readers\s+new\s+(\d)\s+(\d+)\s+(\d+)\s+0 ", shown)) == [
        ("0", "100", "100"),
        ("1", "100", "100"),
        ("2", "0", "0"),
    ]
    new(TOPICS_39, "--delete", "--topic", "new")
    assert "new" not in new(TOPICS_39, "--list").split()


@pytest.mark.full
@pytest.mark.parametrize("jars", [pytest.param(kafka39_jars, id="3.9.1"), pytest.param(kafka_jars, id="4.1.0")])
def test_groups_transactions_records_and_leaders_by_tools(cluster: Cluster, tmp_path: Path, jars: ModuleType) -> None:
    def run(main: str, *args: str) -> str:
        return text_of(jars.run_tool(main, "--bootstrap-server", cluster.bootstrap, *args))

    topic = f"worked-{jars.__name__}"
    run(TOPICS_39, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
    fill(cluster, topic, 2)

    group = f"group-{jars.__name__}"
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--execute")
    run(GROUPS, *reset, "--to-offset", "40")
    lags = re.findall(rf"^{group}\s+{topic}\s+\d\s+40\s+100\s+60\s", run(GROUPS, "--describe", "--group", group), re.M)
    assert len(lags) == 2
    run(GROUPS, *reset, "--to-latest")
    assert re.search(rf"{topic}\s+1\s+100\s+100\s+0\s", run(GROUPS, "--describe", "--group", group))
    assert group in run(GROUPS, "--list")
    assert "was successful" in run(GROUPS, "--delete", "--group", group)
    assert group not in run(GROUPS, "--list")

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"id-{topic}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(WAIT_S) == 0
    listed = run(TRANSACTIONS, "list")
    assert re.search(rf"^id-{topic}\s+\d\s+\d+\s+Ongoing", listed, re.M), listed
    assert f"{topic}-0" in run(TRANSACTIONS, "describe", "--transactional-id", f"id-{topic}")
    producers = run(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(r"^\d+\s+\d+\s+-1\s+0\s.*\s100\s", producers, re.M), producers
    producer.abort_transaction(WAIT_S)

    offsets = {"version": 1, "partitions": [{"topic": topic, "partition": 1, "offset": 30}]}
    (tmp_path / "offsets.json").write_text(json.dumps(offsets))
    deleted = run(RECORDS, "--offset-json-file", str(tmp_path / "offsets.json"))
    assert f"partition: {topic}-1\tlow_watermark: 30" in deleted

    described = run(LOG_DIRS, "--describe", "--topic-list", topic)
    directories = json.loads(next(line for line in described.splitlines() if line.startswith("{")))["brokers"]
    found = [row["partition"] for each in directories for log in each["logDirs"] for row in log["partitions"]]
    assert sorted(found) == [f"{topic}-0"] * 3 + [f"{topic}-1"] * 3

    before = replicas(run(TOPICS_39, "--describe", "--topic", topic))
    turned = {(topic, number): [int(each) for each in reversed(row.split(","))] for number, row in before.items()}
    moves = ("--reassignment-json-file", plan(tmp_path, turned))
    assert "Successfully started partition reassignment" in run(REASSIGN_39, *moves, "--execute")
    until("the moves", lambda: run(REASSIGN_39, *moves, "--verify").count("is completed.") == 2)
    run(ELECTION, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    run(ELECTION, "--election-type", "preferred", "--topic", topic, "--partition", "1")
    wanted = {number: row[0] for (_, number), row in turned.items()}
    until("preferred leaders", lambda: leaders(run(TOPICS_39, "--describe", "--topic", topic)) == wanted)


def settings_of(cluster: Cluster, group: str) -> dict[str, str | int | float | bool]:
    """Returns the settings of a member of this group that commits only when it is told to."""
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap, "group.id": group}
    return {**settings, "client.id": "the-member", "auto.offset.reset": "earliest", "enable.auto.commit": False}


@pytest.mark.full
def test_members_and_offsets_of_a_group(cluster: Cluster, new: Run, tmp_path: Path) -> None:
    """ConsumerGroupCommand shows a member, resets offsets in each way, and exports and imports them."""
    topic, group = "consumed", "consumers"

    def groups(*args: str) -> str:
        return new(GROUPS, "--timeout", "60000", *args)

    new(TOPICS_39, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
    fill(cluster, topic, 2)
    one = ("--group", group)
    with closing(Consumer(settings_of(cluster, group))) as member:
        member.subscribe([topic])
        read: list[bytes | None] = []

        def has_everything() -> bool:
            read.extend(record.value() for record in member.consume(200, 0.5) if record.error() is None)
            return len(read) == 200

        until("all records", has_everything)
        member.commit(asynchronous=False)
        members = groups("--describe", *one, "--members", "--verbose")
        # The tool of 3.9.1 does not name the topic.
        row = rf"^{group}\s+the-member\S+\s+/127.0.0.1\s+the-member\s+2\s+\(0,1\)"
        assert re.search(row, members, re.M), members
        state = groups("--describe", *one, "--state")
        assert re.search(rf"^{group}\s+\S+ +\(\d\)\s+range\s+Stable\s+1", state, re.M), state
        assert re.search(rf"^{group}\s+Classic\s+Stable", groups("--list", "--state", "--type"), re.M)
        refused = kafka39_jars.run_tool(GROUPS, "--bootstrap-server", cluster.bootstrap, "--delete", *one)
        assert "GroupNotEmptyException" in refused.stdout + refused.stderr

    def committed() -> list[str]:
        return re.findall(rf"^{group}\s+{topic}\s+\d\s+(\d+)\s", groups("--describe", *one), re.M)

    reset = ("--reset-offsets", *one, "--topic", topic)
    for way, expected in (
        (("--to-earliest",), "0"),
        (("--shift-by", "30"), "30"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
        (("--by-duration", "PT0S"), "100"),
    ):
        groups(*reset, *way, "--execute")
        assert committed() == [expected] * 2, way
    exported = groups(*reset, "--to-offset", "20", "--export", "--dry-run")
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in exported.splitlines() if line.startswith(topic)))
    groups("--reset-offsets", *one, "--from-file", str(file), "--execute")
    assert committed() == ["20", "20"]
    assert "Successful" in groups("--delete-offsets", *one, "--topic", f"{topic}:0")
    assert committed() == ["20"]
    assert "was successful" in groups("--delete", *one)


@pytest.mark.full
def test_a_hanging_transaction_is_found_and_aborted(cluster: Cluster, new: Run) -> None:
    """A producer that no coordinator knows wrote the transaction."""
    topic = "hung"
    new(TOPICS_39, "--create", "--topic", topic, "--replica-assignment", "2:3:1")
    fill(cluster, topic, 1)
    lost = wire.batch([wire.record(0, None, b"lost")], attributes=0x10, producer=(99_999, 0, 0))
    with wire.Wire(int(cluster.bootstrap.split(",")[1].rpartition(":")[2])) as connection:
        # The first field of the request is the transactional id, and that was null.
        body = struct.pack(">h4s", 4, b"lost") + wire.produce_body(topic, 0, lost, acks=-1)[2:]
        answer = connection.request(wire.PRODUCE, 7, body)
    _, error, offset = struct.unpack_from(">ihq", answer, 4 + 2 + len(topic) + 4)
    assert (error, offset) == (0, 100)

    def hanging() -> list[tuple[str, str]]:
        found = new(TRANSACTIONS, "find-hanging", "--broker-id", "2")
        return re.findall(rf"^{topic}\s+(\d)\s+(\d+)\s", found, re.M)

    assert hanging() == [("0", "99999")]
    new(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "100")
    assert hanging() == []
    producers = new(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(r"^99999\s+0\s+.*\sNone\s*$", producers, re.M), producers
