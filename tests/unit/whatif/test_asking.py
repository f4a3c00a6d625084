"""Answers to questions about small clusters: leaders, ISRs, effects, notes and exit codes."""

from __future__ import annotations

import json

import pytest
from tests.support.situations import partition, situation

from barnabas.decisions.partition import LOST_DIRECTORY
from barnabas.whatif import Answer, BadQuestion, ask, parse_question
from barnabas.whatif.outcomes import Effect, Outcome
from barnabas.whatif.situation import Situation, TopicFacts


def asked(state: Situation, words: str) -> Answer:
    return ask(state, parse_question(words.split()))


def outcome(answer: Answer, topic: str = "orders", index: int = 0) -> Outcome:
    return next(each for each in answer.partitions if each.key == (topic, index))


def test_a_kill_moves_leaders_to_the_next_in_sync_replica() -> None:
    state = situation({"orders": [partition([1, 2, 3]), partition([2, 3, 1]), partition([3, 1, 2], isr=[3, 2])]})
    answer = asked(state, "kill 3")
    assert [each.key[1] for each in answer.partitions] == [2, 0, 1]
    assert outcome(answer, index=2).leader == 2
    assert outcome(answer, index=2).effects == (Effect.SINGLE_COPY, Effect.AT_MIN_ISR, Effect.NEW_LEADER)
    assert outcome(answer, index=2).why == "2 is the first in-sync replica in the order of the assignment"
    assert outcome(answer, index=0).after.isr == (1, 2)
    assert outcome(answer, index=0).effects == (Effect.UNDER_REPLICATED,)
    assert (answer.total, answer.exit_code) == (3, 0)
    assert answer.counts[Effect.NEW_LEADER] == 1


def test_several_victims_leave_a_partition_without_a_leader() -> None:
    state = situation({"orders": [partition([1, 2]), partition([3, 1])]}, voters=(7, 8, 9))
    answer = asked(state, "kill 1 2")
    gone = outcome(answer)
    assert (gone.leader, gone.effects, gone.why) == (-1, (Effect.OFFLINE,), "all of its replicas are gone: 1, 2")
    assert gone.unclean_candidate == -1
    assert answer.exit_code == 6


def test_without_a_majority_of_voters_nothing_is_decided() -> None:
    state = situation({"orders": [partition([1, 2, 3]), partition([3, 1, 2])]})
    answer = asked(state, "kill 1 2")
    assert outcome(answer).effects == (Effect.OFFLINE,)
    assert outcome(answer).why == "no controller elects: the metadata quorum has no majority"
    # Broker 3 leads, and waits forever for the members of its ISR.
    assert Effect.UNDER_MIN_ISR in outcome(answer, index=1).effects
    assert outcome(answer, index=1).after.isr == (3, 1, 2)
    assert any("1 of 3 voters" in note for note in answer.notes)


def test_a_dedicated_controller_can_be_killed() -> None:
    state = situation({"orders": [partition([1, 2])]}, controller=8, voters=(7, 8, 9))
    answer = asked(state, "kill 8")
    assert (answer.partitions, answer.exit_code) == ([], 0)
    assert any("8 is the active controller" in note for note in answer.notes)


def test_under_min_isr_is_five() -> None:
    answer = asked(situation({"orders": [partition([1, 2, 3], isr=[1, 3])]}, min_isr=2), "kill 3")
    assert outcome(answer).effects == (Effect.UNDER_MIN_ISR, Effect.SINGLE_COPY)
    assert answer.exit_code == 5


def test_what_was_so_before_does_not_count() -> None:
    state = situation({"orders": [partition([1, 2], isr=[1])], "lost": [partition([2, 3], isr=[], leader=-1)]})
    answer = asked(state, "kill 3")
    assert answer.exit_code == 0
    assert answer.already[Effect.OFFLINE] == 1


def test_an_unclean_election_is_named_where_it_is_needed() -> None:
    answer = asked(situation({"orders": [partition([3, 1], isr=[3])]}), "kill 3")
    assert outcome(answer).leader == -1
    assert outcome(answer).unclean_candidate == 1
    assert answer.unclean_needed == 1
    assert "only an unclean election could choose 1" in outcome(answer).why


