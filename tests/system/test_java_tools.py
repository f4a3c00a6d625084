"""Kafka 4.1.0's own command line tools, unmodified, against the server and against the files it writes; in the full
suite also against a broker in ZooKeeper mode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients import programs
from tests.clients.drivers import CODECS, ProcessClient, Record, ToolResult
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server, new_cluster, target

import kafka_jars

TOOLS = "org.apache.kafka.tools"
START_MS = 1_700_000_000_000
Names = Callable[[str], str]
Run = Callable[..., ToolResult]
#: The reason for what brokers in ZooKeeper mode do not have, or have otherwise.
only_with_a_quorum = pytest.mark.parametrize("server", ["quorum"], indirect=True)


@pytest.fixture(scope="module")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if target() == "kafka":
        pytest.skip("Kafka 4.1.0 has no ZooKeeper mode")
    made = new_cluster(tmp_path_factory.mktemp("zookeeper"), 1, zookeeper=True)
    made.start()
    yield made  # type: ignore[misc]
    made.stop()


@pytest.fixture(params=["quorum", pytest.param("zookeeper", marks=pytest.mark.full)])
def server(request: pytest.FixtureRequest) -> Server:
    name = "shared_server" if request.param == "quorum" else "zookeeper_server"
    found: Server = request.getfixturevalue(name)
    return found


@pytest.fixture
def java(server: Server) -> ProcessClient:
    return programs.java(server.bootstrap)


@pytest.fixture
def run(java: ProcessClient, server: Server) -> Run:
    """Runs a tool with --bootstrap-server and requires that it succeeds."""

    def run(main: str, *args: str, stdin: str = "") -> ToolResult:
        result = java.tool(main, *args, "--bootstrap-server", server.bootstrap, stdin=stdin)
        assert result.code == 0, result.text
        return result

    return run


@pytest.fixture
def filled_topic(java: ProcessClient, new_topic_name: Names) -> str:
    """A topic of three partitions, with ten records in its first."""
    topic = new_topic_name("tools")
    java.create_topic(topic, 3)
    java.produce(topic, "none", [Record(f"k{n}".encode(), f"v{n}".encode(), (), START_MS + n) for n in range(10)])
    return topic


def describe(run: Run, topic: str) -> dict[str, str]:
    """Returns the first line of TopicCommand --describe, by its labels."""
    line = run(f"{TOOLS}.TopicCommand", "--describe", "--topic", topic).out.splitlines()[0]
    return {key.strip(): value.strip() for key, value in (field.split(":", 1) for field in line.split("\t") if field)}


def test_topic_command_creates_describes_alters_and_deletes(
    run: Run, java: ProcessClient, server: Server, new_topic_name: Names
) -> None:
    tool = f"{TOOLS}.TopicCommand"
    topic = new_topic_name("topic-command")
    created = run(tool, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=60000")
    assert f"Created topic {topic}." in created.out

    found = describe(run, topic)
    assert found["Topic"] == topic
    assert found["PartitionCount"] == "2"
    assert found["ReplicationFactor"] == "1"
    assert "retention.ms=60000" in found["Configs"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", found["TopicId"])
    partitions = run(tool, "--describe", "--topic", topic).out.splitlines()[1:]
    assert [re.findall(r"(?:Leader|Replicas|Isr): (\S+)", line) for line in partitions] == [["1", "1", "1"]] * 2

    run(tool, "--alter", "--topic", topic, "--partitions", "5")
    assert describe(run, topic)["PartitionCount"] == "5"
    assert topic in run(tool, "--list").out.split()

    again = java.tool(tool, "--bootstrap-server", server.bootstrap, "--create", "--topic", topic)
    assert again.code == 1
    assert f"Topic '{topic}' already exists." in again.text

    run(tool, "--delete", "--topic", topic)
    assert topic not in run(tool, "--list").out.split()


def test_console_producer_and_consumer(run: Run, filled_topic: str) -> None:
    lines = "h1:a,h2:b\tkey-1\tvalue-1\nh3:c\tkey-2\tvalue-2\n"
    properties = ["parse.key=true", "parse.headers=true", "key.separator=\t", "headers.separator=,"]
    flags = [part for each in properties for part in ("--property", each)]
    run(f"{TOOLS}.ConsoleProducer", "--topic", filled_topic, *flags, "--compression-codec", "zstd", stdin=lines)

    shown = ["print.key=true", "print.headers=true", "print.value=true", "print.partition=true"]
    flags = [part for each in shown for part in ("--property", each)]
    where = ("--topic", filled_topic, "--from-beginning", "--max-messages", "12", "--timeout-ms", "20000")
    found = run(f"{TOOLS}.consumer.ConsoleConsumer", *where, *flags).out.splitlines()
    assert len(found) == 12
    texts = [line.split("\t", 1)[1] for line in found]
    assert sum(line.startswith("Partition:0") for line in found) >= 10
    assert [f"NO_HEADERS\tk{n}\tv{n}" for n in range(10)] == [
        text for text in texts if "\tk" in text and "\tkey" not in text
    ]
    assert "h1:a,h2:b\tkey-1\tvalue-1" in texts
    assert "h3:c\tkey-2\tvalue-2" in texts


def test_console_consumer_starts_at_an_offset(run: Run, filled_topic: str) -> None:
    where = ("--topic", filled_topic, "--partition", "0", "--offset", "7", "--max-messages", "3")
    found = run(f"{TOOLS}.consumer.ConsoleConsumer", *where, "--timeout-ms", "20000")
    assert found.out.splitlines() == ["v7", "v8", "v9"]


def test_verifiable_producer_and_consumer(run: Run, server: Server, filled_topic: str) -> None:
    # The producer waits for its acknowledgements in a shutdown hook, so it needs a JVM of its own.
    flags = ("--topic", filled_topic, "--max-messages", "500", "--acks", "-1")
    produced = kafka_jars.run_tool(f"{TOOLS}.VerifiableProducer", "--bootstrap-server", server.bootstrap, *flags)
    summary = json.loads(produced.stdout.splitlines()[-1])
    assert (summary["sent"], summary["acked"]) == (500, 500)

    where = ("--topic", filled_topic, "--group-id", f"verify-{filled_topic}", "--max-messages", "510")
    consumed = run(f"{TOOLS}.VerifiableConsumer", *where, "--reset-policy", "earliest", "--verbose")
    events = [json.loads(line) for line in consumed.out.splitlines() if line.startswith("{")]
    values = [event["value"] for event in events if event["name"] == "record_data"]
    assert sorted(values) == sorted([f"v{n}" for n in range(10)] + [str(n) for n in range(500)])
    assert any(event["name"] == "offsets_committed" and event["success"] for event in events)


def test_performance_producer_and_consumer(run: Run, java: ProcessClient, server: Server, filled_topic: str) -> None:
    load = ("--topic", filled_topic, "--num-records", "5000", "--record-size", "1000", "--throughput", "-1")
    produced = java.tool(
        f"{TOOLS}.ProducerPerformance",
        *load,
        "--producer-props",
        f"bootstrap.servers={server.bootstrap}",
        "linger.ms=5",
    )
    assert produced.code == 0, produced.text
    assert "5000 records sent" in produced.out

    consumed = run(f"{TOOLS}.ConsumerPerformance", "--topic", filled_topic, "--messages", "5010")
    header, row = consumed.out.splitlines()[-2:]
    counts = dict(zip(header.split(", "), row.split(", "), strict=True))
    assert int(counts["data.consumed.in.nMsg"]) == 5010


def test_get_offset_shell_and_delete_records(run: Run, filled_topic: str, tmp_path: Path) -> None:
    def offsets(time: str) -> list[str]:
        shell = run(f"{TOOLS}.GetOffsetShell", "--topic", filled_topic, "--time", time)
        return shell.out.split()

    assert offsets("latest") == [f"{filled_topic}:0:10", f"{filled_topic}:1:0", f"{filled_topic}:2:0"]
    assert offsets("earliest") == [f"{filled_topic}:{n}:0" for n in range(3)]
    assert f"{filled_topic}:0:9" in offsets("max-timestamp")

    wanted = {"partitions": [{"topic": filled_topic, "partition": 0, "offset": 4}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(wanted))
    deleted = run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "delete.json"))
    assert f"partition: {filled_topic}-0\tlow_watermark: 4" in deleted.out
    assert f"{filled_topic}:0:4" in offsets("earliest")
    assert f"{filled_topic}:0:10" in offsets("latest")


def test_log_dirs(run: Run, filled_topic: str, server: Server) -> None:
    described = run(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", filled_topic)
    answer = json.loads(next(line for line in described.out.splitlines() if line.startswith("{")))
    (broker,) = answer["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["logDir"] == str(server.data_dir)
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    log = server.data_dir / f"{filled_topic}-0" / "00000000000000000000.log"
    assert sizes == {f"{filled_topic}-0": log.stat().st_size, f"{filled_topic}-1": 0, f"{filled_topic}-2": 0}


@only_with_a_quorum
def test_broker_api_versions(run: Run) -> None:
    shown = run(f"{TOOLS}.BrokerApiVersionsCommand").out
    assert "(id: 1 rack: null isFenced: false) -> (" in shown
    offered = dict(re.findall(r"^\t(\w+)\(\d+\): (\d+(?: to \d+)?) \[usable: \d+\]", shown, re.MULTILINE))
    expected = {
        "Produce": "0 to 13",
        "Fetch": "4 to 18",
        "ListOffsets": "1 to 10",
        "Metadata": "0 to 13",
        "ApiVersions": "0 to 4",
        "CreateTopics": "2 to 7",
        "InitProducerId": "0 to 5",
        "DescribeTopicPartitions": "0",
    }
    assert {name: offered.get(name) for name in expected} == expected


def test_config_command_shows_and_changes_topic_configs(run: Run, filled_topic: str) -> None:
    tool, topic = "kafka.admin.ConfigCommand", ("--entity-type", "topics", "--entity-name", filled_topic)
    altered = run(tool, *topic, "--alter", "--add-config", "max.message.bytes=2000000,cleanup.policy=[compact,delete]")
    assert f"Completed updating config for topic {filled_topic}." in altered.out
    shown = run(tool, *topic, "--describe").out
    assert "max.message.bytes=2000000 sensitive=false" in shown
    assert "cleanup.policy=compact,delete sensitive=false" in shown
    run(tool, *topic, "--alter", "--delete-config", "cleanup.policy")
    assert "cleanup.policy" not in run(tool, *topic, "--describe").out
    assert "segment.bytes=1073741824" in run(tool, *topic, "--describe", "--all").out


@only_with_a_quorum
def test_groups_and_client_metrics_are_listed_by_what_is_set_for_them(run: Run, new_topic_name: Names) -> None:
    """Tools without a name request all resources of a kind (ListConfigResources)."""
    configs, metrics = "kafka.admin.ConfigCommand", f"{TOOLS}.ClientMetricsCommand"
    group, subscription = new_topic_name("group"), new_topic_name("subscription")
    named = ("--entity-type", "groups", "--entity-name", group)
    run(configs, *named, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    run(metrics, "--alter", "--name", subscription, "--interval", "100000", "--metrics", "org.apache.kafka.")
    assert subscription in run(metrics, "--list").out.split()
    assert subscription in run(metrics, "--describe").out

    groups = run(configs, "--describe", "--entity-type", "groups").out
    assert f"Dynamic configs for group {group} are:" in groups
    assert "consumer.session.timeout.ms=50000" in groups
    subscriptions = run(configs, "--describe", "--entity-type", "client-metrics").out
    assert f"Dynamic configs for client-metric {subscription} are:" in subscriptions
    assert "interval.ms=100000" in subscriptions

    run(configs, *named, "--alter", "--delete-config", "consumer.session.timeout.ms")
    run(metrics, "--delete", "--name", subscription)
    assert group not in run(configs, "--describe", "--entity-type", "groups").out
    assert subscription not in run(metrics, "--list").out


@only_with_a_quorum
def test_config_command_sets_and_shows_quotas(run: Run, java: ProcessClient, server: Server) -> None:
    """Covers users, client ids, client ids of users and addresses, with names and defaults."""
    tool = "kafka.admin.ConfigCommand"
    user, client = ("--entity-type", "users"), ("--entity-type", "clients")
    entities = [
        ((*user, "--entity-name", "alice"), "user-principal 'alice'", "producer_byte_rate=1048576.0"),
        ((*user, "--entity-default"), "default user-principal", "consumer_byte_rate=2048.0"),
        ((*client, "--entity-name", "app"), "client-id 'app'", "request_percentage=50.0"),
        (
            (*user, "--entity-name", "alice", *client, "--entity-default"),
            "user-principal 'alice', the default client-id",
            "controller_mutation_rate=5.0",
        ),
        (("--entity-type", "ips", "--entity-name", "127.9.9.9"), "127.9.9.9", "connection_creation_rate=10.0"),
        (("--entity-type", "ips", "--entity-default"), "default", "connection_creation_rate=20.0"),
    ]
    for arguments, _, quota in entities:
        run(tool, *arguments, "--alter", "--add-config", quota)

    def described(*arguments: str) -> str:
        # The tool lists a user's SCRAM credentials after the quotas.
        return java.tool(tool, "--bootstrap-server", server.bootstrap, *arguments, "--describe").out

    for arguments, name, quota in entities:
        out = described(*arguments)
        assert quota in out, out
        assert name in out, out
    key = "producer_byte_rate"
    refused = java.tool(
        tool, "--bootstrap-server", server.bootstrap, *entities[0][0], "--alter", "--add-config", f"{key}=-1"
    )
    assert refused.code == 1
    assert f"Quota {key} must be greater than 0" in refused.text
    for arguments, _, quota in entities:
        run(tool, *arguments, "--alter", "--delete-config", quota.partition("=")[0])
        assert quota not in described(*arguments)


def test_acls_need_an_authorizer(java: ProcessClient, server: Server) -> None:
    added = ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "orders")
    removed = ("--remove", "--force", *added[1:])
    for arguments in (("--list",), added, removed):
        result = java.tool(f"{TOOLS}.AclCommand", "--bootstrap-server", server.bootstrap, *arguments)
        assert result.code == 1
        assert "SecurityDisabledException: No Authorizer is configured" in result.text


@only_with_a_quorum
def test_share_groups_are_no_feature(java: ProcessClient, server: Server) -> None:
    tool = (f"{TOOLS}.FeatureCommand", "--bootstrap-server", server.bootstrap)
    features = java.tool(*tool, "describe").out
    assert "Feature: group.version" in features
    assert "share.version" not in features
    refused = java.tool(*tool, "upgrade", "--feature", "share.version=1")
    assert refused.code == 1
    assert "Local controller 1 does not support this feature." in refused.text


def test_cluster_id_is_the_one_on_disk(run: Run, server: Server) -> None:
    lines = (server.data_dir / "meta.properties").read_text().splitlines()
    stored = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert run(f"{TOOLS}.ClusterTool", "cluster-id").out.split()[-1] == stored["cluster.id"]


@only_with_a_quorum
def test_dump_log_segments_accepts_every_file(own_server: Callable[..., Server], java: ProcessClient) -> None:
    """Segments that rolled, with all codecs; indexes checked by Kafka's own code; then the metadata log."""
    # Kafka has this floor for segment sizes except under an internal name.
    settings = {"log_segment_bytes": "1048576", "log_index_interval_bytes": "4096"}
    server = own_server(**settings)
    server.start()
    client = ConfluentKafka(server.bootstrap, enable_idempotence=True, batch_num_messages=20)
    client.create_topic("dumped", 1)
    for codec in CODECS:
        made = [Record(f"{codec}-{n}".encode(), bytes(range(256)) * 8, (("h", None),)) for n in range(600)]
        client.produce("dumped", codec, made)
    server.stop()

    folder = server.data_dir / "dumped-0"
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 1
    dumped = dump(java, *logs, flags=("--deep-iteration", "--print-data-log"))
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", dumped, re.MULTILINE)]
    assert offsets == list(range(600 * len(CODECS)))
    assert set(re.findall(r"compresscodec: (\w+)", dumped)) == set(CODECS)
    assert "isvalid: false" not in dumped

    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    assert len(indexes) == 2 * len(logs)
    checked = dump(java, *indexes, flags=("--index-sanity-check",))
    assert checked.count("passed sanity check.") == len(indexes)
    plain = dump(java, *indexes)
    assert "Index position" not in plain or "Mismatch" not in plain
    for complaint in (
        "Found timestamp mismatch",
        "Found out of order timestamp",
        "Non-consecutive offsets",
        "mismatches",
    ):
        assert complaint not in plain + dumped
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots
    assert "producerId: " in dump(java, *snapshots)

    metadata = server.data_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    decoded = dump(java, metadata, flags=("--cluster-metadata-decoder", "--print-data-log"))
    kinds = set(re.findall(r'"type":"(\w+)"', decoded))
    expected = {
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "FEATURE_LEVEL_RECORD",
        "PRODUCER_IDS_RECORD",
    }
    assert expected <= kinds
    assert "LeaderChange" in decoded


def dump(java: ProcessClient, *files: Path, flags: tuple[str, ...] = ()) -> str:
    result = java.tool("kafka.tools.DumpLogSegments", *flags, "--files", ",".join(map(str, files)))
    assert result.code == 0, result.text
    assert "Exception" not in result.text
    return result.text
