"""CPU costs in the simulated world: a long turn delays others, work in steps does not, and a seed repeats its costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.requests import dispatch
from barnabas.broker.requests.steps import SLICE_UNITS
from barnabas.common import effort
from barnabas.common.effort import Work
from barnabas.coordinators.groups import commit_draft
from barnabas.coordinators.steps import ROWS
from barnabas.protocol import codec
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.checkers import NoUncaughtExceptions
from barnabas.simulation.cpu import PRICES_NS, RECEIVED_BYTE_PS, Cpu
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, World
from barnabas.simulation.worlds.replicated import RawClient, batch_of, produce_request

NODE = "broker1"
COMMITTED_ROWS = 100_000
#: The wait of the calm client for a request without other clients: networks, turns and the request itself.
ALONE_US = 5 * MILLISECOND_US
SLICE_US = max(SLICE_UNITS * PRICES_NS[Work.UNIT], ROWS * PRICES_NS[Work.ROW]) // 1_000


class CpuWorld:
    """One broker, a greedy client, and a calm one that asks a small thing every millisecond."""

    def __init__(self) -> None:
        self.world = World(7)
        self.cluster = Cluster(self.world, Layout())
        self.greedy = RawClient(self.cluster, "greedy")
        self.calm = RawClient(self.cluster, "calm")
        self.cluster.start()
        self.world.run_for(5 * SECOND_US)
        create = CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=6, replication_factor=1)],
            timeout_ms=5_000,
        )
        self.greedy.call(NODE, create, CreateTopicsResponse)
        self.greedy.call(NODE, FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
        self.world.run_for(2 * SECOND_US)
        self.waits_us: list[int] = []
        self.calm.call(NODE, ApiVersionsRequest(), ApiVersionsResponse)
        self.calm.process.enter(self._call)

    def _call(self) -> None:
        requested_us = self.world.now_us

        def answered(response: object) -> None:
            assert isinstance(response, ApiVersionsResponse)
            self.waits_us.append(self.world.now_us - requested_us)

        self.calm.send(NODE, ApiVersionsRequest(), answered)
        self.calm.host.timers.call_later(1, self._call)

    def longest_wait_us(self, work: Callable[[], object]) -> int:
        """Returns how much longer than usual the calm client waits while that is done."""
        self.waits_us.clear()
        work()
        self.world.run_for(SECOND_US)
        NoUncaughtExceptions().check(self.cluster)
        return max(self.waits_us) - ALONE_US

    def commit(self) -> None:
        rows = [
            OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=n % 6, committed_offset=n)
            for n in range(COMMITTED_ROWS)
        ]
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=rows)]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        self.commit_bytes = len(codec.encode(request, 9))
        response = self.greedy.call(NODE, request, OffsetCommitResponse, within_ms=20_000)
        assert len(response.topics[0].partitions) == COMMITTED_ROWS

    def cpu_us(self) -> int:
        process = self.cluster.nodes[NODE].machine.process
        assert process is not None
        assert process.cpu is not None
        return process.cpu.total_us


def test_a_calm_client_hardly_waits_where_nobody_works() -> None:
    world = CpuWorld()
    assert world.longest_wait_us(lambda: world.world.run_for(SECOND_US)) <= 0
    assert len(world.waits_us) > 1_500


def test_a_huge_request_that_is_served_in_steps_delays_others_by_a_slice_or_two() -> None:
    world = CpuWorld()
    before_us = world.cpu_us()
    assert 0 < world.longest_wait_us(world.commit) <= 2 * SLICE_US
    assert world.cpu_us() - before_us > COMMITTED_ROWS * PRICES_NS[Work.ROW] // 1_000


@pytest.mark.long_turns("the mistake is planted")
def test_a_handler_that_works_without_steps_delays_others_by_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_draft, "ROWS", 1 << 40)
    world = CpuWorld()
    whole_us = COMMITTED_ROWS * PRICES_NS[Work.ROW] // 1_000
    assert whole_us - 2 * SLICE_US <= world.longest_wait_us(world.commit) <= whole_us + 2 * SLICE_US


@pytest.mark.long_turns("the mistake is planted")
def test_a_frame_that_is_decoded_at_one_go_delays_others_by_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LONG_FRAME_BYTES", 1 << 40)
    world = CpuWorld()
    waited_us = world.longest_wait_us(world.commit)
    whole_us = world.commit_bytes * PRICES_NS[Work.DECODED_BYTE] // 1_000
    assert whole_us > 10 * SLICE_US
    assert whole_us - 2 * SLICE_US <= waited_us <= whole_us + 2 * SLICE_US


def test_a_large_batch_costs_by_its_bytes() -> None:
    world = CpuWorld()
    broker = world.cluster.nodes[NODE].broker
    assert broker is not None
    topic_id = broker.metadata.image.topics_by_name["orders"].topic_id

    def cost_us(size: int) -> int:
        before_us = world.cpu_us()
        request = produce_request(topic_id, 0, batch_of(bytes(size)))
        response = world.greedy.call(NODE, request, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0
        return world.cpu_us() - before_us

    cost_us(10)
    small_us, large_us = cost_us(10), cost_us(900_000)
    assert large_us - small_us >= 900_000 * RECEIVED_BYTE_PS // 1_000_000


def test_work_in_a_thread_takes_its_time_and_nobody_elses() -> None:
    world = CpuWorld()
    node = world.cluster.nodes[NODE]
    assert node.host is not None
    process = node.machine.process
    assert process is not None
    begun_us, busy_us = world.world.now_us, process.busy_until_us
    ended_us: list[int] = []
    records = 1_000_000
    node.host.blocking.run(
        lambda: effort.add(Work.RECORD, records), lambda _result, _error: ended_us.append(world.world.now_us)
    )
    assert process.busy_until_us == busy_us
    assert world.longest_wait_us(lambda: world.world.run_for(SECOND_US)) <= 0
    assert ended_us[0] - begun_us >= records * PRICES_NS[Work.RECORD] // 1_000


def test_two_runs_cost_the_same() -> None:
    def one() -> tuple[str, int, list[int]]:
        world = CpuWorld()
        world.longest_wait_us(world.commit)
        return world.world.trace.hexdigest(), world.cpu_us(), world.waits_us

    assert one() == one()


def test_every_kind_of_work_has_a_price_and_nothing_is_lost_by_rounding() -> None:
    assert set(PRICES_NS) == set(Work)
    charged: list[int] = []
    cpu = Cpu(charged.append)
    for _ in range(1_000):
        cpu.spend_ns(300)
    assert sum(charged) == cpu.total_us == 300


def test_clients_cost_nothing_and_nobody_counts_between_turns() -> None:
    world = CpuWorld()
    assert world.greedy.process.cpu is None
    assert effort.meter is None