def test_an_unclean_election_happens_where_the_topic_allows_it() -> None:
    allowed = {"orders": TopicFacts(is_unclean_allowed=True)}
    answer = asked(situation({"orders": [partition([3, 1], isr=[3])]}, settings=allowed), "kill 3")
    assert outcome(answer).leader == 1
    assert outcome(answer).effects[0] is Effect.UNCLEAN
    assert answer.exit_code == 6


@pytest.mark.parametrize("has_elr", [True, False])
def test_members_that_leave_below_min_isr_stay_eligible_with_elr(has_elr: bool) -> None:
    state = situation({"orders": [partition([1, 2, 3], isr=[2, 3])]}, min_isr=2, elr_enabled=has_elr)
    answer = asked(state, "kill 2")
    assert outcome(answer).after.elr == ((2,) if has_elr else ())
    later = asked(
        situation({"orders": [partition([1, 2, 3], isr=[3], elr=[2])]}, min_isr=2, elr_enabled=True), "kill 3"
    )
    assert outcome(later).leader == 2
    assert outcome(later).why == "2 is eligible: it has all committed records (ELR)"


def test_a_silent_broker_counts_as_dead() -> None:
    state = situation({"orders": [partition([2, 3, 1])]}, silent=[2], min_isr=2, voters=(7, 8, 9))
    answer = asked(state, "kill 3")
    assert outcome(answer).before.isr == (3, 1)
    assert (outcome(answer).leader, answer.exit_code) == (1, 5)
    assert answer.notes[0] == "broker 2 does not answer, and counts as dead"


def test_a_rack_is_all_of_its_brokers() -> None:
    state = situation(
        {"orders": [partition([1, 2]), partition([1, 3])]}, racks={1: "a", 2: "a", 3: "b"}, voters=(7, 8, 9)
    )
    answer = asked(state, "rack a")
    assert outcome(answer).leader == -1
    assert outcome(answer, index=1).leader == 3
    with pytest.raises(BadQuestion, match="no broker is in rack c; the racks are a, b"):
        asked(state, "rack c")


def test_a_disk_takes_only_its_replicas() -> None:
    directories = {2: {"/a": frozenset({("orders", 0)}), "/b": frozenset({("orders", 1)})}}
    state = situation({"orders": [partition([2, 1]), partition([2, 3])]}, directories=directories)
    answer = asked(state, "disk 2:/a")
    assert [each.key[1] for each in answer.partitions] == [0]
    assert (outcome(answer).leader, outcome(answer).after.isr) == (1, (1,))
    assert outcome(answer).after.directory_of(2) == LOST_DIRECTORY
    with pytest.raises(BadQuestion, match="broker 2 has no log directory /c; it has /a, /b"):
        asked(state, "disk 2:/c")


@pytest.mark.parametrize(
    ("disks", "metadata", "note"),
    [
        ("2:/a 2:/b", {}, "broker 2 has no other log directory, and stops"),
        ("2:/a", {2: "/a"}, "broker 2 keeps its metadata log in /a, and stops"),
    ],
)
def test_a_broker_without_a_needed_disk_stops(disks: str, metadata: dict[int, str], note: str) -> None:
    directories = {2: {"/a": frozenset({("orders", 0)}), "/b": frozenset({("orders", 1)})}}
    state = situation(
        {"orders": [partition([2, 1]), partition([2, 3])]}, directories=directories, metadata_directories=metadata
    )
    answer = asked(state, f"disk {disks}")
    assert [each.leader for each in answer.partitions] == [1, 3]
    assert note in answer.notes


def test_a_restart_is_a_controlled_shutdown() -> None:
    answer = asked(situation({"orders": [partition([2, 1, 3]), partition([2])]}), "restart 2")
    assert (outcome(answer).leader, outcome(answer).after.isr) == (1, (1, 3))
    assert outcome(answer, index=1).why == "its only replica is gone: 2"
    assert answer.exit_code == 6


