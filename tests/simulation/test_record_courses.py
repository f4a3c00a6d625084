"""The course of a lost record: who sent it, which nodes had it, and where it was cut."""

from __future__ import annotations

import pytest
from tests.support.mistakes import forget_syncs

from barnabas.replication.partition import Partition, Role
from barnabas.simulation.checkers import Watch
from barnabas.simulation.elections import Elections
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.history import Problem, Violation
from barnabas.simulation.node import Node
from barnabas.simulation.record_courses import LogEnds, course_of
from barnabas.simulation.recording import Recording
from barnabas.simulation.replication_checkers import Committed, Replicas, State
from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.world import SECOND_US, Note
from barnabas.simulation.worlds.replicated import CONTROLLER, Replicated

ORDERS = ("orders", 0)


def told(notes: list[Note]) -> list[str]:
    return [f"{note.node} {note.text}" for note in notes]


def test_a_record_of_a_deposed_leader_lives_until_it_is_cut() -> None:
    rig = Replicated(1, 3, (), controllers=1)
    elections, ends = Elections(rig.cluster), LogEnds(rig.world)
    Watch(rig.cluster, [elections, Replicas(CONTROLLER, [elections, ends])])
    rig.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
    assert rig.produce(b"kept") == (0, 0)
    rig.await_equal()
    for peer in ("broker2", "broker3", CONTROLLER):
        rig.cluster.network.cut("broker1", peer)
        rig.cluster.network.cut(peer, "broker1")
    assert rig.produce(b"lost", to=1, acks=1) == (0, 1)
    rig.run_until(lambda: rig.leader() == 2, "another broker leads")
    rig.run_until(lambda: rig.partition(2).role is Role.LEADER, "it knows that")
    assert rig.produce(b"instead", to=2)[1] == 1
    for peer in ("broker2", "broker3", CONTROLLER):
        rig.cluster.network.heal("broker1", peer)
        rig.cluster.network.heal(peer, "broker1")
    rig.await_isr((1, 2, 3))
    rig.await_equal()
    sent = Note(0, "client", "sends lost")
    course = told(course_of(Problem("lost: a record", ((ORDERS, 1),), (sent,)), ends, rig.world.trace.notes))
    steps = [
        "client sends lost",
        "cluster orders-0: leader 1, ISR 1,2,3 of 1,2,3, epoch 0",
        "broker1 appends orders-0@1 as leader, epoch 0",
        "cluster orders-0: leader 2, ISR 2,3 of 1,2,3, epoch 1",
        "broker2 appends orders-0@1 as leader, epoch 1",
        "broker3 appends orders-0@1 as follower, epoch 1",
        "broker1 cuts orders-0 from 2 to 1: 1 is lost here, follower in epoch 1",
        "broker1 appends orders-0@1 as follower, epoch 1",
    ]
    assert course == steps


def test_a_lost_record_is_described_from_its_sending_to_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_syncs(monkeypatch)
    power = Fault(5_000, FaultKind.POWER, "broker1", duration_ms=500, amount=2)
    outcome = run(Settings(seed=1, faults_s=4, schedule=(power,), producers=1, consumers=1))
    problem = outcome.problems[0]
    assert problem.startswith("lost: producer1.1:")
    record, _, rest = problem.removeprefix("lost: ").partition(" was acked at ")
    spot = rest.partition(" ")[0]
    partition, _, offset = spot.partition("@")
    course = told(outcome.courses[problem])
    assert course[0].startswith(f"cluster {partition}: leader 1")
    assert course[1:3] == [
        f"producer1.1 sends {record} to {partition}",
        f"broker1 appends {spot} as leader, epoch 0",
    ]
    assert f"producer1.1 is answered: {record} is at {spot}" in course
    lost = next(place for place, text in enumerate(course) if text.endswith(f"{offset} is lost here"))
    assert course[lost].startswith(f"broker1 opens {partition}, which ends at 0 instead of ")
    assert course[lost - 2 : lost] == [
        "broker1 power failure; of the unsynced data it loses all of it",
        "broker1 process ended: no power",
    ]
    times = [note.time_us for note in outcome.courses[problem]]
    assert times == sorted(times)
    assert len(outcome.courses) <= 3 < len(outcome.problems)


def test_the_findings_of_a_checker_are_described_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_replica(self: Committed, node: Node, partition: Partition, before: State | None, now: State) -> None:
        if partition.topic_partition == ORDERS and now.high_watermark > 4:
            raise Violation("a planted problem: here", (ORDERS, 3))

    monkeypatch.setattr(Committed, "on_replica", on_replica)
    outcome = run(Settings(seed=1, faults_s=4, schedule=(), producers=1, consumers=0))
    assert outcome.problems == ["a planted problem: here"]
    course = told(outcome.courses["a planted problem: here"])
    assert any("sends producer1.1:" in text for text in course)
    assert any(text.startswith("broker1 appends orders-0@3") for text in course)


def test_an_offset_that_nobody_had() -> None:
    rig = Replicated(1, 1, (), controllers=1)
    course = course_of(Problem("lost: a record", ((ORDERS, 7),)), LogEnds(rig.world), ())
    assert told(course) == ["checker no replica has ever shown orders-0@7"]


def test_a_record_of_a_transaction_is_described_with_the_steps_of_its_transaction() -> None:
    now_s = 0
    recording = Recording(lambda: now_s * SECOND_US)
    for number, value in enumerate(("first", "lost")):
        now_s = 10 * number
        recording.note("till.1", "ok", "begin")
        now_s += 1
        recording.sends("till.1", ORDERS, value)
        recording.sent("till.1", ORDERS, value, number)
        now_s += 1
        recording.note("till.1", "invoke", "commit")
        recording.note("till.1", "ok", "commit")
    recording.polled("reader", {ORDERS: [(0, "first")]})
    recording.drained("reader", [ORDERS])
    (problem,) = recording.problems()
    assert problem.spots == ((ORDERS, 1),)
    course = [
        "till.1 begins a transaction",
        "till.1 sends lost to orders-0",
        "till.1 is answered: lost is at orders-0@1",
        "till.1 commits",
        "till.1 has committed",
    ]
    assert sorted(told(list(problem.notes))) == sorted(course)
    assert [note.time_us // SECOND_US for note in problem.notes] == [10, 11, 11, 12, 12]
    assert recording.notes_at((ORDERS, 1)) == problem.notes
