"""Unusual figures of a broker: what counts as unusual, and that a state that lasts does not become the usual one."""

from __future__ import annotations

from barnabas.journal.trends import Bursts, LossyPeers, SlowDisks, SlowPeers


def test_a_peer_whose_round_trips_grow_tenfold() -> None:
    peers = SlowPeers()
    assert not any(peers.slow({2: 300, 3: 30_000}) for _ in range(20))
    assert peers.slow({2: 79_000, 3: 290_000}) == {}, "a delayed acknowledgement, and below ten times what is usual"
    assert peers.slow({2: 80_000, 3: 300_000}) == {2: 80_000, 3: 300_000}
    assert all(peers.slow({2: 80_000}) for _ in range(500))
    assert peers.slow({2: 300}) == {}


def test_retransmissions_in_several_ticks() -> None:
    peers = LossyPeers()
    counts = [5, 5, 50, 51, 51, 52]
    assert [peers.lossy({2: count}) for count in counts] == [{}, {}, {}, {}, {}, {2: 47}]
    assert all(peers.lossy({2: 52}) for _ in range(6)), "the first of three is in the last ten ticks"
    assert peers.lossy({2: 52}) == {}
    assert peers.lossy({}) == {}
    assert peers.lossy({2: 1}) == {}, "a new connection"


def test_syncs_that_take_longer_than_usual() -> None:
    disks = SlowDisks()
    assert not any(disks.slow({"/a": [1, 2]}) for _ in range(10))
    assert disks.slow({"/a": [90]}) == {}
    assert disks.slow({"/a": [90]}) == {"/a": 90}
    assert disks.slow({}) == {"/a": 90}, "no sync, no news"
    assert disks.slow({"/a": [2, 2]}) == {}


def test_a_disk_that_was_always_slow_is_usual() -> None:
    disks = SlowDisks()
    for _ in range(50):
        assert disks.slow({"/a": [30]}) == {}
    assert disks.slow({"/a": [45, 45, 45]}) == {}


def test_a_topic_that_gets_ten_times_as_much() -> None:
    bursts = Bursts()
    count = 0
    for _ in range(30):
        count += 200_000
        assert bursts.bursts({"orders": count}, 1.0) == {}
    assert bursts.bursts({"orders": count + 3_000_000}, 1.0) == {}, "one tick is a batch"
    assert bursts.bursts({"orders": count + 6_000_000}, 1.0) == {"orders": (3_000_000, 200_000)}
    assert bursts.bursts({"orders": count + 6_200_000}, 1.0) == {}
    assert bursts.bursts({"orders": count + 9_200_000}, 15.0) == {}, "in a long tick"
