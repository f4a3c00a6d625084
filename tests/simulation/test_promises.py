"""Promises for the time of the fault: planted mistakes, each found by its checker, and what they leave alone."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from barnabas.broker.zookeeper.registration import Registrar
from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.transactions import transitions
from barnabas.replication.delayed_fetch import DelayedFetch
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import Appended, ReplicaManager
from barnabas.simulation.checkers import Checker
from barnabas.simulation.conditions import CUT, DEAD, FULL, PAUSED, SLOW, WAITS, condition_of
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.exchanges import Exchange, Exchanges, Frames
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.history import Spot, Violation
from barnabas.simulation.ongoing_writes import Bounds, WritesContinue
from barnabas.simulation.promises import promises
from barnabas.simulation.response_promises import ResponsesAreTrue
from barnabas.simulation.scenario import Run, Settings
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.world import Process, World
from barnabas.storage.health import WriteHealth

Mutation = Callable[[pytest.MonkeyPatch], None]
THREE = Layout(3)
ZOOKEEPER_MODE = Layout(1, zookeeper=True)


def problem_of(settings: Settings) -> str:
    """Returns the first problem of a run with these checkers alone, "" if there is none."""
    run = Run(settings, [])
    checkers: list[Checker] = promises(run.cluster, run.decided, lambda: run.work.acked)
    run.watch.use(checkers)
    problems = run.execute().problems
    return problems[0] if problems else ""


def quick(*faults: Fault, layout: Layout = THREE, faults_s: int = 20, **options: Any) -> Settings:
    return Settings(1, layout, faults_s, schedule=faults, operations=(), **options)


# -- answers in time


def fetches_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    real = DelayedFetch.on_complete
    patch.setattr(DelayedFetch, "on_complete", lambda self, expired: None if expired else real(self, expired))


def heartbeats_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCoordinator, "heartbeat", lambda self, context, request, reply: None)


@pytest.mark.parametrize(
    ("mistake", "settings"),
    [
        (fetches_wait_for_ever, quick(layout=Layout(1), producers=0)),
        (heartbeats_are_not_answered, quick(layout=Layout(1))),
    ],
)
def test_a_request_that_is_not_answered_is_found(
    mistake: Mutation, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert problem_of(settings).startswith("not answered in time: a request of API")


def frame(*numbers: int, form: str = ">hhih") -> bytes:
    body = struct.pack(form, *numbers)
    return struct.pack(">i", len(body)) + body


def test_frames_are_put_together_whatever_their_pieces() -> None:
    stream = b"".join(frame(3, 0, number, -1) for number in range(5))
    for size in range(1, len(stream) + 1):
        frames = Frames()
        found = [each for at in range(0, len(stream), size) for each in frames.take(stream[at : at + size])]
        assert b"".join(found) == stream
        assert len(found) == 5


def exchange_of(cluster: Cluster) -> tuple[Exchanges, Exchange]:
    owner = Exchanges(cluster)
    process = Process(cluster.world, "broker1")
    return owner, Exchange(owner, ("client", "broker1"), process, lambda: 0, is_of_node=True)


def test_answers_come_in_the_order_of_the_requests() -> None:
    owner, exchange = exchange_of(Cluster(World(1), Layout(1)))
    exchange.received(frame(3, 0, 7, -1) + frame(3, 0, 8, -1))
    exchange.sent(frame(7, form=">i"))
    assert [request.correlation_id for request in exchange.waiting] == [8]
    assert not owner.problems
    exchange.sent(frame(9, form=">i"))
    assert str(owner.problems[0]).startswith("an answer to no request: broker1 answers 9 to client")


# -- writes continue


def nobody_says_that_it_is_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteHealth, "unwritable", lambda self: [])


def a_leader_refuses_everything(patch: pytest.MonkeyPatch) -> None:
    real = ReplicaManager.append_to

    def append(manager: ReplicaManager, partition: Partition, *arguments: Any, **options: Any) -> Any:
        if partition.topic_partition == ("clicks", 0):
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return real(manager, partition, *arguments, **options)

    patch.setattr(ReplicaManager, "append_to", append)


def a_broker_waits_for_ever_for_its_last_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Registrar, "_end_wait", lambda self, *, is_gone: None)


@pytest.mark.parametrize(
    ("mistake", "settings", "found"),
    [
        (
            a_broker_waits_for_ever_for_its_last_session,
            quick(
                Fault(5_000, FaultKind.KILL, "broker1", duration_ms=500),
                layout=Layout(1, zookeeper=True, properties={"zookeeper.session.timeout.ms": "4000"}),
                faults_s=5,
            ),
            "writes do not continue: ",
        ),
        (
            nobody_says_that_it_is_full,
            quick(Fault(5_000, FaultKind.FULL_DISK, "broker2", duration_ms=18_000)),
            "writes do not continue: ",
        ),
        (a_leader_refuses_everything, quick(), "writes do not continue for clients: clicks-0 was refused"),
    ],
)
def test_a_partition_that_takes_no_writes_is_found(
    mistake: Mutation, settings: Settings, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert problem_of(settings).startswith(found)


def test_a_broker_whose_last_session_is_open_is_not_blamed() -> None:
    """The server is killed for less than the time between two looks: all that they see is that it has started again,
    and each session has its whole timeout once more.
    """
    kills = (
        Fault(5_000, FaultKind.KILL, "broker1", duration_ms=500),
        Fault(8_000, FaultKind.KILL, "zookeeper", duration_ms=100),
    )
    assert problem_of(quick(*kills, layout=ZOOKEEPER_MODE)) == ""


def test_the_bounds_are_those_of_the_table() -> None:
    """docs/replication.md, with Kafka's default times, and a second more where that is 3 s."""
    bounds = Bounds(Cluster(World(1), THREE))
    assert bounds.of([PAUSED]) == bounds.of([CUT]) == 12_500
    assert bounds.of(["way"]) == 46_000
    assert bounds.of(["slow"]) == 16_000
    assert bounds.of([FULL]) == bounds.of([DEAD]) == 4_000
    assert bounds.of([DEAD, PAUSED]) == 12_500


