"""Kafka 4.1.0's tools on separate controllers and brokers: static voters become dynamic ones, and one is removed and
added again, through both kinds of listeners.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients import programs
from tests.clients.drivers import ProcessClient
from tests.support.process_nodes import Nodes, create_topic, until

from barnabas.common.types import uuid_from_text

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
BY_BROKERS, BY_CONTROLLERS = "--bootstrap-server", "--bootstrap-controller"
CONTROLLERS, BROKER = (1, 2, 3), 4


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path, {**dict.fromkeys(CONTROLLERS, "controller"), BROKER: "broker"})
    try:
        yield nodes.start()
    finally:
        nodes.close()


@pytest.fixture
def jvm(nodes: Nodes) -> Iterator[ProcessClient]:
    java = programs.java(nodes.bootstrap)
    yield java
    java.close()


def directory_id(data: Path) -> str:
    found = re.search(r"directory.id=(\S+)", (data / "meta.properties").read_text())
    assert found is not None
    return found[1]


def caught_up(nodes: Nodes, directory: str) -> bool:
    """Returns whether an observer with this directory has once had everything, as its leader reports."""
    return any(
        state.replica_directory_id == uuid_from_text(directory) and state.last_caught_up_timestamp > 0
        for state in nodes.quorum().observers
    )


@pytest.mark.full
def test_a_static_quorum_becomes_a_dynamic_one_and_changes(nodes: Nodes, jvm: ProcessClient, tmp_path: Path) -> None:
    def run(main: str, by: str, *args: str, code: int = 0) -> str:
        addresses = nodes.bootstrap if by == BY_BROKERS else nodes.bootstrap_controllers
        done = jvm.tool(main, by, addresses, *args)
        assert done.code == code, done.text
        return done.text

    def voters(by: str) -> dict[str, str]:
        """Returns the directory ids by node id."""
        shown = run(QUORUM, by, "describe", "--status")
        (line,) = [line for line in shown.splitlines() if line.startswith("CurrentVoters:")]
        return dict(re.findall(r'"id": (\d+), "directoryId": "(\S+?)"', line))

    assert "kraft.version feature is 0" in run(
        QUORUM, BY_CONTROLLERS, "remove-controller", "-i", "3", "-d", nodes.cluster_id, code=1
    )
    assert "kraft.version was upgraded to 1." in run(FEATURES, BY_BROKERS, "upgrade", "--feature", "kraft.version=1")
    until("they vote with their directories", lambda: set(voters(BY_CONTROLLERS)) == {"1", "2", "3"})
    assert re.search(r"kraft.version\s.*FinalizedVersionLevel: 1", run(FEATURES, BY_CONTROLLERS, "describe"))
    gone = nodes[next(node_id for node_id in CONTROLLERS if node_id != nodes.leader())]
    directory = voters(BY_BROKERS)[str(gone.node_id)]
    assert f"directory.id={directory}" in (gone.data / "meta.properties").read_text()
    # A dynamic quorum from here on: the setting has the addresses, and the log has the voters.
    for node in nodes.all:
        node.settings["controller.quorum.bootstrap.servers"] = nodes.bootstrap_controllers
        del node.settings["controller.quorum.voters"]
        node.stop()
        node.launch()
        node.wait()
    removed = run(QUORUM, BY_BROKERS, "remove-controller", "-i", str(gone.node_id), "-d", directory)
    assert "Removed" in removed
    for by in (BY_CONTROLLERS, BY_BROKERS):
        assert set(voters(by)) == {str(node_id) for node_id in CONTROLLERS if node_id != gone.node_id}
    # The directory is lost: the node is another voter, which the tool reads from the node's own files.
    gone.stop()
    shutil.rmtree(gone.data)
    gone.format(nodes.cluster_id, "--no-initial-controllers")
    gone.launch()
    gone.wait()
    # The node's predecessor is an observer too for a while, and a node that has not caught up yet is not added.
    until("it follows", lambda: caught_up(nodes, directory_id(gone.data)))
    assert "Added controller" in run(QUORUM, BY_CONTROLLERS, "--command-config", str(gone.file), "add-controller")
    until("it votes", lambda: voters(BY_BROKERS).get(str(gone.node_id), directory) != directory)
    # The leader too can be removed, by its own word.
    leader = nodes.leader()
    run(QUORUM, BY_CONTROLLERS, "remove-controller", "-i", str(leader), "-d", voters(BY_CONTROLLERS)[str(leader)])
    until("another one leads", lambda: nodes.leader() != leader)
    assert str(leader) not in voters(BY_CONTROLLERS)

    def described() -> int:
        shown = run(QUORUM, BY_CONTROLLERS, "describe", "--replication")
        return len(re.findall(r"^\d.*\s(Leader|Follower|Observer)\s*$", shown, re.MULTILINE))

    until("the new leader knows all", lambda: described() >= 4)
    assert create_topic(nodes[BROKER].address, "after-all-that") == 0
