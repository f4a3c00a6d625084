"""Election strategies: which of the replicas that can lead cleanly becomes the leader.

    barnabas.leader.election.strategy
        assignment        the first in the order of the assignment (AR): Kafka's rule, the default
        least-leaders     the broker that leads the fewest partitions; among equals the first in AR order
        module:function   a function of an installed Python module, from `Choice` to the id of one candidate

A strategy is asked where the controller elects by itself, because a leader left or a partition had none. It is not
asked for a preferred election, an unclean one, or the leaders of new partitions. It must be a pure and quick function:
the controller waits for it. If it fails, or names a broker that is not a candidate, this is reported, and Kafka's rule
applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from barnabas.common import late_imports
from barnabas.common.errors import ConfigError

KEY: Final = "barnabas.leader.election.strategy"
ASSIGNMENT: Final = "assignment"
LEAST_LEADERS: Final = "least-leaders"


class Choice(NamedTuple):
    """The input of a strategy: one partition that needs a leader."""

    topic: str
    partition: int
    #: The replicas that can lead without a loss, at least two, in AR order.
    candidates: tuple[int, ...]
    #: The number of partitions that each broker leads, with the elections before this one; 0 for others.
    leaders: Mapping[int, int]
    #: The rack of each registered broker, if it has one.
    racks: Mapping[int, str | None]


Strategy = Callable[[Choice], int]


def least_leaders(choice: Choice) -> int:
    """Returns the candidate that leads the fewest partitions."""
    return min(choice.candidates, key=lambda broker: choice.leaders.get(broker, 0))


class FailureReports(Protocol):
    """The port that receives a report when a strategy fails."""

    def report(self, cause: Hashable, message: str, error: BaseException | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class NamedStrategy:
    """A strategy other than Kafka's, with the name that the configuration gives it."""

    name: str
    choose: Strategy
    reports: FailureReports


class Leaderships(Protocol):
    """The facts about the cluster that a strategy needs."""

    def leaders(self) -> Counter[int]:
        """Returns how many partitions each broker leads."""
        ...

    def leader_of(self, topic: str, partition: int) -> int: ...

    def racks(self) -> Mapping[int, str | None]:
        """Returns the rack of each registered broker."""
        ...


class Elector:
    """A strategy within one decision: leaders are counted once, and each election changes the counts."""

    __slots__ = ("_cluster", "_leaders", "_racks", "_strategy")

    def __init__(self, strategy: NamedStrategy, cluster: Leaderships) -> None:
        self._strategy = strategy
        self._cluster = cluster
        self._leaders: Counter[int] | None = None
        self._racks: Mapping[int, str | None] = {}

    def choose(self, topic: str, partition: int, candidates: Sequence[int]) -> int:
        """Returns one of the candidates, of which there is at least one."""
        leaders = self._count()
        chosen = candidates[0]
        if len(candidates) > 1:
            chosen = self._ask(Choice(topic, partition, tuple(candidates), leaders, self._racks))
        leaders[chosen] += 1
        before = self._cluster.leader_of(topic, partition)
        if before >= 0:
            leaders[before] -= 1
        return chosen

    def _count(self) -> Counter[int]:
        if self._leaders is None:
            self._leaders = self._cluster.leaders()
            self._racks = self._cluster.racks()
        return self._leaders

    def _ask(self, choice: Choice) -> int:
        strategy = self._strategy
        where = f"{choice.topic}-{choice.partition}"
        try:
            chosen = strategy.choose(choice)
        except Exception as error:  # operators' code can raise anything; the election continues
            text = f"{KEY}={strategy.name} failed for {where}; Kafka's rule applies"
            strategy.reports.report("strategy failed", text, error)
            return choice.candidates[0]
        if isinstance(chosen, int) and chosen in choice.candidates:
            return chosen
        candidates = ", ".join(map(str, choice.candidates))
        wrong = f"{KEY}={strategy.name} chose {chosen!r} for {where}, but the candidates are {candidates}"
        text = f"{wrong}; Kafka's rule applies"
        strategy.reports.report("strategy chose wrongly", text)
        return choice.candidates[0]


def strategy_of(name: str, reports: FailureReports) -> NamedStrategy | None:
    """Returns the strategy of this name, or None for Kafka's rule. Raises ConfigError if there is no such strategy."""
    if name == ASSIGNMENT:
        return None
    if name == LEAST_LEADERS:
        return NamedStrategy(name, least_leaders, reports)
    return NamedStrategy(name, _imported(name), reports)


def _imported(name: str) -> Strategy:
    allowed = f"expected {ASSIGNMENT}, {LEAST_LEADERS} or module:function"
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ConfigError(f"Invalid value {name} for configuration {KEY}: {allowed}")
    try:
        found = getattr(late_imports.load(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"Invalid value {name} for configuration {KEY}: {error}; {allowed}") from error
    if not callable(found):
        raise ConfigError(f"Invalid value {name} for configuration {KEY}: it is not a function; {allowed}")
    strategy: Strategy = found
    return strategy
