"""The bench's clusters: the setup of three nodes, and the times from acknowledgements and metadata."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import client
import cluster_steps
import run
import wire
import zookeeper_mode
from barnabas.protocol.header import decode_request_header
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from cluster_rows import CLUSTER_STEPS
from clusters import has_leaders, is_in_sync, node_properties, readdressed
from failover import Acked, first_after, longest_pause
from workloads import STEPS
from zookeeper_mode import ZK_MODE_STEPS

Partition = MetadataResponse.MetadataResponsePartition


def metadata(*partitions: Partition, error_code: int = 0) -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic(name="t", error_code=error_code, partitions=list(partitions))
    return MetadataResponse(topics=[topic])


def partition(leader_id: int, *in_sync: int) -> Partition:
    return Partition(leader_id=leader_id, replica_nodes=[1, 2, 3], isr_nodes=list(in_sync))


def test_nodes_know_each_other_and_share_no_port() -> None:
    nodes = node_properties([11, 12, 13, 21, 22, 23])
    assert [nodes[node_id]["node.id"] for node_id in (1, 2, 3)] == ["1", "2", "3"]
    assert nodes[2]["listeners"] == "PLAINTEXT://127.0.0.1:12,CONTROLLER://127.0.0.1:22"
    assert {node["controller.quorum.voters"] for node in nodes.values()} == {
        "1@127.0.0.1:21,2@127.0.0.1:22,3@127.0.0.1:23"
    }


def test_a_copied_folder_gets_its_own_identity() -> None:
    text = "#written by a tool\nversion=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAA\n"
    copies = [dict(line.split("=", 1) for line in readdressed(text, node_id).splitlines()) for node_id in (2, 3)]
    assert [copy["node.id"] for copy in copies] == ["2", "3"]
    assert {copy["cluster.id"] for copy in copies} == {"abc"}
    assert len({"AAAA", *(copy["directory.id"] for copy in copies)}) == 3


def test_the_first_acknowledgement_after_a_crash_is_of_a_record_sent_after_it() -> None:
    # The second record was under way before, and its answer was in the socket when the leader died.
    acked = [Acked(1.0, 1.1), Acked(1.9, 2.2), Acked(2.1, 5.0), Acked(2.2, 4.9)]
    assert first_after(acked, 2.0) == 4.9
    assert first_after(acked, 3.0) is None


def test_the_longest_pause_is_looked_for_in_its_time_only() -> None:
    acked = [Acked(0.0, at) for at in (1.0, 3.0, 3.1, 3.6, 3.7, 9.0)]
    assert longest_pause(acked, 3.05, 3.65) == pytest.approx(0.5)
    assert longest_pause(acked, 2.0, 3.65) == pytest.approx(2.0)


def test_metadata_has_leaders_when_each_partition_has_one_that_lives() -> None:
    led = metadata(partition(1, 1, 2, 3), partition(2, 2))
    assert has_leaders(led, 2)
    assert not has_leaders(led, 3), "one is not shown yet"
    assert not has_leaders(led, 2, {2})
    assert not has_leaders(metadata(partition(-1)), 1)
    assert not has_leaders(metadata(partition(1), error_code=3), 1)


def test_metadata_is_in_sync_when_each_isr_is_whole() -> None:
    assert is_in_sync(metadata(partition(1, 3, 2, 1)))
    assert not is_in_sync(metadata(partition(1, 3, 2, 1), partition(1, 1, 2)))
    assert not is_in_sync(metadata())


def test_requests_by_hand_have_the_header_of_their_version() -> None:
    for request, version in ((MetadataRequest(), 8), (DescribeQuorumRequest(), 2)):
        key, found, correlation_id, client_id, _ = decode_request_header(memoryview(wire.framed(request, version))[4:])
        assert (key, found, correlation_id, client_id) == (request.API_KEY, version, 7, "bench")


def test_every_step_of_a_cluster_can_be_run_and_measures_something_of_its_own() -> None:
    metrics = [metric.name for step in CLUSTER_STEPS for metric in step.metrics.values()]
    assert len(metrics) == len(set(metrics))
    assert not {step.name for step in CLUSTER_STEPS} & {step.name for step in STEPS}
    for step in CLUSTER_STEPS:
        assert step.quick.keys() <= step.options.keys()
        assert step.client in client.WORKLOADS or step.name in cluster_steps.COURSES or step.name == "cluster_start"
    assert len(run.tables(1, [], {each.name: each for each in run.ALONE})) == 15


def test_every_step_of_zookeeper_mode_can_be_run_and_measures_something_of_its_own() -> None:
    metrics = [metric.name for step in ZK_MODE_STEPS for metric in step.metrics.values()]
    assert len(metrics) == len(set(metrics))
    assert not {step.name for step in ZK_MODE_STEPS} & {step.name for step in (*STEPS, *CLUSTER_STEPS)}
    for step in ZK_MODE_STEPS:
        assert step.quick.keys() <= step.options.keys()
        assert step.client in client.WORKLOADS or step.name in zookeeper_mode.COURSES or step.name == "zk_mode_start"
    assert zookeeper_mode.select({"zk_mode_consume_1kb"}) == ["zk_mode_batched_1kb", "zk_mode_consume_1kb"]
