"""Rare events: the table fits the product, counting changes nothing, and the worlds reach what they are there for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.rare_event_floors import count_runs, reach, read_floors

from barnabas.cli import simulate_runs
from barnabas.simulation import rare_events
from barnabas.simulation.event_coverage import EventCoverage, Reached
from barnabas.simulation.rare_event_table import RARE_EVENTS, reachable
from barnabas.simulation.rare_events import RareEvent, counted
from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.second_decisions import SecondDecision, SecondDecisions
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.worlds import replication_explorer, txn_explorer, zookeeper_explorer
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World
from barnabas.storage.log import Log

_NAMES = {event.name for event in RARE_EVENTS}


def test_the_table_has_many_events_each_once() -> None:
    assert len(RARE_EVENTS) >= 80
    assert [name for name, times in Counter(event.name for event in RARE_EVENTS).items() if times > 1] == []


def test_all_targets_exist_and_are_restored() -> None:
    before = Log.roll
    with counted(RARE_EVENTS) as counts:
        assert Log.roll is not before
    assert Log.roll is before
    assert not counts


@pytest.mark.parametrize("target", ["storage.log:Log.rol", "storage.log:Lo.roll", "storage.log:Log.size_bytes"])
def test_a_target_that_does_not_exist_is_an_error(target: str) -> None:
    before = Log.roll
    events = [RareEvent("a segment rolls", "storage.log:Log.roll"), RareEvent("nothing", target)]
    with pytest.raises(LookupError, match=target.partition(":")[0]), counted(events):
        pytest.fail("never counted")
    assert Log.roll is before


def test_a_call_is_judged_by_what_was_before_and_by_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Product:
        def __init__(self) -> None:
            self.size = 0

        def grow(self, by: int) -> int:
            if by < 0:
                raise ValueError(by)
            self.size += by
            return self.size

    monkeypatch.setattr(rare_events, "Product", Product, raising=False)
    target = "simulation.rare_events:Product.grow"
    events = [
        RareEvent("it grows", target, lambda call: call.subject.size > call.before, lambda call: call.subject.size),
        RareEvent("it refuses", target, lambda call: call.result.args == (-1,), is_error=True),
    ]
    product = Product()
    with counted(events) as counts:
        assert [product.grow(2), product.grow(0), product.grow(by=1)] == [2, 2, 3]
        for by in (-1, -2):
            with pytest.raises(ValueError, match=str(by)):
                product.grow(by)
    assert counts == {"it grows": 2, "it refuses": 1}


def test_a_question_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second decisions ask the product at its limits; what it answers has not happened."""

    class Product:
        def is_full(self, size: int) -> bool:
            return size >= 3

    monkeypatch.setattr(rare_events, "Product", Product, raising=False)
    target = "simulation.rare_events:Product.is_full"
    event = RareEvent("it is full", target, lambda call: call.result)
    row = SecondDecision(target, lambda _, size: size >= 3, lambda product, size: [(product, 2), (product, 3)])
    judge = SecondDecisions([row])
    with counted([event]) as counts, judge.judging():
        assert not Product().is_full(1)
        assert judge.compared == 3
        assert not counts
        assert Product().is_full(4)
    assert counts == {"it is full": 1}


@pytest.mark.parametrize(
    "settings",
    [
        Settings(seed=5, faults_s=5, draws_properties=True),
        Settings(seed=2, faults_s=1, layout=Layout(brokers=3), producers=1, consumers=1, draws_properties=True),
    ],
    ids=["one broker", "three brokers"],
)
def test_counting_changes_nothing(settings: Settings) -> None:
    plain = run(replace(settings, counts_rare_events=False))
    watched = run(settings)
    assert watched.trace_hash == plain.trace_hash
    assert not plain.rare_events
    assert sum(1 for times in watched.rare_events.values() if times) > 3


def test_a_run_shows_only_events_that_it_can_reach() -> None:
    def names(layout: Layout, work: WorkKind = WorkKind.RECORDS) -> set[str]:
        return {event.name for event in reachable(layout, work)}

    alone, three, old = names(Layout()), names(Layout(brokers=3)), names(Layout(brokers=3, zookeeper=True))
    assert alone < three < _NAMES
    assert "a leader shrinks its ISR" in three - alone
    assert "a metadata snapshot is written" in alone - old
    assert "a claim loses" in old - three
    assert "a transaction times out" in names(Layout(brokers=3), WorkKind.TRANSACTIONS) - three


def test_coverage_shows_the_rarest_event_first() -> None:
    coverage = EventCoverage()
    assert coverage.add({"a": 3, "b": 0, "c": 1}) == 1
    assert coverage.add({"a": 1, "b": 0, "c": 2}) == 0
    assert coverage.add({"a": 1, "b": 0, "c": 0, "d": 5}) == 1
    assert coverage.rows() == [Reached("b", 0, 0), Reached("d", 5, 1), Reached("c", 3, 2), Reached("a", 5, 3)]
    assert coverage.reached == 3


