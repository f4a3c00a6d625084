"""Multis behind the check of `/controller_epoch`: groups, refusals, lost answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.znode_memory import ZnodeMemory

from barnabas.controller.zookeeper.fenced_writer import GROUP_BYTES_MAX, Conflict, FencedWriter, Unit, grouped
from barnabas.controller.zookeeper.znode_writes import create, delete, set_data
from barnabas.znodes import paths
from barnabas.zookeeper.client.store import ZnodeContent

EPOCH = b"7"
EPOCH_VERSION = 7


class World:
    """A writer of epoch 7 over znodes in memory."""

    def __init__(self, *states: str, version: int = 3) -> None:
        content = dict.fromkeys(states, ZnodeContent(b"old", version))
        self.store = ZnodeMemory({paths.CONTROLLER_EPOCH: ZnodeContent(EPOCH, EPOCH_VERSION), **content})
        self.fenced = 0
        self.settled: list[Sequence[Conflict]] = []
        self.writer = FencedWriter(self.store, EPOCH_VERSION, self.on_fenced)

    def on_fenced(self) -> None:
        self.fenced += 1

    def write(self, *units: Unit) -> None:
        self.writer.write(units, self.settled.append)

    def data(self, path: str) -> bytes | None:
        return self.store.znodes[path].data

    def versions(self, *names: str) -> list[int]:
        return [self.store.znodes[name].version for name in names]


def setting(path: str, data: bytes = b"new", version: int = 3) -> Unit:
    return Unit("t", (set_data(path, data, version),))


def test_a_decision_is_one_multi_behind_a_check_of_the_epoch() -> None:
    """G31: the first part of each multi is the check."""
    world = World("/a", "/b")
    world.write(setting("/a"), setting("/b"))
    assert world.store.sent == [3]
    assert world.settled == []
    world.store.answer()
    assert world.settled == [[]]
    assert world.data("/a") == world.data("/b") == b"new"


def test_groups_stay_below_their_size_and_keep_their_order() -> None:
    units = [setting(f"/{number:04}", b"x" * 50_000) for number in range(25)]
    groups = list(grouped(units))
    assert [unit for group in groups for unit in group] == units
    assert [sum(unit.size_bytes for unit in group) <= GROUP_BYTES_MAX for group in groups] == [True] * len(groups)
    assert [len(group) for group in groups] == [9, 9, 7]
    large = setting("/large", b"x" * 600_000)
    assert [len(group) for group in grouped([units[0], large, units[1]])] == [1, 1, 1]


def test_a_refused_check_ends_everything() -> None:
    """G31: another controller has claimed, so nothing more is written, not even what was queued or is submitted
    later, and nobody learns of answers that still arrive."""
    world = World("/a", "/b")
    for _ in range(150):
        world.write(setting("/a"))
    world.store.set(paths.CONTROLLER_EPOCH, b"8")
    sent = len(world.store.sent)
    assert sent < 150, "some wait for the window"
    world.store.answer_all()
    assert world.fenced == 1
    assert world.writer.is_closed
    assert len(world.store.sent) == sent, "what was queued is not sent"
    world.write(setting("/b"))
    world.writer.resume()
    assert len(world.store.sent) == sent
    assert world.settled == []
    assert world.store.log == []


def test_a_lost_answer_does_not_hide_a_refused_check() -> None:
    """G31: a write that is repeated after its answer was lost has the same check."""
    world = World("/a")
    world.write(setting("/a"))
    world.store.lose_all(happened=0)
    world.store.set(paths.CONTROLLER_EPOCH, b"8")
    world.writer.resume()
    world.store.answer_all()
    assert world.fenced == 1
    assert world.data("/a") == b"old"


def test_a_write_that_no_frame_can_hold_is_a_conflict_and_no_fence() -> None:
    world = World("/a", "/b")
    world.write(setting("/a", b"x" * 2_000_000), setting("/b"))
    world.store.answer_all()
    assert world.fenced == 0
    assert world.settled == [[Conflict(setting("/a", b"x" * 2_000_000), {"/a": ZnodeContent(b"old", 3)})]]
    assert (world.data("/a"), world.data("/b")) == (b"old", b"new")


def test_one_refused_write_costs_only_its_own_unit() -> None:
    world = World("/a", "/b", "/c")
    world.store.set("/b", b"by an operator")
    world.write(setting("/a"), setting("/b"), setting("/c"))
    world.store.answer_all()
    assert [(conflict.unit.writes[0].path, dict(conflict.found)) for conflict in world.settled[0]] == [
        ("/b", {"/b": ZnodeContent(b"by an operator", 4)})
    ]
    assert world.data("/a") == world.data("/c") == b"new"
    assert world.data("/b") == b"by an operator"


def test_after_a_refusal_one_request_at_a_time_is_sent() -> None:
    world = World("/a", "/b", "/c")
    world.store.set("/a", b"by an operator")
    world.write(setting("/a"), setting("/b"), setting("/c"))
    world.store.answer()
    while world.store.waiting:
        assert world.store.waiting == 1
        world.store.answer()
    assert len(world.settled[0]) == 1
    world.write(setting("/b", b"more", 4))
    world.write(setting("/c", b"more", 4))
    assert world.store.sent[-2:] == [2, 2], "the window is open again"


@pytest.mark.parametrize("happened", [0, 1, 2])
def test_a_lost_answer_means_neither_done_nor_undone(happened: int) -> None:
    """G33: what was lost is sent again when the session is connected again, and what is there already counts as done:
    each state is written once."""
    world = World("/a", "/b", "/c", "/d")
    world.write(setting("/a"), setting("/b"))
    world.write(setting("/c"), setting("/d"))
    world.store.lose_all(happened)
    assert world.settled == [], "nobody knows yet"
    world.write(setting("/a", b"later", 4))
    assert world.store.waiting == 0, "nothing is sent without a connection"
    world.writer.resume()
    world.store.answer_all()
    assert world.settled == [[], [], []]
    assert world.versions("/a", "/b", "/c", "/d") == [5, 4, 4, 4]
    assert world.data("/a") == b"later"


@pytest.mark.parametrize("happened", [0, 1, 2, 3])
def test_lost_changes_of_one_state_are_all_done(happened: int) -> None:
    """G33: the first of three changes is sent again, and the state says already what the last one wrote."""
    world = World("/a")
    for version, data in ((3, b"first"), (4, b"second"), (5, b"third")):
        world.write(setting("/a", data, version))
    world.store.lose_all(happened)
    world.writer.resume()
    world.store.answer_all()
    assert world.settled == [[], [], []]
    assert world.data("/a") == b"third"
    assert world.versions("/a") == [6]


def test_a_state_that_exists_already_as_wanted_is_done() -> None:
    """G33: a controller before this one, or a lost request, has created some of the znodes: the rest is created, and
    no partition stays without a leader because its state exists already."""
    world = World()
    for path in ("/p", "/p/0"):
        world.store.set(path, None)
    unit = Unit("t", (create("/p"), create("/p/0"), create("/p/0/state", b"new")))
    other = Unit("t", (create("/p/1"), create("/p/1/state", b"new")))
    world.write(unit, other)
    world.store.answer_all()
    assert world.settled == [[]]
    assert world.data("/p/0/state") == world.data("/p/1/state") == b"new"


def test_a_state_that_says_something_else_is_reported_with_what_it_says() -> None:
    """G33: the controller takes in what is there and decides again, instead of logging that the state exists."""
    world = World()
    for path, data in (("/p", None), ("/p/state", b"of another controller")):
        world.store.set(path, data)
    world.write(Unit("t", (create("/p/state", b"new"),)))
    world.store.answer_all()
    ((conflict,),) = world.settled
    assert conflict.found == {"/p/state": ZnodeContent(b"of another controller", 0)}


def test_an_earlier_write_that_is_queued_again_does_not_hide_a_conflict() -> None:
    """A group is divided, and the write behind it finds what a write of that group wanted."""
    world = World("/a", "/b")
    world.write(Unit("t", (create("/a", b"new"),)), Unit("t", (delete("/b"),)))
    world.write(setting("/b"))
    world.store.tree.delete("/b")
    while world.store.waiting:
        world.store.answer()
    assert [[each.unit.writes[0].path for each in conflicts] for conflicts in world.settled] == [["/b"], ["/a"]]


def test_deleting_what_is_gone_is_done() -> None:
    """G33: a deletion that is repeated after a lost answer finds nothing, as wanted."""
    world = World("/t", "/t/s")
    world.write(Unit("t", (delete("/t/s"), delete("/t"))))
    world.store.lose_all(happened=1)
    world.writer.resume()
    world.store.answer_all()
    assert world.settled == [[]]
    assert "/t" not in world.store.znodes


def test_the_last_unit_waits_for_all_earlier_ones() -> None:
    world = World("/a", "/b", "/topic")
    world.write(setting("/a"), setting("/b"), setting("/topic")._replace(is_last=True))
    assert world.store.sent == [3]
    world.store.answer()
    assert world.store.sent == [3, 2]
    world.store.answer()
    assert world.settled == [[]]


def test_the_last_unit_is_not_written_if_an_earlier_one_was_not() -> None:
    world = World("/a", "/b", "/topic")
    world.store.set("/a", b"by an operator")
    world.write(setting("/a"), setting("/b"), setting("/topic")._replace(is_last=True))
    world.store.answer_all()
    assert [conflict.unit.writes[0].path for conflict in world.settled[0]] == ["/a", "/topic"]
    assert world.data("/topic") == b"old"


def test_writes_that_expect_versions_of_one_znode_follow_each_other() -> None:
    world = World("/a", "/b")
    world.write(setting("/a"))
    world.write(setting("/b"))
    world.write(setting("/a", b"later", 4))
    assert world.store.waiting == 2, "the third waits for the first"
    world.store.answer_all()
    assert world.settled == [[], [], []]
    assert world.data("/a") == b"later"


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_write_decided_on_top_of_a_conflict_is_one_even_if_the_version_fits(is_connected: bool) -> None:
    """Another client's write has the version that the first one would have had: the second one, which builds on the
    first, expects exactly that.
    """
    world = World("/topic", "/0/state", "/1/state")
    first = Unit("t", (set_data("/topic", b"1", 3), set_data("/0/state", b"1", 3)))
    second = Unit("t", (set_data("/topic", b"2", 4), set_data("/1/state", b"2", 3)))
    if not is_connected:
        world.writer.suspend()
    world.store.set("/topic", b"by an operator")
    world.write(first)
    world.write(second)
    world.writer.resume()
    world.store.answer_all()
    assert [[conflict.unit for conflict in conflicts] for conflicts in world.settled] == [[first], [second]]
    assert (world.data("/topic"), world.data("/1/state")) == (b"by an operator", b"old")
    world.write(setting("/topic", b"too early", 4), setting("/1/state"))
    world.store.answer_all()
    assert [conflict.unit.writes[0].path for conflict in world.settled[2]] == ["/topic", "/1/state"]
    world.writer.was_read("t")
    world.write(setting("/topic", b"decided again", 4))
    world.store.answer_all()
    assert world.settled[3] == []
    assert world.data("/topic") == b"decided again"


def test_a_closed_writer_is_silent() -> None:
    """G34: whoever resigns because the session expired writes nothing, and hears nothing, in the next one."""
    world = World("/a", "/b")
    world.write(setting("/a"))
    world.writer.close()
    world.store.lose_all(happened=0)
    world.writer.resume()
    world.write(setting("/b"))
    assert world.store.waiting == 0
    assert world.settled == []
