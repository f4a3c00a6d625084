"""A copy of a cluster to which events happen; the controller's own decisions change its partitions.

    model = Model(situation)
    model.fence(3)                a broker dies
    model.shut_down(2)            a broker shuts down cleanly
    model.unfence(2)              it returns
    model.catch_up()              all live replicas are in sync again
    model.partitions, model.unclean

Each change is a `PartitionChange` of `barnabas.decisions`. Without a majority of the quorum's voters nothing is
decided: partitions stay as they are, although their brokers are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

from barnabas.decisions import zookeeper_rules
from barnabas.decisions.broker_events import BrokerEvent, all_but, can_lead, change_at, in_lost_directories
from barnabas.decisions.leader_election import Candidates, Election, elect
from barnabas.decisions.partition import LOST_DIRECTORY, NO_LEADER
from barnabas.decisions.partition_change import PartitionChange, Rules
from barnabas.decisions.strategies import ASSIGNMENT, LEAST_LEADERS, Elector, NamedStrategy, least_leaders
from barnabas.whatif.model_state import ModelState
from barnabas.whatif.situation import Key, Situation

_NO_ID = b""


class _NoReports:
    """The reports of strategies that do not fail."""

    def report(self, cause: Hashable, message: str, error: BaseException | None = None) -> None:
        raise AssertionError(message) from error


class Model(ModelState):
    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._by_broker: dict[int, list[Key]] = {}
        for key, each in self.partitions.items():
            for replica in each.replicas:
                self._by_broker.setdefault(replica, []).append(key)

    def copy(self) -> Model:
        found = object.__new__(Model)
        found.situation, found._by_broker = self.situation, self._by_broker
        found.take_from(self)
        return found

    # -- settings

    def _rules(self, key: Key, leads: Callable[[int], bool], elector: Elector | None) -> Rules:
        is_unclean_allowed = self.situation.facts_of(key[0]).is_unclean_allowed
        return Rules(
            may_lead=leads,
            election=Election.UNCLEAN if is_unclean_allowed else Election.ONLINE,
            elr_enabled=self.situation.elr_enabled,
            min_isr=self.min_isr(key),
            raises_leader_epoch=not self.situation.has_quorum,
            raises_when_reassigned=not self.situation.has_quorum,
            choose=None if elector is None else partial(elector.choose, key[0]),
        )

    def _elector(self) -> Elector | None:
        if self.situation.strategy != LEAST_LEADERS:
            return None
        return Elector(NamedStrategy(LEAST_LEADERS, least_leaders, _NoReports()), self)

    # -- events

    def fence(self, broker_id: int) -> None:
        """Ends a broker: it leaves every ISR and leadership, as far as there is a controller."""
        self._returned.discard(broker_id)
        if not self.has_controller:
            self._gone.add(broker_id)
        elif self.situation.has_quorum:
            self._decide(BrokerEvent(removed=broker_id), self._by_broker.get(broker_id, ()))
            self._gone.add(broker_id)
        else:
            self._gone.add(broker_id)
            self._settle(self._with_member(broker_id))

    def shut_down(self, broker_id: int) -> None:
        """Shuts a broker down cleanly: others take its leaderships over before it ends."""
        if self.has_controller and not self.situation.has_quorum:
            self._stopping.add(broker_id)
            self._move_away(broker_id)
            self._stopping.discard(broker_id)
        self.fence(broker_id)

    def unfence(self, broker_id: int) -> None:
        """Lets a broker return: it can lead, and joins the ISRs with `catch_up`."""
        held = self._by_broker.get(broker_id, ())
        if self.situation.has_quorum:
            self._decide(BrokerEvent(added=broker_id), held)
        self._returned.add(broker_id)
        if not self.situation.has_quorum:
            self._settle([key for key in held if self.partitions[key].leader == NO_LEADER])

    def lose_directory(self, broker_id: int, keys: Iterable[Key]) -> None:
        """Takes a log directory of a broker away, with its replicas of these partitions."""
        lost = sorted(key for key in keys if key in self.partitions and broker_id in self.partitions[key].replicas)
        for key in lost:
            directories = list(self.partitions[key].directories)
            directories[self.partitions[key].replicas.index(broker_id)] = LOST_DIRECTORY
            self.partitions[key] = self.partitions[key]._replace(directories=tuple(directories))
        if not self.has_controller:
            return
        if self.situation.has_quorum:
            self._decide(BrokerEvent(removed=broker_id), lost, concerned=True)
        else:
            self._settle(lost)

    def catch_up(self) -> None:
        """Brings every live replica back into the ISR of its partition, as its leader would."""
        for key, partition in list(self.partitions.items()):
            missing = [each for each in partition.replicas if each not in partition.isr]
            if not missing or not partition.has_leader or not self.is_online(partition, partition.leader):
                continue
            change = PartitionChange(partition, self._rules(key, can_lead(self, partition), None))
            change.target_isr = tuple(
                each for each in partition.replicas if each in partition.isr or self.is_online(partition, each)
            )
            self._apply(key, change)

    def change_min_isr(self, topic: str, value: int) -> None:
        """Sets `min.insync.replicas` of a topic. The ELR, which depends on it, is kept only without an ISR."""
        self.min_isrs[topic] = value
        for key, partition in list(self.partitions.items()):
            if key[0] == topic and partition.elr and partition.isr:
                self.partitions[key] = partition._replace(elr=())

    def reassign(self, key: Key, target: Sequence[int]) -> None:
        """Moves a partition to these replicas, to the end: the added ones have caught up, the removed ones are gone."""
        partition = self.partitions[key]
        removing = tuple(sorted(set(partition.replicas) - set(target)))
        change = PartitionChange(partition, self._rules(key, can_lead(self, partition), None))
        change.target_replicas = (*target, *removing)
        change.target_removing = removing
        change.target_adding = tuple(sorted(set(target) - set(partition.replicas)))
        self._apply(key, change)
        begun = self.partitions[key]
        change = PartitionChange(begun, self._rules(key, can_lead(self, begun), None))
        caught_up = (each for each in target if self.is_online(begun, each))
        change.target_isr = tuple(dict.fromkeys((*begun.isr, *caught_up)))
        self._apply(key, change)

    def unclean_candidate(self, key: Key) -> int:
        """Returns the replica that would lead after an unclean election; -1 if no replica is online."""
        partition = self.partitions[key]
        state = Candidates(partition.leader, partition.replicas, partition.isr, partition.elr)
        return elect(state, lambda replica: self.is_online(partition, replica), Election.UNCLEAN).leader

    # -- decisions

    def _decide(self, event: BrokerEvent, keys: Iterable[Key], *, concerned: bool = False) -> None:
        leads, elector = event.may_lead(self), self._elector()
        for key in keys:
            partition = self.partitions[key]
            if not concerned and not event.concerns(partition):
                continue
            lost = in_lost_directories(self, partition)
            rules = self._rules(key, all_but(lost, leads) if lost else leads, elector)
            self._apply(key, change_at(self, event, partition, rules))

    def _with_member(self, broker_id: int) -> list[Key]:
        """Returns the partitions with this broker in the ISR, those that it leads first."""
        found = [key for key in self._by_broker.get(broker_id, ()) if broker_id in self.partitions[key].isr]
        return sorted(found, key=lambda key: self.partitions[key].leader != broker_id)

    def _settle(self, keys: Iterable[Key]) -> None:
        elector = self._elector()
        for key in keys:
            partition = self.partitions[key]
            online = zookeeper_rules.online_replicas(partition, self.is_registered)
            leads = zookeeper_rules.may_lead(partition, online, self.is_active)
            change = PartitionChange(partition, self._rules(key, leads, elector))
            staying = zookeeper_rules.isr_of_online(partition, online)
            if staying is not None:
                change.target_isr = staying
            self._apply(key, change)

    def _move_away(self, broker_id: int) -> None:
        elector = self._elector()
        for key in self._by_broker.get(broker_id, ()):
            partition = self.partitions[key]
            if broker_id not in partition.isr:
                continue
            online = zookeeper_rules.online_replicas(partition, self.is_registered)
            staying = zookeeper_rules.isr_without_stopping(partition, broker_id, online, self.is_active)
            if staying is None:
                continue
            leads = zookeeper_rules.may_lead(partition, online, self.is_active)
            change = PartitionChange(partition, self._rules(key, leads, elector))
            change.target_isr = staying
            self._apply(key, change)

    def _apply(self, key: Key, change: PartitionChange) -> None:
        record = change.build(_NO_ID, key[1])
        if record is None:
            return
        before = change.partition
        after = self.partitions[key] = before.merge(record)
        if after.has_leader and after.leader not in (*before.isr, *before.elr, before.leader, *change.target_isr):
            self.unclean[key] = after.leader


def is_known_strategy(name: str) -> bool:
    """Returns whether elections by this strategy can be predicted; Kafka's rule stands in for others."""
    return name in (ASSIGNMENT, LEAST_LEADERS)