def test_an_exploration_prints_its_events(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(seed=1, faults_s=1, kinds=(), producers=1, consumers=1)
    assert not simulate_runs.explore(settings, 1, 1, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].lower().split() == ["rare", "event", "times", "seeds", "variations"]
    assert len(lines) >= len(reachable(Layout(), WorkKind.RECORDS))
    assert int(lines[-1].split()[-3]) > 0


# -- what the worlds reach


def _replication(seed: int) -> None:
    assert replication_explorer.explore(seed).problem is None


def _transactions(seed: int) -> None:
    assert txn_explorer.explore(seed).problem is None


def _zookeeper(seed: int) -> None:
    assert zookeeper_explorer.explore(seed).problem is None


def _quorum(seed: int) -> None:
    World(Plan.of(seed)).run()


def _happened(explore: Callable[[int], None], seeds: range) -> set[str]:
    with counted(RARE_EVENTS) as counts:
        for seed in seeds:
            explore(seed)
    return set(counts)


#: Events that happen in most seeds of a small world.
_OF_REPLICATION = {
    "a broker waits until the metadata shows its registration",
    "a broker's session ends",
    "a client deletes records",
    "a follower's fetch gets no answer",
    "a follower's waiting fetch ends early to take more partitions",
    "a heartbeat gets no answer",
    "a leader enlarges its ISR",
    "a leader follows another broker",
    "a leader shrinks its ISR",
    "a leader reports to its follower where their logs diverge",
    "a leader's replica is removed",
    "a log is cut",
    "a log is scanned at a start",
    "a probe finds a broker alive",
    "a repeated batch is recognised",
    "a replica begins to lead alone in its ISR",
    "a request to the controller is sent again",
    "a topic's log is deleted",
    "acks=all times out",
    "an ELR gains a member",
    "leader epochs are truncated",
    "leadership ends while an ISR change is proposed",
    "the log start offset moves",
}
_OF_QUORUM = {
    "a candidate backs off",
    "a candidate tries again",
    "a leader of the quorum hands over",
    "a leader of the quorum learns a higher epoch",
    "a leader sends a follower to a snapshot",
    "a leader without a majority resigns",
    "a metadata log is cut",
    "a metadata snapshot is fetched",
    "a metadata snapshot is installed",
    "a metadata snapshot is written",
    "a node begins with a metadata snapshot",
    "a pre-vote fails",
    "a pre-vote is refused",
    "a quorum has a new leader",
    "a vote is refused",
    "a voter asks for pre-votes",
    "a voter finds that its leader's process is gone",
    "a voter stands for election",
    "an index is truncated",
    "decisions of a deposed leader stay open",
    "leader epochs before the log start are forgotten",
    "old metadata is deleted",
    "the metadata log rolls a segment",
    "the producers of a log are reset",
    "the voters change under a snapshot",
    "the voters change",
    "undelivered metadata is cut",
}
_OF_TRANSACTIONS = {
    "a batch has an earlier producer epoch",
    "a marker ends no open transaction",
    "a partition is not in its transaction",
    "a reader gets aborted transactions",
    "a request meets a transaction that is not complete",
    "a request waits for the markers before it",
    "a transaction ends while another one is open in its partition",
    "a transaction times out",
    "a zombie is fenced by the coordinator",
    "an aborted transaction enters the index",
    "offsets of a transaction are dropped",
    "offsets of a transaction take effect",
    "records of a transaction are refused after their verification",
    "the end of a transaction is repeated",
}
_OF_ZOOKEEPER = {
    "a broker leaves the image of the controller",
    "a claim is read back",
    "a claim loses",
    "a client names a session that is gone",
    "a connection to ZooKeeper is lost",
    "a controller in ZooKeeper mode resigns",
    "a follower's epoch is fenced by its leader",
    "a leader continues in a new epoch",
    "a role of an earlier leader epoch is refused",
    "a session with ZooKeeper continues on another connection",
    "a session with ZooKeeper expires",
    "an ISR change waits for the one before it",
    "the ZooKeeper server ends a session",
    "the controller waits for its connection to ZooKeeper",
    "the session of the controller expires",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("explore", "seeds", "expected"),
    [
        pytest.param(_replication, range(1, 6), _OF_REPLICATION, id="replication"),
        pytest.param(_quorum, range(16), _OF_QUORUM, id="quorum"),
        pytest.param(_transactions, range(1, 4), _OF_TRANSACTIONS, id="transactions"),
        pytest.param(_zookeeper, range(1, 5), _OF_ZOOKEEPER, id="zookeeper"),
    ],
)
def test_a_few_seeds_of_the_small_worlds_reach_their_events(
    explore: Callable[[int], None], seeds: range, expected: set[str]
) -> None:
    assert expected <= _NAMES
    missing = expected - _happened(explore, seeds)
    assert not missing, sorted(missing)


def test_many_events_have_a_floor() -> None:
    floors = read_floors()
    assert set(floors) <= _NAMES
    assert len(floors) > 100


@pytest.mark.full
@pytest.mark.long_turns("the collector of this process walks over what hundreds of runs left")
@pytest.mark.timeout(7200)
def test_two_hundred_seeds_reach_each_event_as_often_as_its_floor_says() -> None:
    runs = count_runs()
    missing = {name: (runs[name], floor) for name, floor in read_floors().items() if runs[name] < floor}
    assert not missing, f"events, their runs and their floors: {missing}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("three brokers", 64),  # a topic is replaced while another partition of the same request waits
        ("zookeeper mode", 28),  # all processes are paused when a broker becomes leader
        ("three brokers", 86),  # a request that adds a partition succeeds, and its answer is lost
        ("one broker", 22),  # portions of one partition
        ("one broker", 42),  # the only broker leads before the controller has decided what its power failure means
        ("zookeeper mode", 62),  # requests of few rows
        ("three brokers", 77),  # a broker loses all its log directories
    ],
)
def test_what_looked_wrong_once(kind: str, seed: int) -> None:
    assert not reach(kind, seed).problem
