"""Placement of replicas by racks: the rules for every cluster, and Kafka's own example of the stripes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.controller_world import SeededChance

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Random
from barnabas.decisions.placement import StripedPlacement, UsableBroker


class NoChance:
    def below(self, bound: int) -> int:
        return 0

    def uuid(self) -> bytes:
        return bytes(16)


def place_replicas(brokers: list[UsableBroker], count: int, factor: int, random: Random) -> list[list[int]]:
    placement = StripedPlacement(brokers, random)
    placement.check(factor)
    return [placement.place(factor) for _ in range(count)]


racks = st.sampled_from([None, "a", "b", "c", "d"])
clusters = st.lists(st.tuples(racks, st.booleans()), min_size=1, max_size=12).map(
    lambda rows: [UsableBroker(broker_id * 3, rack, fenced) for broker_id, (rack, fenced) in enumerate(rows)]
)


@given(clusters, st.integers(1, 30), st.integers(1, 12), st.integers(0, 5))
def test_every_placement_keeps_the_rules(brokers: list[UsableBroker], count: int, factor: int, seed: int) -> None:
    unfenced = {broker.broker_id for broker in brokers if not broker.fenced}
    if not unfenced or factor > len(brokers):
        with pytest.raises(RequestFailed) as refusal:
            place_replicas(brokers, count, factor, SeededChance(seed))
        assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    rack_of = {broker.broker_id: broker.rack for broker in brokers}
    placements = place_replicas(brokers, count, factor, SeededChance(seed))
    assert len(placements) == count
    for replicas in placements:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(rack_of)
        assert replicas[0] in unfenced
        assert len({rack_of[replica] for replica in replicas}) == min(factor, len(set(rack_of.values())))


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 9), st.integers(0, 5))
def test_without_racks_leaders_and_replicas_are_even(size: int, rounds: int, factor: int, seed: int) -> None:
    brokers = [UsableBroker(broker_id, None, False) for broker_id in range(size)]
    factor = min(factor, size)
    placements = place_replicas(brokers, size * rounds, factor, SeededChance(seed))
    assert Counter(replicas[0] for replicas in placements) == dict.fromkeys(range(size), rounds)
    assert Counter(replica for replicas in placements for replica in replicas) == dict.fromkeys(
        range(size), rounds * factor
    )


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 5))
def test_equal_racks_share_leaders_evenly(rack_count: int, size: int, rounds: int, seed: int) -> None:
    """Each round has as many partitions as there are brokers, and in it every rack leads as often as the others."""
    brokers = [UsableBroker(rack * 10 + i, f"r{rack}", False) for rack in range(rack_count) for i in range(size)]
    placements = place_replicas(brokers, len(brokers) * rounds, 1, SeededChance(seed))
    leaders = Counter(replicas[0] // 10 for replicas in placements)
    assert leaders == dict.fromkeys(range(rack_count), size * rounds)


def test_the_stripes_of_three_racks() -> None:
    """Kafka's example: with all chance 0, racks A, B, C of three brokers each."""
    brokers = [UsableBroker(rack * 10 + i, "ABC"[rack], False) for rack in range(3) for i in range(3)]
    assert place_replicas(brokers, 3, 3, NoChance()) == [[0, 10, 20], [11, 21, 1], [22, 2, 12]]


def test_a_fenced_broker_comes_last_and_leads_never() -> None:
    brokers = [UsableBroker(1, None, True), UsableBroker(2, None, False), UsableBroker(3, None, False)]
    placements = place_replicas(brokers, 20, 2, SeededChance())
    assert all(set(replicas) == {2, 3} for replicas in placements)
    placements = place_replicas(brokers, 20, 3, SeededChance())
    assert all(replicas[2] == 1 for replicas in placements)


@pytest.mark.parametrize("factor", [0, -1])
def test_a_partition_has_at_least_one_replica(factor: int) -> None:
    with pytest.raises(RequestFailed, match="the replication factor must be positive"):
        StripedPlacement([UsableBroker(1, None, False)], SeededChance(1)).check(factor)


def test_two_brokers_lead_in_either_order() -> None:
    """The brokers are shuffled after each lap, so that the second one does not always follow the order of the first."""
    brokers = [UsableBroker(broker_id, None, False) for broker_id in (1, 2)]
    laps = [tuple(replicas[0] for replicas in place_replicas(brokers, 4, 1, SeededChance(seed))) for seed in range(40)]
    assert {(lap[:2], lap[2:]) for lap in laps} == {(a, b) for a in ((1, 2), (2, 1)) for b in ((1, 2), (2, 1))}