def test_min_isr_is_capped_by_the_replicas() -> None:
    state = situation({"orders": [partition([1, 2, 3]), partition([1, 2, 3], isr=[1, 2])]}, min_isr=2)
    answer = asked(state, "min-isr orders=3")
    assert outcome(answer).effects == (Effect.AT_MIN_ISR,)
    assert outcome(answer, index=1).effects == (Effect.UNDER_MIN_ISR,)
    assert answer.exit_code == 5
    assert asked(state, "min-isr orders=5").notes == ["orders has 3 replicas: 3 is in force instead of 5"]
    with pytest.raises(BadQuestion, match="there is no topic missing"):
        asked(state, "min-isr missing=2")


def test_a_lower_min_isr_changes_nothing() -> None:
    assert asked(situation({"orders": [partition([1, 2, 3])]}, min_isr=2), "min-isr orders=1").partitions == []


def test_a_drain_proposes_other_brokers() -> None:
    state = situation(
        {"orders": [partition([2, 1]), partition([1, 2])]},
        brokers=(1, 2, 3, 4),
        racks={1: "a", 2: "b", 3: "b", 4: "a"},
        sizes={("orders", 0): 10, ("orders", 1): 5},
    )
    answer = asked(state, "drain 2")
    assert answer.moves == {("orders", 0): (3, 1), ("orders", 1): (1, 3)}
    assert answer.moved_bytes == 15
    assert outcome(answer).leader == 3
    assert outcome(answer).after.isr == (1, 3)
    assert answer.exit_code == 0
    assert answer.reassignment()["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "replicas": [3, 1],
        "log_dirs": ["any", "any"],
    }


def test_a_drain_without_room_is_not_possible() -> None:
    answer = asked(situation({"orders": [partition([1, 2, 3])]}), "drain 2")
    assert answer.stuck == {("orders", 0): "no broker is left for a replica of 3"}
    assert answer.exit_code == 3


def test_the_least_leaders_strategy_is_followed() -> None:
    state = situation({"a": [partition([1])], "orders": [partition([3, 1, 2])]}, strategy="least-leaders")
    assert outcome(asked(state, "kill 3")).leader == 2
    unknown = situation({"orders": [partition([3, 1, 2])]}, strategy="own:choose")
    answer = asked(unknown, "kill 3")
    assert outcome(answer).leader == 1
    assert "the strategy own:choose is not known here: leaders are predicted by Kafka's rule" in answer.notes


def test_in_zookeeper_mode_the_isr_keeps_its_last_members() -> None:
    state = situation({"orders": [partition([3, 1], isr=[3])]}, has_quorum=False, voters=())
    dead = outcome(asked(state, "kill 3"))
    assert (dead.leader, dead.after.isr) == (-1, (3,))
    moved = outcome(asked(situation({"orders": [partition([3, 1, 2])]}, has_quorum=False, voters=()), "restart 3"))
    assert (moved.leader, moved.after.isr) == (1, (1, 2))


def test_an_unknown_broker_is_refused() -> None:
    with pytest.raises(BadQuestion, match="the cluster has no broker 9; its brokers are 1, 2, 3"):
        asked(situation({"orders": [partition([1])]}), "kill 9")


def test_a_dead_broker_can_be_asked_about() -> None:
    answer = asked(situation({"orders": [partition([1, 4], isr=[1])]}), "kill 4")
    assert (answer.partitions, answer.exit_code) == ([], 0)
    assert "broker 4 is no longer in the cluster" in answer.notes


def test_the_json_is_complete() -> None:
    answer = asked(situation({"orders": [partition([3, 1])]}), "kill 3")
    found = json.loads(json.dumps(answer.to_json()))
    assert found["question"] == "kill 3"
    assert found["exit_code"] == 0
    assert found["summary"]["partitions"] == 1
    assert found["summary"]["new_leader"] == 1
    assert found["partitions"] == [
        {
            "topic": "orders",
            "partition": 0,
            "effects": ["single-copy", "at-min-isr", "new-leader"],
            "already": [],
            "why": "1 is the first in-sync replica in the order of the assignment",
            "min_isr": 1,
            "unclean_candidate": -1,
            "before": {"leader": 3, "replicas": [3, 1], "isr": [3, 1], "elr": []},
            "after": {"leader": 1, "replicas": [3, 1], "isr": [1], "elr": [], "in_sync": [1]},
        }
    ]