def test_the_condition_of_a_cluster_is_what_ails_it() -> None:
    cluster = Cluster(World(1), THREE)
    cluster.start()
    cluster.world.run_for(3_000_000)
    assert condition_of(cluster).troubles == {}
    cluster.nodes["broker1"].machine.pause()
    cluster.nodes["broker2"].disk.fill()
    cluster.prevent_start("broker3")
    cluster.nodes["broker3"].kill()
    cluster.network.cut("broker1", "broker2")
    condition = condition_of(cluster)
    assert condition.troubles == {"broker1": PAUSED, "broker2": FULL, "broker3": DEAD}
    assert condition.links == {("broker1", "broker2"): CUT, ("broker2", "broker1"): CUT}


def test_a_disk_that_was_full_between_two_looks_is_noticed() -> None:
    """The checker looks four times a second, and the broker takes no replicas for ten seconds."""
    cluster = Cluster(World(1), THREE)
    cluster.start()
    cluster.world.run_for(3_000_000)
    before = condition_of(cluster).refusals["broker2"]
    disk = cluster.nodes["broker2"].disk
    taken = disk.fill()
    with pytest.raises(OSError, match="No space left"):
        disk.open("/data/x", create=True).append(b"x")
    disk.free_bytes += taken
    condition = condition_of(cluster)
    assert condition.troubles == {}
    assert condition.refusals["broker2"] == before + 1


def test_a_disk_is_slow_until_the_calls_that_began_when_it_was_end() -> None:
    """The calls of the process itself, and those of its threads."""
    cluster = Cluster(World(1), THREE)
    cluster.start()
    cluster.world.run_for(3_000_000)
    disks = [cluster.nodes[name].disk for name in ("broker1", "broker2")]
    for disk in disks:
        disk.slowness = 1_000
    process, host = cluster.nodes["broker1"].machine.process, cluster.nodes["broker2"].host
    assert process is not None
    assert host is not None
    process.enter(lambda: disks[0].use(4_000, "read", "file"))
    host.blocking.run(lambda: disks[1].use(9_000, "read", "file"), lambda result, error: None)
    cluster.world.run_for(1_000_000)
    for disk in disks:
        disk.slowness = 1
    assert condition_of(cluster).troubles == {"broker1": SLOW, "broker2": SLOW}
    cluster.world.run_for(4_000_000)
    assert condition_of(cluster).troubles == {"broker2": SLOW}
    cluster.world.run_for(5_000_000)
    assert condition_of(cluster).troubles == {}


