"""Election strategies: who becomes leader, and what happens if a strategy is wrong."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import pytest
from tests.support.controller_world import ControllerWorld, make_config

from barnabas.broker.assembly import Broker
from barnabas.common.errors import ConfigError
from barnabas.common.reports import LimitedReports
from barnabas.decisions import strategies
from barnabas.decisions.strategies import Choice, NamedStrategy, Strategy, least_leaders, strategy_of
from barnabas.simulation.host import MemoryHost
from barnabas.simulation.node import TimelineLog
from barnabas.simulation.world import World
from barnabas.simulation.worlds.replicated import Replicated


class Lines:
    """Faults and clock for `LimitedReports`: keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def now_ms(self) -> int:
        return 0

    def now_s(self) -> float:
        return self.now_ms() / 1000

    def wall_ms(self) -> int:
        return 0

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        raise AssertionError(message)

    def report(self, message: str, error: BaseException | None = None) -> None:
        self.lines.append(message if error is None else f"{message}: {error}")

    def warn(self, message: str) -> None:
        self.lines.append(message)

    def inform(self, message: str) -> None:
        self.lines.append(message)


@pytest.fixture
def lines() -> Lines:
    return Lines()


def world_with(strategy: Strategy | None, lines: Lines) -> ControllerWorld:
    """Four brokers; six partitions on 1, 2, 3, all led by 1, and two on 2, 4, led by 2."""
    world = ControllerWorld()
    if strategy is not None:
        world.strategy = NamedStrategy("module:function", strategy, LimitedReports(lines, lines))
    for broker_id in (1, 2, 3, 4):
        world.add_broker(broker_id, rack=f"rack-{broker_id % 2}")
    world.create_assigned("six", *[[1, 2, 3]] * 6)
    world.create_assigned("two", *[[2, 4]] * 2)
    return world


def leaders(world: ControllerWorld, topic: str) -> Counter[int]:
    return Counter(partition.leader for partition in world.image.topics_by_name[topic].partitions)


def test_without_a_strategy_the_next_replica_leads_everything(lines: Lines) -> None:
    world = world_with(None, lines)
    world.fence(1)
    assert leaders(world, "six") == {2: 6}


def test_the_broker_with_the_fewest_leaders_leads(lines: Lines) -> None:
    world = world_with(least_leaders, lines)
    world.fence(1)
    # Broker 2 leads two partitions already.
    assert leaders(world, "six") == {2: 2, 3: 4}
    assert leaders(world, "two") == {2: 2}
    world.fence(3)
    assert leaders(world, "six") == {2: 6}
    assert not lines.lines


def test_a_leader_that_can_go_on_is_not_replaced(lines: Lines) -> None:
    world = world_with(least_leaders, lines)
    world.fence(4)
    world.unfence(4)
    assert leaders(world, "six") == {1: 6}


def test_a_function_gets_candidates_in_the_order_of_the_assignment(lines: Lines) -> None:
    choices: list[tuple[str, int, tuple[int, ...], dict[int, int], dict[int, str | None]]] = []

    def last(choice: Choice) -> int:
        choices.append((choice.topic, choice.partition, choice.candidates, dict(choice.leaders), dict(choice.racks)))
        return choice.candidates[-1]

    world = world_with(last, lines)
    world.fence(1)
    assert leaders(world, "six") == {3: 6}
    assert [choice[:3] for choice in choices] == [("six", partition, (2, 3)) for partition in range(6)]
    assert [choice[3].get(3, 0) for choice in choices] == [0, 1, 2, 3, 4, 5]
    assert [choice[3][1] for choice in choices] == [6, 5, 4, 3, 2, 1]
    assert choices[0][4] == {1: "rack-1", 2: "rack-0", 3: "rack-1", 4: "rack-0"}


def test_a_replica_that_would_lose_records_is_no_candidate(lines: Lines) -> None:
    """The strategy is not asked when one replica is left, and no strategy elects outside the ISR."""
    world = world_with(least_leaders, lines)
    world.fence(2)
    world.fence(1)
    assert leaders(world, "six") == {3: 6}
    world.fence(3)
    assert leaders(world, "six") == {-1: 6}
    world.unfence(2)
    assert leaders(world, "six") == {-1: 6}
    world.unfence(3)
    assert leaders(world, "six") == {3: 6}


def failing(choice: Choice) -> int:
    raise RuntimeError("no idea")


def outside(choice: Choice) -> int:
    return 4


@pytest.mark.parametrize(
    ("strategy", "line"),
    [
        (failing, "module:function failed for six-0; Kafka's rule applies: no idea"),
        (outside, "module:function chose 4 for six-0, but the candidates are 2, 3; Kafka's rule applies"),
    ],
)
def test_kafkas_rule_holds_if_a_strategy_is_wrong(strategy: Callable[[Choice], int], line: str, lines: Lines) -> None:
    world = world_with(strategy, lines)
    world.fence(1)
    assert leaders(world, "six") == {2: 6}
    assert lines.lines == [f"barnabas.leader.election.strategy={line}"]


def test_strategies_are_found_by_name(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("our_strategies")
    module.__dict__.update(last=lambda choice: choice.candidates[-1], limit=3)
    monkeypatch.setitem(sys.modules, "our_strategies", module)
    reports = LimitedReports(lines, lines)
    assert strategy_of("assignment", reports) is None
    found = strategy_of("our_strategies:last", reports)
    assert found is not None
    assert found.choose(Choice("t", 0, (1, 2), {}, {})) == 2
    ours = [f"our_strategies:{name}" for name in ("", "first", "limit")]
    for name in ("least", "", ":last", "nowhere:last", *ours):
        expected = rf"^Invalid value {name} for configuration {strategies.KEY}: .*expected "
        with pytest.raises(ConfigError, match=expected):
            strategy_of(name, reports)


def test_a_cluster_elects_by_its_setting() -> None:
    world = Replicated(barnabas_leader_election_strategy="least-leaders")
    world.create_topic("six", [[1, 2, 3]] * 6)
    world.node(1).kill()
    world.run_until(lambda: 1 not in led(world), "the partitions have other leaders")
    assert led(world) == {2: 3, 3: 3}


def led(world: Replicated) -> Counter[int]:
    return Counter(partition.leader for partition in world.controller.metadata.image.topics_by_name["six"].partitions)


def test_a_node_with_an_unknown_strategy_does_not_start() -> None:
    config = make_config({strategies.KEY: "most-leaders"})
    with pytest.raises(
        ConfigError,
        match=r"^Invalid value most-leaders for configuration barnabas\.leader\.election\.strategy: expected ",
    ):
        Broker.create(MemoryHost(0), config, TimelineLog(World(0), "node"))
