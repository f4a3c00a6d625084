"""The verdict on the diaries of group members: planted errors, each reported."""

from __future__ import annotations

from barnabas.simulation.group_history import GroupHistory

PLACE = ("orders", 0)
SECOND = 1_000_000


class Told:
    """A history whose time is set by hand; sessions last ten seconds."""

    def __init__(self) -> None:
        self.now_us = 0
        self.history = GroupHistory(lambda: self.now_us, 10 * SECOND)

    def at(self, second: float) -> GroupHistory:
        self.now_us = int(second * SECOND)
        return self.history


def test_a_partition_that_goes_from_hand_to_hand() -> None:
    told = Told()
    told.at(1).contacted("a", SECOND)
    told.at(1).assigned("a", PLACE, 1)
    told.at(5).revoked("a", PLACE)
    told.at(5).assigned("b", PLACE, 2)
    assert told.history.problems() == []


def test_two_owners_in_a_generation() -> None:
    told = Told()
    told.at(1).assigned("a", PLACE, 1)
    told.at(2).assigned("b", PLACE, 1)
    (problem,) = [each for each in told.history.problems() if each.text.startswith("two owners in a generation: ")]
    assert problem.text.startswith("two owners in a generation: orders-0 in 1")
    assert {note.node for note in problem.notes if note.text == "is assigned orders-0 in 1"} == {"a", "b"}


def test_a_group_that_lost_all_members_counts_from_the_begin() -> None:
    """New members may have the generations of the first ones, but not while one of those can still be there."""
    for contact_s, is_allowed in ((5, True), (15, False)):
        told = Told()
        told.at(1).contacted("a", SECOND)
        told.at(1).assigned("a", PLACE, 1)
        told.at(3).revoked("a", PLACE)
        told.at(4).contacted("b", 4 * SECOND)
        told.at(4).assigned("b", ("orders", 1), 2)
        told.at(contact_s).contacted("b", contact_s * SECOND)
        told.at(20).contacted("c", 20 * SECOND)
        told.at(20).assigned("c", PLACE, 1)
        problems = [each.text for each in told.history.problems()]
        assert (problems == []) is is_allowed, problems


def test_a_member_with_a_recent_heartbeat_keeps_its_partitions() -> None:
    told = Told()
    told.at(1).contacted("a", SECOND)
    told.at(1).assigned("a", PLACE, 1)
    told.at(6).assigned("b", PLACE, 2)
    assert any(problem.text.startswith("owned twice at once: orders-0") for problem in told.history.problems())


def test_a_member_without_a_heartbeat_for_a_session_has_no_partitions() -> None:
    """The member owns nothing even if it learns of that later, and contacts the coordinator again afterwards."""
    told = Told()
    told.at(1).contacted("a", SECOND)
    told.at(1).assigned("a", PLACE, 1)
    told.at(12).assigned("b", PLACE, 2)
    told.at(15).revoked("a", PLACE)
    told.at(16).contacted("a", 16 * SECOND)
    assert told.history.problems() == []


def test_a_static_member_that_has_ended_keeps_what_it_had_for_a_session() -> None:
    for second, is_wrong in ((6, True), (12, False)):
        told = Told()
        told.at(1).contacted("a", SECOND)
        told.at(1).assigned("a", PLACE, 1)
        told.at(2).left("a")
        told.at(second).assigned("b", PLACE, 2)
        found = [problem.text.partition(":")[0] for problem in told.history.problems()]
        assert found == ["owned twice at once"] * is_wrong


def test_a_static_member_that_is_back_has_what_it_is_assigned_again() -> None:
    told = Told()
    told.at(1).contacted("a", SECOND)
    told.at(1).assigned("a", PLACE, 1)
    told.at(2).left("a")
    told.at(4).contacted("a", 4 * SECOND)
    told.at(6).assigned("b", PLACE, 2)
    assert told.history.problems() == []


def test_commits_that_go_back_or_get_lost() -> None:
    told = Told()
    told.at(2).saw(PLACE, SECOND, 5, is_commit=True)
    told.at(4).saw(PLACE, 3 * SECOND, 5)
    assert told.history.problems() == []
    told.at(6).saw(PLACE, 5 * SECOND, 4)
    assert any(
        problem.text.startswith("committed offset went back: orders-0 is at 4") for problem in told.history.problems()
    )
    told.at(7).excuse(PLACE)
    told.at(9).saw(PLACE, 8 * SECOND, 3)
    assert not any("is at 3" in problem.text for problem in told.history.problems())


def test_what_was_asked_before_an_answer_need_not_show_it() -> None:
    told = Told()
    told.at(3).saw(PLACE, SECOND, 5, is_commit=True)
    told.at(4).saw(PLACE, 2 * SECOND, 4)
    assert told.history.problems() == []
