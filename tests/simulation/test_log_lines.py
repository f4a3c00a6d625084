"""The log lines of a broker about a fault of 60 s: the quorum's leader, fenced and unfenced brokers, missing
answers.
"""

from __future__ import annotations

import pytest
from tests.support.stalls import StallWorld

_LINES_MAX = 50


class Lines(StallWorld):
    """The lines that the nodes write to their logs from now on."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lines: dict[str, list[str]] = {}
        note = self.world.note

        def written(who: str, what: str, fact: object = None) -> None:
            self.lines.setdefault(who.partition(".")[0], []).append(what)
            note(who, what, fact)

        self.world.note = written  # type: ignore[assignment, method-assign]

    def of(self, number: int) -> list[str]:
        return self.lines.get(f"broker{number}", [])


def places(lines: list[str], *parts: str) -> list[int]:
    """Returns the indexes of lines with each of these parts, in this order."""
    found, begin = [], 0
    for part in parts:
        place = next((index for index in range(begin, len(lines)) if part in lines[index]), None)
        assert place is not None, f"no line with {part!r} behind {begin} of {lines}"
        found.append(place)
        begin = place + 1
    return found


@pytest.mark.parametrize(
    ("kind", "controller"),
    [
        ("island", True),
        pytest.param("island", False, marks=pytest.mark.full),
        pytest.param("deaf", False, marks=pytest.mark.full),
        ("flap", True),
        ("pause", False),
    ],
)
def test_a_fault_of_a_minute_writes_few_lines(kind: str, controller: bool) -> None:
    world = Lines(3)
    victim = world.active if controller else world.active % 3 + 1
    world.strike(kind, victim, 60_000)
    world.run_for(10_000)
    for number in (1, 2, 3):
        lines = world.of(number)
        assert len(lines) <= _LINES_MAX, "\n".join(lines)
        assert not any("answered a heartbeat with REQUEST_TIMED_OUT" in line for line in lines)


def test_a_broker_that_is_cut_off_logs_which_nodes_do_not_respond_and_that_they_are_back() -> None:
    world = Lines(4)
    active = world.active
    victim = active % 3 + 1
    world.strike("island", victim, 60_000)
    world.run_for(10_000)
    places(
        world.of(victim),
        f"no response from controller {active} for ",
        f"broker {victim} was fenced by the controller",
        f"broker {victim} is unfenced again, after ",
    )
    places(world.of(victim), "no response from", "the controller answers heartbeats again, after ")


def test_a_new_leader_of_the_quorum_is_named_once_by_everybody() -> None:
    world = Lines(5)
    before = world.active
    world.strike("island", before, 30_000)
    world.run_for(10_000)
    after = world.active
    for number in (1, 2, 3):
        who = "this node" if number == after else f"node {after}"
        epoch = world._broker(number).quorum.raft.epoch
        told = [line for line in world.of(number) if f"{who} leads the metadata quorum in epoch {epoch}" in line]
        assert len(told) == 1, world.of(number)


def test_that_nobody_leads_is_said_now_and_then_and_its_end_once() -> None:
    """The three nodes are cut off from each other: none can lead."""
    world = Lines(6)
    active = world.active
    names = [f"broker{number}" for number in (1, 2, 3)]
    pairs = [(one, other) for one in names for other in names if one != other]
    for pair in pairs:
        world.cluster.network.cut(*pair)
    world.run_for(40_000)
    for pair in pairs:
        world.cluster.network.heal(*pair)
    world.run_for(20_000)
    lines = world.of(active)
    told = [line for line in lines if "no leader of the metadata quorum is known for" in line]
    assert 2 <= len(told) <= 5, lines
    places(lines, "no leader of the metadata quorum is known for", " leads the metadata quorum in epoch ")
    assert sum(" leads the metadata quorum in epoch " in line and ", after " in line for line in lines) == 1, lines
