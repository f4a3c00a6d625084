"""Finding 3 with three replicas: a broker whose log lost records between its stop and its start does not count as
complete and gets a whole copy from the leader, and nothing acknowledged is lost.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.support.rot import WAYS, rot, rot_somewhere, segments_of

from barnabas.common.errors import ErrorCode
from barnabas.simulation.worlds.replicated import Replicated
from barnabas.storage.recovery.damaged_logs import DamagedLogs


def cluster(seed: int = 3, min_isr: int = 1) -> tuple[Replicated, list[bytes]]:
    """Returns a cluster with forty records in four segments."""
    rig = Replicated(seed, log_index_interval_bytes="100")
    rig.create_topic("orders", [[1, 2, 3]], min_insync_replicas=str(min_isr))
    values = [b"order %d" % number for number in range(40)]
    for number, value in enumerate(values):
        if number % 10 == 0:
            rig.await_equal()
            roll(rig)
        assert rig.produce(value)[0] == 0
    rig.await_equal()
    return rig, values


def roll(rig: Replicated) -> None:
    for number in (1, 2, 3):
        process = rig.node(number).machine.process
        assert process is not None
        process.enter(rig.partition(number).log.roll)  # type: ignore[arg-type]


def end(rig: Replicated, number: int, *, clean: bool) -> None:
    node = rig.node(number)
    rig.cluster.prevent_start(node.name)
    if clean:
        node.stop()
    else:
        node.kill()
    rig.run_until(lambda: not node.is_running, "it has ended")


def start(rig: Replicated, *numbers: int) -> None:
    for number in numbers:
        rig.cluster.allow_start(rig.node(number).name)
    rig.run_until(lambda: all(rig.node(number).broker is not None for number in numbers), "they are up")


def damage(rig: Replicated, number: int, way: str, place: int) -> None:
    disk = rig.node(number).machine.disk
    with disk.without_effects():
        path = segments_of(disk, rig.node(number).properties["log.dirs"], "orders")[place]
    rot(disk, path, way)


def came_back(rig: Replicated, number: int, values: list[bytes]) -> None:
    start(rig, number)
    rig.run_until(lambda: rig.broker(number).replicas.find("orders", 0) is not None, "it knows its replica")
    rig.await_isr([1, 2, 3])
    rig.await_equal()
    assert rig.values(number) == values
    assert rig.partition(number).log.losses.damage is None
    assert rig.partition(number).log.holes == ()


@pytest.mark.parametrize("way", WAYS)
def test_a_follower(way: str) -> None:
    rig, values = cluster()
    end(rig, 3, clean=True)
    damage(rig, 3, way, -1 if way == "the last length" else 1)
    came_back(rig, 3, values)


@pytest.mark.parametrize("place", [0, -1])
def test_the_last_leader_whose_log_is_damaged_does_not_lead_again_at_once(place: int) -> None:
    rig, values = cluster()
    end(rig, 1, clean=True)
    assert rig.produce(b"more")[0] == 0
    damage(rig, 1, "cut inside a batch", place)
    came_back(rig, 1, [*values, b"more"])


def sync(rig: Replicated, number: int) -> None:
    """Moves the recovery point to the end of the log, as after a minute."""
    rig.partition(number).log.flush()
    rig.broker(number).logs._upkeep.write_checkpoints()


def test_damaged_after_a_kill() -> None:
    rig, values = cluster()
    sync(rig, 3)
    end(rig, 3, clean=False)
    damage(rig, 3, "missing", 1)
    came_back(rig, 3, values)


def test_a_damaged_member_of_the_elr_is_not_elected() -> None:
    """The broker was in the ELR after its clean shutdown, lost records since, and is the first to return."""
    rig, values = cluster(min_isr=2)
    end(rig, 2, clean=True)
    end(rig, 3, clean=True)
    damage(rig, 3, "cut inside a batch", 1)
    assert 3 in rig.image().elr
    end(rig, 1, clean=True)
    start(rig, 3)
    rig.run_for(5_000)
    assert rig.leader() != 3, rig.image()
    start(rig, 1)
    rig.run_until(lambda: rig.leader() == 1, "the whole one leads")
    start(rig, 2)
    rig.await_isr([1, 2, 3])
    rig.await_equal()
    assert rig.values(3) == rig.values(1) == values


def test_a_damaged_replica_that_is_taken_for_complete_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: the broker registers as if nothing was wrong, and is elected from the ELR."""
    monkeypatch.setattr(DamagedLogs, "has_any", property(lambda self: False))
    with pytest.raises(AssertionError):
        test_a_damaged_member_of_the_elr_is_not_elected()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rot_between_stops(seed: int) -> None:
    rot_between_stops(seed, rounds=4)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(10))
def test_rot_between_many_stops(block: int) -> None:
    for seed in range(100 + block * 10, 110 + block * 10):
        rot_between_stops(seed, rounds=8)


def rot_between_stops(seed: int, rounds: int) -> None:
    """Stops or kills one broker after the other, damages its log, and starts it again, while the others accept
    writes.
    """
    random = Random(seed)
    rig, values = cluster(seed, min_isr=2)
    for _ in range(rounds):
        number = random.choice((1, 2, 3))
        sync(rig, number)
        end(rig, number, clean=random.random() < 0.6)
        rig.await_isr([other for other in (1, 2, 3) if other != number])
        values += produced(rig, random.randint(0, 4), len(values))
        what = rot_somewhere(rig, number, random)
        came_back(rig, number, values)
        values += produced(rig, random.randint(1, 4), len(values))
        rig.await_equal()
        if random.random() < 0.5:
            roll(rig)
        assert all(rig.values(other) == values for other in (1, 2, 3)), what


def produced(rig: Replicated, count: int, first: int) -> list[bytes]:
    made = [b"order %d" % number for number in range(first, first + count)]
    for value in made:
        code, _ = rig.produce(value)
        while code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            rig.run_for(100)
            code, _ = rig.produce(value)
        assert code == ErrorCode.NONE
    return made


def test_nobody_else_is_in_sync() -> None:
    """The last leader continues, and the followers that have its lost records keep them."""
    rig, values = cluster()
    end(rig, 3, clean=True)
    end(rig, 2, clean=True)
    end(rig, 1, clean=True)
    damage(rig, 1, "cut inside a batch", -1)
    start(rig, 1, 2, 3)
    rig.await_isr([1, 2, 3])
    log = rig.partition(1).log
    assert [(hole.start, hole.end) for hole in log.holes] == [(39, 40)]
    assert rig.fetch(39).error_code == 2
    assert rig.produce(b"next") == (0, 40)
    rig.await_equal()
    assert rig.values(2) == [*values, b"next"]
