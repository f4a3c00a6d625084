"""Failover times of real processes: until survivors of a SIGKILL know the new leaders, and until all is whole after a
silent cut.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.kill_times import KINDS, ROLES, KillTimes, percentile
from tests.support.namespaces import HOST, Namespaces, why_not
from tests.support.process_nodes import Node, Nodes, call, until
from tests.support.stalls import cuts_of

from barnabas.common.errors import DecodeError
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.worlds.replicated import batch_of, produce_request

#: On an otherwise idle machine, a failover takes a tenth of that (docs/replication.md); here other tests run at the
#: same time.
_KNOWN_S = 0.5
#: An election that was lost, and waited for its timeout, takes longer than this.
_TIMEOUT_S = 1.0
_ROUNDS = 50
_TOPIC = "orders"
_NUMBERS = (1, 2, 3)
#: The time on top of a bound that a busy machine may take.
_BUSY_S = 6.0


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_survivors_of_a_kill_know_the_new_leaders_at_once(kind: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, ROLES)
    try:
        nodes.start()
        times = KillTimes(nodes)
        took = sorted(times.measure(kind) for _ in range(_ROUNDS))
    finally:
        nodes.close()
    print(f"{kind}: min {took[0]:.3f}, median {percentile(took, 0.5):.3f}, p99 {percentile(took, 0.99):.3f} s")
    assert percentile(took, 0.9) <= _KNOWN_S, took
    assert took[-1] < _TIMEOUT_S, took


class Writer(threading.Thread):
    """A producer to one partition, whichever broker leads it, that records the times of acknowledgements."""

    def __init__(self, nodes: Nodes, index: int, topic_id: bytes) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._index = index
        self._topic_id = topic_id
        self.acked: list[float] = []
        self.is_over = False

    def run(self) -> None:
        for number in itertools.cycle(_NUMBERS):
            if self.is_over:
                return
            with suppress(OSError, DecodeError, AssertionError):
                self._write(number)
            time.sleep(0.05)

    def _write(self, number: int) -> None:
        told = call(self._nodes[number].address, _metadata(), 12, MetadataResponse, timeout_s=1).topics[0]
        leader = next(row.leader_id for row in told.partitions if row.partition_index == self._index)
        if leader not in _NUMBERS:
            return
        request = produce_request(self._topic_id, self._index, batch_of(b"x"), timeout_ms=2_000)
        answer = call(self._nodes[leader].address, request, 13, ProduceResponse, timeout_s=2)
        if answer.responses[0].partition_responses[0].error_code == 0:
            self.acked.append(time.monotonic())


def _metadata() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=_TOPIC)])


class CutNodes:
    """Three nodes with both roles in namespaces of their own; the test is a client that reaches all of them."""

    def __init__(self, folder: Path, network: Namespaces) -> None:
        names = {number: f"n{number}" for number in _NUMBERS}
        self._names = names
        self._network = network
        self.nodes = Nodes(
            folder,
            ROLES,
            hosts={number: network.address(name) for number, name in names.items()},
            prefixes={number: network.inside(name) for number, name in names.items()},
        )
        self.nodes.start()
        self._topic_id = self._create()
        until("all in sync", self.is_whole)

    def _create(self) -> bytes:
        rows = [
            CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=place, broker_ids=[number, *(other for other in _NUMBERS if other != number)]
            )
            for place, number in enumerate(_NUMBERS)
        ]
        insync = CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")
        entry = CreateTopicsRequest.CreatableTopic(
            name=_TOPIC, num_partitions=-1, replication_factor=-1, assignments=rows, configs=[insync]
        )

        def made() -> bytes | None:
            answer = call(
                self.nodes[1].address, CreateTopicsRequest(topics=[entry], timeout_ms=20_000), 7, CreateTopicsResponse
            ).topics[0]
            return bytes(answer.topic_id) if answer.error_code == 0 else None

        return until("the topic", made)

    def is_whole(self) -> bool:
        """Returns whether all three nodes report the cluster as whole."""
        for number in _NUMBERS:
            told = call(self.nodes[number].address, _metadata(), 12, MetadataResponse, timeout_s=2)
            if len(told.brokers) < len(_NUMBERS) or len(told.topics[0].partitions) < len(_NUMBERS):
                return False
            if any(len(row.isr_nodes) < len(_NUMBERS) for row in told.topics[0].partitions):
                return False
        return True

    def strike(self, kind: str, victim: int, duration_s: float) -> tuple[list[float], float]:
        """Causes a fault. Returns the longest time without an acknowledgement per partition, and the time from the
        healing until all are in sync.
        """
        writers = [Writer(self.nodes, place, self._topic_id) for place in range(len(_NUMBERS))]
        for writer in writers:
            writer.start()
        until("all are written to", lambda: all(writer.acked for writer in writers))
        begun = time.monotonic()
        self._cut(kind, victim, duration_s)
        healed = time.monotonic()
        until("all in sync", self.is_whole)
        whole_s = time.monotonic() - healed
        until("all are written to again", lambda: all(writer.acked[-1] > healed for writer in writers))
        over = time.monotonic()
        for writer in writers:
            writer.is_over = True
        stalls = []
        for writer in writers:
            times = [begun, *(at for at in writer.acked if begun < at < over), over]
            stalls.append(max(after - before for before, after in itertools.pairwise(times)))
            writer.join(10)
        return stalls, whole_s

    def _cut(self, kind: str, victim: int, duration_s: float) -> None:
        end = time.monotonic() + duration_s
        if kind == "flap":
            while time.monotonic() < end:
                self._part("split", victim)
                time.sleep(2)
                self._network.heal()
                time.sleep(2)
            return
        self._part(kind, victim)
        time.sleep(duration_s)
        self._network.heal()

    def _part(self, kind: str, victim: int) -> None:
        name = self._names[victim]
        for pair in cuts_of(
            "split" if kind == "island" else kind, name, [n for n in self._names.values() if n != name]
        ):
            self._network.cut(*pair)
        if kind == "island":
            self._network.part([name], [HOST])

    def lines(self) -> dict[int, int]:
        return {node.node_id: node.log.count("\n") for node in self.nodes.all}


@pytest.fixture(scope="module")
def cut_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutNodes]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with Namespaces(*(f"n{number}" for number in _NUMBERS)) as network:
        cut_nodes: CutNodes | None = None
        try:
            cut_nodes = CutNodes(tmp_path_factory.mktemp("cut"), network)
            yield cut_nodes
        finally:
            if cut_nodes is not None:
                cut_nodes.nodes.close()


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "duration_s", "bound_s"),
    [
        ("island", 8, 12.5),
        ("island", 20, 12.5),
        ("island", 60, 12.5),
        ("split", 20, 12.5),
        ("mute", 20, 12.5),
        ("deaf", 20, 12.5),
        ("bridge", 60, 46),
        ("one-way", 60, 46),
        ("flap", 30, 4),
    ],
)
@pytest.mark.parametrize("controller", [True, False], ids=["controller", "another"])
def test_a_silent_cut(cut_nodes: CutNodes, kind: str, duration_s: float, bound_s: float, controller: bool) -> None:
    nodes = cut_nodes.nodes
    until("all in sync", cut_nodes.is_whole)
    active = nodes.leader()
    before = cut_nodes.lines()
    stalls, whole_s = cut_nodes.strike(kind, active if controller else active % 3 + 1, duration_s)
    written = {number: count - before[number] for number, count in cut_nodes.lines().items()}
    print(
        f"{kind} {duration_s} s: without ack {[round(s, 1) for s in stalls]} s, whole after {whole_s:.1f} s, {written}"
    )
    assert max(stalls) <= bound_s + _BUSY_S
    assert whole_s <= 3.0 + _BUSY_S
    assert max(written.values()) <= 50, [_tail(node) for node in nodes.all]


def _tail(node: Node) -> list[str]:
    return re.sub(r"^\[[^]]*\] ", "", node.log[-6000:], flags=re.MULTILINE).splitlines()
