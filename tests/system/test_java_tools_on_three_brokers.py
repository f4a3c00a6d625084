"""Kafka 4.1.0's own admin tools against a cluster of three brokers that vote together, through both kinds of
listeners.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients import programs
from tests.clients.drivers import ProcessClient, ToolResult

import kafka_jars
from barnabas.cli.app import run as run_barnabas
from barnabas.common.errors import ErrorCode
from barnabas.embedded.settings import new_cluster_id
from barnabas.protocol import codec
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.testing import Cluster

TOOLS = "org.apache.kafka.tools"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"
FEATURES = f"{TOOLS}.FeatureCommand"
TOPICS = f"{TOOLS}.TopicCommand"
CLUSTER = f"{TOOLS}.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
BY_BROKERS, BY_CONTROLLERS = "--bootstrap-server", "--bootstrap-controller"
both_listeners = pytest.mark.parametrize("listener", [BY_BROKERS, BY_CONTROLLERS])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("three"), brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def jvm(cluster: Cluster) -> Iterator[ProcessClient]:
    java = programs.java(cluster.bootstrap)
    yield java
    java.close()


@pytest.fixture
def addresses(cluster: Cluster) -> dict[str, str]:
    return {BY_BROKERS: cluster.bootstrap, BY_CONTROLLERS: cluster.controllers}


Run = Callable[..., ToolResult]


@pytest.fixture
def run(jvm: ProcessClient, addresses: dict[str, str]) -> Run:
    """Runs a tool by a kind of listener; its exit code is as said."""

    def run(main: str, *args: str, listener: str = BY_BROKERS, code: int = 0) -> ToolResult:
        where = (listener, addresses[listener])
        # The cluster tool takes the listener as an option of its commands.
        words = (*args, *where) if main == CLUSTER else (*where, *args)
        result = jvm.tool(main, *words)
        assert result.code == code, result.text
        return result

    return run


def labelled(text: str) -> dict[str, str]:
    """Lines of the form "Label:   value"."""
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def rows(text: str) -> list[dict[str, str]]:
    """Returns the rows of a table whose first line names its columns."""
    header, *lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(header, line, strict=False)) for line in lines]


def settled(look: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@both_listeners
def test_quorum_is_described(run: Run, listener: str) -> None:
    status = labelled(run(QUORUM, "describe", "--status", listener=listener).out)
    leader = int(status["LeaderId"])
    assert leader in (1, 2, 3)
    assert int(status["LeaderEpoch"]) >= 1
    assert int(status["HighWatermark"]) > 0
    assert status["MaxFollowerLag"].isdigit()
    assert re.findall(r'"id": (\d)', status["CurrentVoters"]) == ["1", "2", "3"]
    assert status["CurrentObservers"] == "[]"

    replicas = rows(run(QUORUM, "describe", "--replication", listener=listener).out)
    assert sorted((row["NodeId"], row["Status"]) for row in replicas) == sorted(
        (str(node), "Leader" if node == leader else "Follower") for node in (1, 2, 3)
    )
    assert all(int(row["LogEndOffset"]) > 0 and int(row["Lag"]) >= 0 for row in replicas)


def test_static_voters_are_neither_added_nor_removed(run: Run) -> None:
    removed = run(QUORUM, "remove-controller", "-i", "3", "-d", "AAAAAAAAAAAAAAAAAAAAAQ", code=1)
    assert "kraft.version feature is 0" in removed.text


@both_listeners
def test_features_are_described_and_changed(run: Run, listener: str) -> None:
    def levels() -> dict[str, str]:
        shown = run(FEATURES, "describe", listener=listener).out
        return dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", shown))

    before = levels()
    assert before["metadata.version"] == "4.1-IV1"
    assert (before["group.version"], before["transaction.version"]) == ("1", "2")
    assert before["kraft.version"] == "0"

    validated = run(FEATURES, "downgrade", "--feature", "group.version=0", "--dry-run", listener=listener)
    assert "group.version can be downgraded to 0." in validated.out
    assert levels() == before
    run(FEATURES, "downgrade", "--feature", "group.version=0", listener=listener)
    settled(lambda: levels().get("group.version") == "0", "the level is down")
    upgraded = run(FEATURES, "upgrade", "--feature", "group.version=1", listener=listener)
    assert "group.version was upgraded to 1." in upgraded.out
    settled(lambda: levels() == before, "the level is up again")

    refused = run(FEATURES, "downgrade", "--metadata", "3.7-IV4", listener=listener, code=1)
    assert "Refusing to perform the requested downgrade because it might delete metadata information." in refused.text
    validated = run(FEATURES, "upgrade", "--feature", "kraft.version=1", "--dry-run", listener=listener)
    assert "kraft.version can be upgraded to 1." in validated.out
    assert levels() == before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_node_takes_an_update_of_features(cluster: Cluster, version: int) -> None:
    """Two of the three brokers must pass it on, and say what the controller says; a controller that does not lead
    says so."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=9)
    refused = UpdateFeaturesRequest(feature_updates=[update])
    same = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)
    accepted = UpdateFeaturesRequest(feature_updates=[same])

    for address in cluster.bootstrap.split(","):
        answer = call(address, refused, version)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        text = r"The update failed .* 9 for feature group.version. Local controller \d only supports versions 0-1"
        assert re.fullmatch(text, answer.error_message or "")
        answer = call(address, accepted, version)
        assert (answer.error_code, answer.error_message) == (0, None)
        named = [] if version == 2 else [("group.version", 0, "NONE")]
        assert [(each.feature, each.error_code, each.error_message) for each in answer.results] == named

    def codes() -> list[int]:
        return sorted(call(address, accepted, version).error_code for address in cluster.controllers.split(","))

    settled(lambda: codes() == [0, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER], "one controller leads")