def test_a_process_does_not_wait_for_the_disk_calls_of_the_last_one() -> None:
    cluster = Cluster(World(1), THREE)
    cluster.start()
    cluster.world.run_for(3_000_000)
    node = cluster.nodes["broker1"]
    node.disk.slowness = 1_000
    assert node.machine.process is not None
    node.machine.process.enter(lambda: node.disk.use(9_000, "read", "file"))
    node.disk.slowness = 1
    node.kill()
    cluster.world.run_for(2_000_000)
    assert node.is_running
    assert condition_of(cluster).troubles == {}


def test_a_broker_waits_for_the_session_of_its_last_process() -> None:
    cluster = Cluster(World(1), ZOOKEEPER_MODE)
    cluster.start()
    cluster.world.run_for(3_000_000)
    assert condition_of(cluster).troubles == {}
    node = cluster.nodes["broker1"]
    node.kill()
    cluster.world.run_for(2_000_000)
    assert node.is_running
    assert condition_of(cluster).troubles == {"broker1": WAITS}
    cluster.world.run_for(20_000_000)
    assert condition_of(cluster).troubles == {}


def test_a_pause_of_all_processes_begins_the_bound_anew() -> None:
    """No node has an event meanwhile, so that nothing looks (seed 28 of `test_rare_events`, ZooKeeper mode: a leader of
    a moment had a day to find out that it led).
    """
    cluster = Cluster(World(1), THREE)
    checker = WritesContinue(cluster, DecidedMetadata(cluster), Exchanges(cluster))
    cluster.start()
    for _ in range(30):
        cluster.world.run_for(1_000_000)
        checker.check(cluster)
    assert checker.bound_ms < Bounds(cluster).of([PAUSED])
    machines = [program.machine for program in cluster.programs.values()]
    for machine in machines:
        machine.pause()
    cluster.world.run_for(3_600_000_000)
    for machine in machines:
        machine.resume()
    checker.check(cluster)
    assert checker.bound_ms == Bounds(cluster).of([PAUSED])


# -- refusals are told


def every_twentieth_append_is_not_done(patch: pytest.MonkeyPatch) -> None:
    real = Partition.append
    count = 0

    def append(partition: Partition, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        info = real(partition, *arguments, **options)
        if count % 20 == 0 and not info.duplicate and not partition.topic_partition.topic.startswith("__"):
            partition.log.truncate_to(info.first_offset)
        return info

    patch.setattr(Partition, "append", append)


def fenced_producers_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transitions, "check_producer", lambda *arguments: None)


@pytest.mark.parametrize(
    ("mistake", "settings", "found"),
    [
        (every_twentieth_append_is_not_done, quick(layout=Layout(1)), "acknowledged and not written: "),
        (
            fenced_producers_go_on,
            quick(work=WorkKind.TRANSACTIONS, records_per_s=20.0),
            "a fenced producer gets no error: ",
        ),
    ],
)
def test_a_refusal_that_is_not_reported_is_found(
    mistake: Mutation, settings: Settings, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert problem_of(settings).startswith(found)


def test_what_a_client_counts_as_acknowledged_was_acknowledged_to_it() -> None:
    cluster = Cluster(World(1), Layout(1))
    acked: Mapping[bytes, Spot] = {b"x": (("orders", 0), 5)}
    checker = ResponsesAreTrue(cluster, Exchanges(cluster), lambda: acked)
    checker._acked_to_clients["orders", 0].append((0, 4))
    checker.check(cluster)
    cluster.checks_all = True
    with pytest.raises(Violation, match="what no node acknowledged to it: b'x' at orders-0@5"):
        checker.check(cluster)
    checker._acked_to_clients["orders", 0].append((5, 6))
    checker.check(cluster)


# -- runs that keep them


@pytest.mark.parametrize(
    "settings",
    [
        quick(Fault(5_000, FaultKind.PAUSE, "broker1", duration_ms=15_000)),
        quick(Fault(5_000, FaultKind.FULL_DISK, "broker2", duration_ms=12_000)),
        pytest.param(quick(work=WorkKind.TRANSACTIONS), marks=pytest.mark.full),
    ],
)
def test_the_promises_are_kept_and_looked_at(settings: Settings) -> None:
    run = Run(settings)
    outcome = run.execute()
    assert not outcome.failed, outcome.problems[0]
    found: dict[type, Any] = {type(each): each for each in run.checkers}
    assert found[ResponsesAreTrue].looked_up > 50
    if settings.work is WorkKind.RECORDS:
        assert found[WritesContinue].looks > 50
    else:
        assert found[ResponsesAreTrue].fenced > 0
