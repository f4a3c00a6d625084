"""A simulated cluster that is asked what would happen, and then made to do it.

A seed draws the cluster (brokers, controllers or ZooKeeper, racks, ELR, election strategy), its topics, what has
happened to it before, and the question. The situation is read as a client reads it: by requests to a live broker, into
the monitor's table. After the kill or the shutdown the cluster is read again, and compared with the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from barnabas.decisions.partition import PartitionImage
from barnabas.metadata.image import ELR_VERSION, METADATA_VERSION
from barnabas.metadata.versions import LATEST_METADATA_VERSION
from barnabas.monitor.delta import Delta, NameRange
from barnabas.monitor.look_requests import (
    brokers_of,
    metadata_partitions,
    metadata_request,
    min_isr_request,
    min_isrs_of,
    page_partitions,
    page_request,
    quorum_leader,
    quorum_request,
)
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumResponse
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import SHORT_TIMES, RawClient
from barnabas.whatif import ask, fact_requests
from barnabas.whatif.from_table import ClusterFacts, situation_of
from barnabas.whatif.questions import Kill, Restart
from barnabas.whatif.situation import Key, Situation

#: The time in which a cluster reaches its next stable state: sessions, elections of the quorum, fetches.
_SETTLED_MS = 5_000
_STOPPED_MS = 60_000
_STRATEGY = "barnabas.leader.election.strategy"


@dataclass(slots=True)
class Plan:
    """A cluster, its past, and a question, as a seed draws them."""

    brokers: int
    controllers: int
    is_zookeeper: bool
    has_elr: bool
    strategy: str
    has_racks: bool
    #: Topics: the replicas of each partition, min ISR, and whether unclean elections are allowed.
    topics: dict[str, tuple[list[list[int]], int, bool]]
    #: Brokers that are killed before the question, in this order; and those of them that return.
    killed_before: list[int]
    returned: list[int]
    victims: list[int]
    is_restart: bool

    def __str__(self) -> str:
        controllers = f"{self.controllers} controllers" if self.controllers else "combined"
        kind = "zookeeper" if self.is_zookeeper else controllers
        asked = f"{'restart' if self.is_restart else 'kill'} {self.victims}"
        before = f"before: killed {self.killed_before}, returned {self.returned}"
        return f"{self.brokers} brokers, {kind}, ELR {self.has_elr}, {self.strategy}, {self.topics}, {before}; {asked}"


def drawn(seed: int, *, is_restart: bool) -> Plan:
    chance = random.Random(f"whatif-{seed}-{is_restart}")
    brokers = chance.randint(3, 5)
    mode = chance.choice(("combined", "combined", "dedicated", "zookeeper"))
    topics = {}
    for number in range(chance.randint(1, 3)):
        factor = chance.randint(1, min(4, brokers))
        assignments = [chance.sample(range(1, brokers + 1), factor) for _ in range(chance.randint(1, 5))]
        topics[f"topic{number}"] = (assignments, chance.randint(1, factor), chance.random() < 0.3)
    ids = list(range(1, brokers + 1))
    # A majority stays, so that there is a controller that can be asked.
    killed = chance.sample(ids, min(chance.choice((0, 0, 1, 1, 2)), (brokers - 1) // 2))
    returned = [broker for broker in killed if chance.random() < 0.4]
    absent = [broker for broker in killed if broker not in returned]
    there = [broker for broker in ids if broker not in absent]
    victims = chance.sample(there, chance.randint(1, min(2 if is_restart else 3, len(there) - 1)))
    return Plan(
        brokers=brokers,
        controllers=chance.choice((1, 3)) if mode == "dedicated" else 0,
        is_zookeeper=mode == "zookeeper",
        has_elr=chance.random() < 0.5,
        strategy=chance.choice(("assignment", "assignment", "least-leaders")),
        has_racks=chance.random() < 0.3,
        topics=topics,
        killed_before=killed,
        returned=returned,
        victims=victims,
        is_restart=is_restart,
    )


class Seen(NamedTuple):
    """Leader, ISR and ELR of a partition, without the orders that have no meaning."""

    leader: int
    isr: frozenset[int]
    elr: frozenset[int]


def seen(partition: PartitionImage) -> Seen:
    return Seen(partition.leader, frozenset(partition.isr), frozenset(partition.elr))


@dataclass(slots=True)
class Verdict:
    """The partitions that turned out otherwise than predicted."""

    count: int = 0
    elections: int = 0
    wrong: list[str] = field(default_factory=list)


class PredictedWorld:
    def __init__(self, seed: int, plan: Plan) -> None:
        self.plan = plan
        self.world = World(seed)
        settings = {
            **SHORT_TIMES,
            "auto.leader.rebalance.enable": "false",
            "metadata.max.idle.interval.ms": "0",
            "broker.heartbeat.interval.ms": "500",
            "barnabas.cluster.events.enable": "false",
            _STRATEGY: plan.strategy,
        }
        layout = Layout(plan.brokers, plan.controllers, settings, zookeeper=plan.is_zookeeper, has_racks=plan.has_racks)
        self.cluster = Cluster(self.world, layout)
        if self.cluster.zookeeper is not None:
            self.cluster.zookeeper.settings["tickTime"] = "200"
        for node in self.cluster.nodes.values():
            if not plan.is_zookeeper and not plan.has_elr:
                node.bootstrap = [
                    (FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_METADATA_VERSION), 0),
                    (FeatureLevelRecord(name=ELR_VERSION, feature_level=0), 0),
                ]
        self.client = RawClient(self.cluster, "client")
        self.cluster.start()
        self._until_all_serve()
        self._create_topics()

    # -- the life of the cluster

    def _run_for(self, duration_ms: int) -> None:
        self.world.run_for(duration_ms * MILLISECOND_US)

    def _until_all_serve(self) -> None:
        def all_serve() -> bool:
            brokers = [node.broker for node in self.cluster.nodes.values()]
            if not all(broker is not None and broker._is_let_in for broker in brokers):
                return False
            known = [broker.metadata.image.brokers.values() for broker in brokers if broker is not None]
            return all(sum(not each.fenced for each in image) == self.plan.brokers for image in known)

        end_us = self.world.now_us + 30_000 * MILLISECOND_US
        self.world.run_while(lambda: not all_serve(), end_us)
        assert all_serve(), "not all brokers are registered"

    def _create_topics(self) -> None:
        row = CreateTopicsRequest.CreatableReplicaAssignment
        config = CreateTopicsRequest.CreatableTopicConfig
        request = CreateTopicsRequest(timeout_ms=5_000)
        for name, (assignments, min_isr, is_unclean_allowed) in self.plan.topics.items():
            request.topics.append(
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[row(partition_index=n, broker_ids=ids) for n, ids in enumerate(assignments)],
                    configs=[
                        config(name="min.insync.replicas", value=str(min_isr)),
                        config(name="unclean.leader.election.enable", value=str(is_unclean_allowed).lower()),
                    ],
                )
            )
        # In ZooKeeper mode only the controller creates topics.
        nodes = [name for name in self.cluster.nodes if name.startswith("broker")]
        codes = [
            {row.error_code for row in self.client.call(name, request, CreateTopicsResponse).topics}
            for name in (nodes if self.plan.is_zookeeper else nodes[:1])
        ]
        assert {0} in codes, codes
        self._run_for(1_000)

    def prepare(self) -> None:
        """Makes happen what happened before the question."""
        for broker in self.plan.killed_before:
            self._hold(broker)
            self.cluster.nodes[f"broker{broker}"].kill()
            self._run_for(_SETTLED_MS)
        for broker in self.plan.returned:
            self.cluster.allow_start(f"broker{broker}")
            self._run_for(_SETTLED_MS)

    def happen(self) -> None:
        """Kills or stops the victims, all in the same instant."""
        for broker in self.plan.victims:
            self._hold(broker)
        for broker in self.plan.victims:
            node = self.cluster.nodes[f"broker{broker}"]
            if self.plan.is_restart:
                node.stop()
            else:
                node.kill()
        victims = [self.cluster.nodes[f"broker{broker}"] for broker in self.plan.victims]
        # A controlled shutdown that cannot move a leadership is repeated before the broker stops nevertheless.
        end_us = self.world.now_us + _STOPPED_MS * MILLISECOND_US
        self.world.run_while(lambda: any(node.is_running for node in victims), end_us)
        assert not any(node.is_running for node in victims), "a victim still runs"
        self._run_for(_SETTLED_MS)

    def _hold(self, broker: int) -> None:
        self.cluster.prevent_start(f"broker{broker}")

    # -- looks, as a client has them

    def look(self) -> ClusterTable:
        """Returns the table that a live broker's answers give."""
        node = min(name for name, node in self.cluster.nodes.items() if name.startswith("broker") and node.is_running)
        table = ClusterTable()
        named = self.client.call(node, metadata_request(None), MetadataResponse)
        table.apply(Delta(1, brokers=brokers_of(named), controller=named.controller_id))
        if self.plan.is_zookeeper:
            partitions = metadata_partitions(named)
        else:
            page = self.client.call(node, page_request(None, None), DescribeTopicPartitionsResponse)
            partitions = page_partitions(page, None)
        table.apply(Delta(1, partitions=partitions, covers=NameRange()))
        names = sorted(self.plan.topics)
        min_isrs = min_isrs_of(self.client.call(node, min_isr_request(names), DescribeConfigsResponse))
        table.apply(Delta(1, min_isrs=min_isrs))
        return table

    def situation(self) -> Situation:
        table = self.look()
        node = min(name for name, node in self.cluster.nodes.items() if name.startswith("broker") and node.is_running)
        names = sorted(self.plan.topics)
        configs = self.client.call(node, fact_requests.unclean_request(names), DescribeConfigsResponse)
        facts = ClusterFacts(
            has_quorum=not self.plan.is_zookeeper,
            elr_enabled=self.plan.has_elr and not self.plan.is_zookeeper,
            strategy=self.plan.strategy,
            unclean_topics=frozenset(fact_requests.unclean_topics(configs)[0]),
        )
        if facts.has_quorum:
            quorum = self.client.call(node, quorum_request(), DescribeQuorumResponse)
            table.apply(Delta(1, controller=quorum_leader(quorum)))
            voters = fact_requests.voters_of(quorum)
            assert voters is not None
            facts.voters, facts.lost_voters = voters
        return situation_of(table, facts)