def call(address: str, request: UpdateFeaturesRequest, version: int) -> UpdateFeaturesResponse:
    host, _, port = address.rpartition(":")
    frame = codec.encode(RequestHeader(request_api_key=57, request_api_version=version, correlation_id=5), 2)
    codec.encode_into(request, version, frame)
    with socket.create_connection((host, int(port)), timeout=60) as link, link.makefile("rb") as stream:
        link.sendall(len(frame).to_bytes(4, "big") + frame)
        body = stream.read(int.from_bytes(stream.read(4), "big"))
    assert body[:5] == bytes([0, 0, 0, 5, 0])
    return codec.decode(UpdateFeaturesResponse, version, body, 5)[0]


@both_listeners
def test_cluster_tool(run: Run, cluster: Cluster, listener: str) -> None:
    shown = run(CLUSTER, "cluster-id", listener=listener).out
    stored = (cluster.data_directory / "meta.properties").read_text()
    assert f"cluster.id={shown.split()[-1]}" in stored
    endpoints = rows(run(CLUSTER, "list-endpoints", listener=listener).out)
    assert sorted(row["ID"] for row in endpoints) == ["1", "2", "3"]
    unknown = run(CLUSTER, "unregister", "--id", "9", listener=listener, code=1)
    assert "Broker ID 9 is not currently registered" in unknown.text


@both_listeners
def test_configs_of_brokers_and_topics(run: Run, listener: str) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "2")
    run(CONFIGS, *one, "--alter", "--add-config", "log.cleaner.threads=2", listener=listener)
    settled(lambda: "log.cleaner.threads=2" in run(CONFIGS, *one, "--describe", listener=listener).out, "the new value")
    run(CONFIGS, *one, "--alter", "--delete-config", "log.cleaner.threads", listener=listener)
    everywhere = ("--entity-type", "brokers", "--entity-default")
    run(CONFIGS, *everywhere, "--alter", "--add-config", "log.cleaner.backoff.ms=14000", listener=listener)
    settled(
        lambda: "backoff.ms=14000" in run(CONFIGS, *everywhere, "--describe", listener=listener).out, "the new value"
    )
    run(CONFIGS, *everywhere, "--alter", "--delete-config", "log.cleaner.backoff.ms", listener=listener)


