"""The plan of a rolling restart: order, waits and reasons."""

from __future__ import annotations

from tests.support.situations import partition, situation

from barnabas.whatif import Answer, ask, parse_question
from barnabas.whatif.outcomes import Effect
from barnabas.whatif.rolling import RollingPlan
from barnabas.whatif.situation import Situation, TopicFacts


def asked(state: Situation) -> Answer:
    return ask(state, parse_question(["restart-all"]))


def plan_of(state: Situation) -> RollingPlan:
    plan = asked(state).plan
    assert plan is not None
    return plan


def waits_of(plan: RollingPlan) -> list[list[tuple[str, int, int]]]:
    return [[(wait.kind, wait.broker, len(wait.partitions)) for wait in step.waits] for step in plan.steps]


def test_the_controller_is_last_and_steps_wait_for_the_isr() -> None:
    state = situation({"orders": [partition([1, 2, 3]), partition([2, 3, 1])]}, min_isr=2, controller=1)
    answer = asked(state)
    assert answer.plan is not None
    assert [(step.node, step.is_controller) for step in answer.plan.steps] == [(2, False), (3, False), (1, True)]
    assert waits_of(answer.plan) == [[], [("in-sync", 2, 2)], [("in-sync", 3, 2)]]
    assert [step.leaders_moved for step in answer.plan.steps] == [1, 1, 1]
    assert [step.at_min_isr for step in answer.plan.steps] == [2, 2, 2]
    assert answer.exit_code == 0


def test_brokers_that_share_nothing_need_no_wait() -> None:
    state = situation({"orders": [partition([1, 2]), partition([3, 4])]}, brokers=(1, 2, 3, 4), controller=4)
    assert waits_of(plan_of(state)) == [[], [("in-sync", 1, 1)], [], [("in-sync", 3, 1)]]


def test_a_single_replica_is_a_reason() -> None:
    answer = asked(situation({"orders": [partition([2])], "fine": [partition([1, 2, 3])]}))
    assert answer.plan is not None
    assert answer.plan.steps == ()
    assert [(reason.broker, reason.key, reason.text) for reason in answer.plan.reasons] == [
        (2, ("orders", 0), "its only replica is on broker 2")
    ]
    assert answer.exit_code == 6


def test_a_min_isr_of_all_replicas_is_a_reason() -> None:
    answer = asked(situation({"orders": [partition([1, 2])]}, min_isr=2, controller=3))
    assert answer.plan is not None
    assert [(reason.broker, reason.effect) for reason in answer.plan.reasons] == [
        (1, Effect.UNDER_MIN_ISR),
        (2, Effect.UNDER_MIN_ISR),
    ]
    assert answer.plan.reasons[0].text == "its min ISR is 2 of 2 replicas"
    assert answer.exit_code == 5


def test_lagging_replicas_are_waited_for() -> None:
    state = situation({"orders": [partition([1, 2, 3], isr=[1, 2])]}, min_isr=2, controller=3)
    assert waits_of(plan_of(state))[0] == [("in-sync", 3, 1)]


def test_absent_brokers_are_waited_for() -> None:
    state = situation({"orders": [partition([1, 2, 4], isr=[1, 2])]}, min_isr=2, brokers=(1, 2), controller=2)
    assert waits_of(plan_of(state))[0] == [("present", 4, 1)]


def test_silent_brokers_are_waited_for() -> None:
    state = situation({"orders": [partition([1, 2, 3])]}, min_isr=2, silent=[3], controller=2)
    assert ("present", 3, 1) in waits_of(plan_of(state))[0]


def test_a_leader_that_is_absent_is_waited_for() -> None:
    state = situation(
        {"orders": [partition([1, 4], isr=[4], leader=-1)]}, brokers=(1, 2, 3), controller=3, voters=(7, 8, 9)
    )
    assert waits_of(plan_of(state))[0] == [("present", 4, 1)]


def test_a_partition_that_is_lost_is_named_once() -> None:
    state = situation({"orders": [partition([1, 2], isr=[], leader=-1)], "fine": [partition([1, 2, 3])]})
    plan = plan_of(state)
    assert [(reason.broker, reason.key) for reason in plan.reasons] == [(-1, ("orders", 0))]


def test_an_unclean_leader_is_a_reason() -> None:
    state = situation(
        {"orders": [partition([1, 2], isr=[1])]},
        settings={"orders": TopicFacts(is_unclean_allowed=True)},
        brokers=(1, 2, 3),
        controller=3,
    )
    # Broker 2 is there and catches up, so that no unclean election is needed.
    assert plan_of(state).reasons == ()
    assert waits_of(plan_of(state))[0] == [("in-sync", 2, 1)]


def test_controllers_without_a_broker_come_after_the_brokers() -> None:
    state = situation({"orders": [partition([1, 2])]}, brokers=(1, 2), voters=(7, 8, 9), controller=8)
    plan = plan_of(state)
    assert [step.node for step in plan.steps] == [1, 2, 7, 9, 8]
    assert [step.is_broker for step in plan.steps] == [True, True, False, False, False]


def test_a_quorum_of_one_is_named() -> None:
    state = situation({"orders": [partition([1, 2])]}, brokers=(1, 2), voters=(1,), controller=1)
    assert any(note.startswith("the quorum has 1 voter: while one restarts") for note in plan_of(state).notes)


def test_the_plan_is_in_the_json() -> None:
    found = asked(situation({"orders": [partition([1, 2, 3])]}, min_isr=2)).to_json()["plan"]
    assert found["is_safe"] is True
    assert found["steps"][1]["waits"] == [
        {"for": "in-sync", "broker": 2, "partitions": [{"topic": "orders", "partition": 0}]}
    ]
