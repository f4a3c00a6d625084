"""Decisions of a controller in memory under random requests: a small world of which a seed takes milliseconds.

Brokers register, are fenced, stop, fill their disks and lose directories; topics are created, extended, reassigned and
deleted; leaders change their ISRs; operators elect, and change settings, quotas and features. The requests are valid,
or wrong in one place. Every decision is made a second time (`second_decisions`), and its records are replayed through
their encoding. New replicas are spread over racks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random
from typing import Final

from tests.support.controller_world import ControllerWorld, directory_of, registration
from tests.support.znode_explorer import ZnodeExplorer

from barnabas.common.errors import ConfigError, RequestFailed
from barnabas.common.portions import whole
from barnabas.common.types import ZERO_UUID
from barnabas.controller.kraft import directories, features
from barnabas.controller.kraft.broker_sessions import BrokerSessions
from barnabas.controller.requests import (
    brokers,
    client_quotas,
    configs,
    elections,
    partitions,
    producer_ids,
    reassignments,
    topics,
)
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions import proposals
from barnabas.decisions.strategies import ASSIGNMENT, LEAST_LEADERS, Choice, strategy_of
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
from barnabas.simulation.history import Violation
from barnabas.simulation.host import SeededRandom
from barnabas.simulation.second_decision_table import second_decisions

_STEPS = 45
_RACKS = (None, "a", "b", "c")
_TOPICS = ("orders", "events", "a.b", "a_b", "users")
_ACTOR = "User:explorer"
_FEATURES = ("metadata.version", "eligible.leader.replicas.version")


#: The valid names of strategies, and the functions of this module that an operator could write.
_OWN: Final = f"{__name__}:"
_NAMES: Final = (
    ASSIGNMENT,
    LEAST_LEADERS,
    *(_OWN + name for name in ("last", "of_the_first_rack", "wrong", "failing")),
)
_INVALID_NAMES: Final = (
    "",
    ":",
    "last",
    __name__,
    _OWN,
    ":last",
    f"{_OWN}unknown",
    f"{_OWN}_OWN",
    "no.such.module:last",
    "Assignment",
    "least",
    "zzz",
)


def last(choice: Choice) -> int:
    return choice.candidates[-1]


def of_the_first_rack(choice: Choice) -> int:
    return min(choice.candidates, key=lambda broker: (choice.racks[broker] or "", choice.leaders.get(broker, 0)))


def wrong(choice: Choice) -> object:
    return (-1, "2", None, 99)[choice.partition % 4]


def failing(choice: Choice) -> int:
    return choice.candidates[0] // 0


class _Reports:
    """The reports about a strategy, which only an operator's mistaken one causes."""

    def __init__(self) -> None:
        self.is_mistaken = False

    def report(self, cause: object, message: str, error: BaseException | None = None) -> None:
        if not self.is_mistaken or (error is None) != (cause == "strategy chose wrongly"):
            raise Violation(f"a strategy failed: {message}")


class ControllerExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"controller {seed}")
        properties = {"num.partitions": "2", "default.replication.factor": "2"}
        if random.random() < 0.3:
            properties["unclean.leader.election.enable"] = "true"
        if random.random() < 0.5:
            properties["min.insync.replicas"] = "2"
        level = random.choice((27, 27, 25, 22, 16))
        elr = int(level >= 23 and random.random() < 0.7)
        self._world = ControllerWorld(properties, features=dict(zip(_FEATURES, (level, elr), strict=True)))
        self._world.random = SeededRandom(seed)  # type: ignore[assignment]
        self._raises_epochs = random.random() < 0.2
        self._sessions = BrokerSessions(9_000)
        self._now_ms = 1_000

    def run(self) -> None:
        with second_decisions(has_costly_probes=True).judging():
            self._run()

    def _run(self) -> None:
        if self._random.random() < 0.5:
            self._choose_strategy()
        for broker_id in range(1, self._random.randrange(4, 7)):
            self._world.add_broker(broker_id, rack=self._random.choice(_RACKS))
        self._create()
        steps = [self._broker, self._broker, self._isr, self._isr, self._isr, self._elect, self._reassign]
        steps += [self._create, self._grow, self._delete, self._configure, self._list, self._propose]
        steps += [self._set_quota, self._allocate, self._update_features, self._assign_directories, self._beat]
        steps += [self._contact, self._contact, self._allow_unclean, self._allow_unclean]
        if self._world.strategy is not None:
            steps += [self._choose_strategy, self._elect, self._elect_everywhere]
        for _ in range(_STEPS):
            try:
                self._random.choice(steps)()
            except RequestFailed:
                continue  # The refusal was judged.
        ZnodeExplorer(self._random).run(self._view)
        self._elect_everywhere()

    @property
    def _view(self) -> ControllerView:
        view = self._world.view()
        return replace(view, raises_leader_epochs=True) if self._raises_epochs else view

    # -- strategies

    def _choose_strategy(self) -> None:
        """Names a strategy of elections, and then one that does not exist."""
        name, reports = self._random.choice((*_NAMES, LEAST_LEADERS, LEAST_LEADERS)), _Reports()
        reports.is_mistaken = name in (_OWN + "wrong", _OWN + "failing")
        found = strategy_of(name, reports)
        if (None if found is None else found.name) != (None if name == ASSIGNMENT else name):
            raise Violation(f"the strategy {name} is {found}")
        self._world.strategy = found
        invalid = self._random.choice(_INVALID_NAMES)
        try:
            strategy_of(invalid, reports)
        except ConfigError:
            return
        raise Violation(f"{invalid!r} names a strategy")

    # -- brokers

    def _any_broker(self) -> int:
        return self._random.choice([*self._world.image.brokers, *self._world.image.brokers, 99])

    def _broker(self) -> None:
        world, random = self._world, self._random
        broker_id = self._any_broker()
        broker = world.image.brokers.get(broker_id)
        what = random.randrange(7)
        if broker is None:
            world.apply(brokers.unregister(self._view, broker_id, _ACTOR))
        elif what == 0:
            world.replay(brokers.fence(self._view, broker).records)
        elif what in (1, 2):
            world.replay(brokers.unfence(self._view, broker).records)
        elif what == 3:
            world.replay(brokers.shut_down(self._view, broker).records)
        elif what == 4:
            self._register(broker_id)
        elif what == 5:
            world.beat(broker_id, unwritable=random.choice(((), (directory_of(broker_id),))))
        elif len(world.image.brokers) > 3:
            world.apply(brokers.unregister(self._view, broker_id, _ACTOR))

    def _beat(self) -> None:
        broker_id = self._any_broker()
        if broker_id in self._world.image.brokers:
            wanted = self._random.choice(((False, False), (False, True), (True, False)))
            earlier = self._random.choice((0, 0, 0, 1))
            self._world.beat(broker_id, want_fence=wanted[0], want_shut_down=wanted[1], epochs_earlier=earlier)

    def _register(self, broker_id: int) -> None:
        random, world = self._random, self._world
        own = [directory_of(broker_id), directory_of(broker_id + 100)][: random.choice((1, 1, 2))]
        request = registration(
            broker_id,
            rack=random.choice(_RACKS),
            incarnation=random.randbytes(16),
            previous_epoch=random.choice((-1, world.image.brokers[broker_id].epoch)),
            directories=own,
        )
        world.apply(world.register(request, session_alive=False))
        if random.random() < 0.8:
            world.beat(broker_id)

    # -- topics

    def _create(self) -> None:
        request = CreateTopicsRequest(
            topics=[self._new_topic() for _ in range(self._random.choice((1, 1, 2)))],
            validate_only=self._random.random() < 0.1,
        )
        self._world.apply(topics.create_topics(self._view, request, _ACTOR))

    def _new_topic(self) -> CreateTopicsRequest.CreatableTopic:
        random = self._random
        topic = CreateTopicsRequest.CreatableTopic(
            name=random.choice((*_TOPICS, "", "x" * 250, "b/d", "__cluster_metadata")),
            num_partitions=random.choice((1, 3, 5, -1, 0, -2)),
            replication_factor=random.choice((1, 2, 3, 3, -1, 0, 9)),
        )
        if random.random() < 0.4:
            topic.num_partitions = topic.replication_factor = -1
            count, factor = random.randrange(1, 4), random.randrange(1, 4)
            topic.assignments = [
                CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=[self._any_broker() for _ in range(factor)]
                )
                for index in range(count)
            ]
            if random.random() < 0.7:
                for each in topic.assignments:
                    each.broker_ids = self._some_brokers(factor)
        if random.random() < 0.4:
            pairs = (("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true"), ("retention.ms", "x"))
            pairs += (("cleanup.policy", None),)  # type: ignore[assignment]
            topic.configs = [
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                for name, value in random.sample(pairs, random.choice((1, 1, 2)))
            ]
        return topic

    def _some_brokers(self, count: int) -> list[int]:
        known = list(self._world.image.brokers)
        return self._random.sample(known, min(count, len(known)))

    def _grow(self) -> None:
        random = self._random
        rows = []
        for name in random.choices((*self._world.image.topics_by_name, "unknown"), k=random.choice((1, 1, 2))):
            topic = self._world.image.topics_by_name.get(name)
            present = 1 if topic is None else len(topic.partitions)
            row = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=present + random.choice((-1, 0, 1, 2)))
            if random.random() < 0.4:
                factor = 1 if topic is None else len(topic.partitions[0].replicas)
                row.assignments = [
                    CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=self._some_brokers(factor))
                    for _ in range(random.choice((1, 2)))
                ]
            rows.append(row)
        request = CreatePartitionsRequest(topics=rows, validate_only=random.random() < 0.1)
        self._world.apply(topics.create_partitions(self._view, request, _ACTOR))

    def _delete(self) -> None:
        random = self._random
        names = list(self._world.image.topics_by_name)
        if len(names) < 3:
            return
        name = random.choice((*names, "unknown"))
        row = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
        self._world.apply(topics.delete_topics(self._view, DeleteTopicsRequest(topics=[row]), _ACTOR))

    def _any_partition(self) -> tuple[str, bytes, int, PartitionImage] | None:
        found = [topic for topic in self._world.image.topics_by_name.values() if topic.partitions]
        if not found:
            return None
        topic = self._random.choice(found)
        index = self._random.randrange(len(topic.partitions))
        return topic.name, topic.topic_id, index, topic.partitions[index]

    # -- partitions

    def _isr(self) -> None:
        found = self._any_partition()
        if found is None:
            return
        random = self._random
        _, topic_id, index, partition = found
        isr = [each for each in partition.replicas if each == partition.leader or random.random() < 0.7]
        leader = self._world.image.brokers.get(partition.leader)
        if leader is None:
            return
        known = self._world.image.brokers
        row = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch + random.choice((0, 0, 0, 0, 0, 1, -1)),
            partition_epoch=partition.partition_epoch + random.choice((0, 0, 0, 0, 0, 1, -1)),
            new_isr=isr,
            new_isr_with_epochs=[
                AlterPartitionRequest.BrokerState(
                    broker_id=each, broker_epoch=known[each].epoch if each in known else 1
                )
                for each in isr
            ],
            leader_recovery_state=random.choice((0, 0, partition.leader_recovery_state)),
        )
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[row])],
        )
        self._world.apply(partitions.alter_partition(self._view, request, random.choice((2, 3))))

    def _elect(self) -> None:
        random = self._random
        names = random.choices((*self._world.image.topics_by_name, "unknown"), k=2)
        rows = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[0, 1, 0]) for name in names]
        request = ElectLeadersRequest(election_type=random.choice((0, 0, 1, 1, 2)), topic_partitions=rows)
        self._world.apply(elections.elect_leaders(self._view, request, _ACTOR))

    def _elect_everywhere(self) -> None:
        request = ElectLeadersRequest(election_type=self._random.randrange(2), topic_partitions=None)
        named = elections.with_partitions(self._view, request)
        self._world.apply(elections.elect_leaders(self._view, named, _ACTOR))
        self._world.apply(elections.elect_leaders(self._view, request, _ACTOR))
        view = self._view
        result = elections.unclean_elections_due(view)
        elections.unclean_leaders(view.image, result.records)
        self._world.apply(result)
        self._world.apply(elections.rebalance(self._view))

    def _reassign(self) -> None:
        random = self._random
        rows = []
        for _ in range(random.choice((1, 2))):
            found = self._any_partition()
            if found is not None:
                replicas = self._some_brokers(random.choice((1, 2, 3, len(found[3].replicas))))
                row = AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=found[2], replicas=random.choice((replicas, replicas, None))
                )
                topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=found[0], partitions=[row])
                rows.append(topic)
        request = AlterPartitionReassignmentsRequest(topics=rows, allow_replication_factor_change=random.random() < 0.6)
        self._world.apply(reassignments.alter_reassignments(self._view, request, _ACTOR))

    def _list(self) -> None:
        image = self._world.image
        answer = whole(reassignments.list_reassignments(image, ListPartitionReassignmentsRequest(topics=None)))
        found = {
            (row.name, each.partition_index): (each.replicas, each.adding_replicas, each.removing_replicas)
            for row in answer.topics
            for each in row.partitions
        }
        expected = {
            (name, index): (list(each.replicas), list(each.adding_replicas), list(each.removing_replicas))
            for name, topic in image.topics_by_name.items()
            for index, each in enumerate(topic.partitions)
            if each.adding_replicas or each.removing_replicas
        }
        if found != expected:
            raise Violation(f"reassignments are listed wrongly: {found}; there are {expected}")

    # -- the rest

    def _configure(self) -> None:
        random = self._random
        name = random.choice(("", *self._world.image.topics_by_name))
        key, values = random.choice(
            (
                ("min.insync.replicas", ("1", "2", "3", None)),
                ("unclean.leader.election.enable", ("true", "false", None)),
                ("cleanup.policy", ("compact", "delete", "other")),
            )
        )
        value = random.choice(values)
        operation = random.choice((2, 3)) if key == "cleanup.policy" else int(value is None)
        changes = [(2 if name else 4, name, [(key, operation, value)])]
        self._alter(changes, replace_all=random.random() < 0.2)

    def _alter(self, changes: list[tuple[int, str, list[tuple[str, int, str | None]]]], *, replace_all: bool) -> None:
        """Changes settings; where unclean leaders are allowed now, the controller elects them."""
        result = configs.alter_configs(self._view, changes, _ACTOR, replace=replace_all)
        self._world.apply(result)
        names = elections.topics_with_changed_rule(self._world.image, result.records)
        if names:
            self._world.apply(elections.unclean_elections_due(self._view, deque(names)))

    def _allow_unclean(self) -> None:
        """All replicas that could lead a partition are fenced, after another one that comes back alone; then its topic
        lets that one lead.
        """
        found, world = self._any_partition(), self._world
        if found is None or self._view.unclean_election_allowed(found[0]):
            return
        behind = self._random.choice(found[3].replicas)
        for broker_id in (behind, *(each for each in found[3].replicas if each != behind)):
            broker = world.image.brokers.get(broker_id)
            if broker is not None:
                world.replay(brokers.fence(self._view, broker).records)
        broker = world.image.brokers.get(behind)
        if broker is not None:
            world.replay(brokers.unfence(self._view, broker).records)
        self._alter([(2, found[0], [("unclean.leader.election.enable", 0, "true")])], replace_all=False)

    def _set_quota(self) -> None:
        random = self._random
        row = AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=random.choice((None, "u")))],
            ops=[
                AlterClientQuotasRequest.OpData(
                    key="producer_byte_rate", value=random.choice((1.0, 2.0, 0.0)), remove=random.random() < 0.3
                )
            ],
        )
        request = AlterClientQuotasRequest(entries=[row])
        self._world.apply(client_quotas.alter_client_quotas(self._view, request, _ACTOR))

    def _update_features(self) -> None:
        random = self._random
        row = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=random.choice((*_FEATURES, "group.version", "kraft.version")),
            max_version_level=random.choice((0, 1, 22, 25, 27)),
            upgrade_type=random.choice((1, 1, 2, 3)),
        )
        request = UpdateFeaturesRequest(feature_updates=[row])
        self._world.apply(features.update_features(self._view, request, random.choice((0, 1, 2)), 1, _ACTOR))

    def _assign_directories(self) -> None:
        broker = self._world.image.brokers.get(self._any_broker())
        found = self._any_partition()
        if broker is None or found is None:
            return
        make = AssignReplicasToDirsRequest
        topics_there = [make.TopicData(topic_id=found[1], partitions=[make.PartitionData(partition_index=found[2])])]
        directory = make.DirectoryData(id=directory_of(broker.broker_id), topics=topics_there)
        request = make(broker_id=broker.broker_id, broker_epoch=broker.epoch, directories=[directory])
        self._world.apply(directories.assign_replicas(self._view, request))

    def _allocate(self) -> None:
        broker_id = self._any_broker()
        broker = self._world.image.brokers.get(broker_id)
        self._world.apply(producer_ids.allocate(self._view, broker_id, 0 if broker is None else broker.epoch))

    def _contact(self) -> None:
        """Brokers send heartbeats, break connections, stop, and are silent."""
        random, sessions = self._random, self._sessions
        self._now_ms += random.choice((0, 1, 2_000, 9_000))
        broker_id, now_ms = random.randrange(1, 4), self._now_ms
        random.choice(
            (
                lambda: sessions.start(broker_id, now_ms),
                lambda: sessions.touch(broker_id, random.randrange(90), now_ms),
                lambda: sessions.touch(broker_id, random.randrange(90), now_ms),
                lambda: sessions.disconnected(broker_id),
                lambda: sessions.begin_shutdown(broker_id, random.randrange(90)),
                lambda: sessions.extend_all(random.choice((0, 3_000)), now_ms),
                lambda: sessions.end(broker_id),
            )
        )()
        sessions.expired(now_ms)
        sessions.next_check_ms(now_ms)
        sessions.may_still_run(broker_id, now_ms, has_its_directories=random.random() < 0.5)
        sessions.shutdown_offset(broker_id)
        sessions.lowest_offset([1, 2, broker_id], 7)

    def _propose(self) -> None:
        racks = {each: broker.rack for each, broker in self._world.image.brokers.items()}
        for factor in range(1, len(racks) + 1):
            proposals.propose(racks, self._random.randrange(12), factor, self._world.random.below)