def test_topics_with_one_broker_down(run: Run, cluster: Cluster) -> None:
    run(TOPICS, "--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "3")
    run(TOPICS, "--create", "--topic", "alone", "--replica-assignment", "3", "--config", "min.insync.replicas=1")
    run(TOPICS, "--create", "--topic", "strict", "--replica-assignment", "1:2:3", "--config", "min.insync.replicas=3")
    run(CONFIGS, "--entity-type", "topics", "--entity-name", "spread", "--alter", "--add-config", "retention.ms=90000")

    def listed(*which: str) -> set[tuple[str, str]]:
        shown = run(TOPICS, "--describe", *which).out
        return set(re.findall(r"Topic: (\S+)\s+Partition: (\d+)", shown))

    def sets() -> list[tuple[str, ...]]:
        shown = run(TOPICS, "--describe", "--topic", "spread").out
        return [tuple(sorted(isr.split(","))) for isr in re.findall(r"Isr: (\S+)", shown)]

    settled(lambda: sets() == [("1", "2", "3")] * 6, "all replicas are in sync")
    assert "retention.ms=90000" in run(TOPICS, "--describe", "--topic", "spread").out
    for which in ("under-replicated", "unavailable", "at-min-isr", "under-min-isr"):
        expected = {("alone", "0"), ("strict", "0")} if which == "at-min-isr" else set()
        settled(lambda which=which, expected=expected: listed(f"--{which}-partitions") == expected, which)  # type: ignore[misc]

    cluster.kill(3)
    try:
        spread = {("spread", str(number)) for number in range(6)}
        everything = spread | {("alone", "0"), ("strict", "0")}
        settled(lambda: listed("--under-replicated-partitions") == everything, "broker 3 is missed")
        settled(lambda: listed("--unavailable-partitions") == {("alone", "0")}, "nobody leads its only replica")
        settled(lambda: listed("--at-min-isr-partitions") == spread, "two are left, as min.insync.replicas says")
        under = {("alone", "0"), ("strict", "0")}
        settled(lambda: listed("--under-min-isr-partitions") == under, "fewer are left than min.insync.replicas says")
        shown = rows(run(CLUSTER, "list-endpoints", "--include-fenced-brokers").out)
        assert {row["ID"]: row["STATE"] for row in shown} == {"1": "unfenced", "2": "unfenced", "3": "fenced"}
        assert "Broker 3 is no longer registered." in run(CLUSTER, "unregister", "--id", "3").out

        def left() -> list[str]:
            return [row["ID"] for row in rows(run(CLUSTER, "list-endpoints", "--include-fenced-brokers").out)]

        settled(lambda: left() == ["1", "2"], "it is forgotten")
    finally:
        cluster.start_broker(3)
    settled(lambda: listed("--under-replicated-partitions") == set(), "it is in sync again")
    run(TOPICS, "--delete", "--topic", "spread")


def test_a_voter_of_a_dynamic_quorum_is_removed(tmp_path: Path, jvm: ProcessClient) -> None:
    """The quorum is formatted with `barnabas format --initial-controllers`."""
    cluster_id, directories = new_cluster_id(), {node_id: new_cluster_id() for node_id in (1, 2, 3)}
    ports = kafka_jars.free_ports(6)
    at = {node_id: f"127.0.0.1:{ports[node_id + 2]}" for node_id in (1, 2, 3)}
    quorum = ",".join(f"{node_id}@{at[node_id]}:{directories[node_id]}" for node_id in (1, 2, 3))
    processes: list[subprocess.Popen[bytes]] = []
    files = {}
    for node_id in (1, 2, 3):
        files[node_id] = tmp_path / f"{node_id}.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[node_id - 1]},CONTROLLER://{at[node_id]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[node_id - 1]},CONTROLLER://{at[node_id]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(at.values()),
            "log.dirs": str(tmp_path / f"data-{node_id}"),
        }
        files[node_id].write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        assert run_barnabas(["format", str(files[node_id]), "-t", cluster_id, "-I", quorum]) == 0
    try:
        for node_id, file in files.items():
            with (tmp_path / f"{node_id}.log").open("wb") as log:
                command = [sys.executable, "-m", "barnabas.server.main", "broker", str(file)]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        for port, process in zip(ports, processes, strict=False):
            kafka_jars.wait_until_serving(port, process, timeout_s=120)

        def ids(label: str) -> list[str]:
            shown = jvm.tool(QUORUM, BY_BROKERS, f"127.0.0.1:{ports[0]}", "describe", "--status")
            return re.findall(r'"id": (\d)', labelled(shown.out).get(label, ""))

        settled(lambda: ids("CurrentVoters") == ["1", "2", "3"], "the first voters")
        removed = jvm.tool(
            QUORUM, BY_BROKERS, f"127.0.0.1:{ports[0]}", "remove-controller", "-i", "3", "-d", directories[3]
        )
        assert removed.code == 0, removed.text
        settled(lambda: (ids("CurrentVoters"), ids("CurrentObservers")) == (["1", "2"], ["3"]), "it votes no more")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(120)