def run(seed: int, *, is_restart: bool) -> Verdict:
    """Compares the predictions of one seed with what happens."""
    world = PredictedWorld(seed, drawn(seed, is_restart=is_restart))
    world.prepare()
    situation = world.situation()
    predicted = list(_predictions(situation, world.plan))
    world.happen()
    after = situation_of(world.look(), ClusterFacts()).partitions
    own = {key: seen(each) for key, each in after.items() if key[0] in world.plan.topics}
    verdict = Verdict(len(own), sum(own[key].leader != situation.partitions[key].leader for key in own))
    if own not in predicted:
        verdict.wrong = [
            f"{key[0]}-{key[1]}: {situation.partitions[key]} became {own[key]}, predicted {predicted[0][key]}"
            for key in own
            if own[key] != predicted[0][key]
        ]
    return verdict


def _predictions(situation: Situation, plan: Plan) -> Iterable[dict[Key, Seen]]:
    """Yields the state that an answer predicts. In which order a controller notices several deaths of one instant is
    not known before. Where that matters, for the last member of an ISR or for a strategy, each order is allowed.
    """
    for order in permutations(sorted(plan.victims)):
        answer = ask(situation, Restart(order) if plan.is_restart else Kill(order))
        changed = {outcome.key: outcome.after for outcome in answer.partitions}
        yield {
            key: seen(changed.get(key, partition))
            for key, partition in situation.partitions.items()
            if key[0] in plan.topics
        }
