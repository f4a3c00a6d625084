"""An operator of settings: log directories of replicas, quotas of clients, limits of replication, and properties of
brokers.

It keeps each setting as a register (`setting_registers`), and knows which values brokers must refuse. When it stops, it
removes all quotas and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.simulation.admin_client import AdminClient
from barnabas.simulation.metadata_dict import Key
from barnabas.simulation.metadata_replay import state_of
from barnabas.simulation.operator import SETTINGS, AdminOperation
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.setting_registers import Answer, Registers
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.storage.directories import root_of

_GAP_MS_MEAN: Final = 2_500
_RETRY_MS: Final = 700
#: The number of replicas of which the largest is chosen for a move.
_PLACES: Final = 3
#: The time after which a move is reverted: a small log is copied within milliseconds.
_BACK_MS: Final = (0, 1, 5, 30, 300)
_SET, _DELETE = 0, 1
_REFUSALS: Final = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)

#: The entity of a quota, as in the metadata.
_Entity = tuple[tuple[str, str | None], ...]
_DEFAULT_CLIENT: Final[_Entity] = (("client-id", None),)
_BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
_RATES_OF_ONE: Final = (50.0, 500.0, 5_000.0)
#: Other clients send and read batches of 300 kB.
_RATES_OF_ALL: Final = (100_000.0, 1_000_000.0)
_MUTATIONS: Final = (0.05, 5.0)
_PERCENTAGES: Final = (0.05, 1.0)

_SIDES: Final = ("leader.replication.throttled", "follower.replication.throttled")
_MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_RATES: Final = ("500", "5000", "100000")


class _Tuned(NamedTuple):
    """A property of brokers with values that they accept and values that they refuse."""

    key: str
    taken: Sequence[str]
    refused: Sequence[str]


_TUNED: Final = (
    _Tuned("log.roll.ms", ("3000", "604800000"), ("0", "soon")),
    _Tuned("log.index.interval.bytes", ("1", "4096"), ("-1",)),
    _Tuned("log.segment.bytes", ("1048576", "1073741824"), ("5",)),
    _Tuned("log.flush.interval.messages", ("7", "9223372036854775807"), ("0",)),
    _Tuned("log.cleaner.backoff.ms", ("500", "15000"), ("-1",)),
    _Tuned("message.max.bytes", ("600000", "1048588"), ("-1",)),
    _Tuned("log.dirs", (), ("/elsewhere",)),
)
#: The numbers of threads, with Kafka's defaults. A change can at most double or halve a number.
_THREADS: Final[Mapping[str, int]] = {"num.io.threads": 8, "num.network.threads": 3, "num.replica.fetchers": 1}
_FACTORS: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5)


class SettingsOperator:
    """An operator, which `start` starts; after `stopping` it removes quotas and limits, until `is_idle`."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[Topic],
        kinds: Sequence[AdminOperation],
        clients: Sequence[str],
        name: str,
        *,
        gap_ms: int = _GAP_MS_MEAN,
    ) -> None:
        """Creates an operator that makes these kinds of changes. `clients` are the client ids that get quotas."""
        self._gap_ms = gap_ms
        self._cluster = cluster
        self._topics = list(topics)
        self._directories = cluster.layout.shared_property("log.dirs").split(",")
        impossible = [
            *([AdminOperation.SHIFT] if len(self._directories) < 2 else []),
            # Tools write these quotas into znodes.
            *([AdminOperation.LIMIT] if cluster.layout.zookeeper else []),
        ]
        self.kinds = tuple(kind for kind in kinds if kind not in impossible)
        self._clients = list(clients)
        self.name = name
        self._client = AdminClient(cluster, name)
        self._random = self._client.random
        self._brokers = self._client.brokers
        self._registers = Registers()
        self.stopping = False
        self._is_cleared = False
        #: Answers that cannot be right.
        self.problems: list[str] = []
        #: The number of changes of each kind that took effect.
        self.done: dict[AdminOperation, int] = dict.fromkeys(SETTINGS, 0)

    @property
    def is_idle(self) -> bool:
        return self._is_cleared or not self.kinds

    def start(self) -> None:
        if self.kinds:
            self._client.run(self._later)

    def judge(self) -> list[str]:
        """Returns all wrong answers, and the first wrong setting of each node."""
        found = list(self.problems)
        for name, node in self._cluster.nodes.items():
            if node.broker is not None:
                wrong = self._registers.wrong(state_of(node.broker.metadata.image))
                found += [f"a setting is lost: on {name}, {wrong}"] if wrong else []
        return found

    def _later(self) -> None:
        self._client.later(1 + int(self._random.expovariate(1 / self._gap_ms)), self._next)

    def _next(self) -> None:
        if self.stopping:
            self._clear()
            return
        getattr(self, f"_{self._random.choice(self.kinds).value}")()
        self._later()

    def _note(self, kind: AdminOperation, text: str) -> None:
        self._cluster.world.note(self.name, text, kind)

    # -- moves between log directories

    def _shift(self) -> None:
        """Moves a replica, and sometimes back before the move can have ended."""
        node = self._random.choice(self._brokers)
        broker = self._cluster.nodes[node].broker
        places: list[tuple[int, int, Topic, int, Any]] = []
        for _ in range(_PLACES):
            topic = self._random.choice(self._topics)
            index = self._random.randrange(topic.partitions)
            replica = None if broker is None else broker.replicas.find(topic.name, index)
            places.append((0 if replica is None else replica.log.size_bytes, len(places), topic, index, replica))
        # The copy of a large log takes several steps.
        *_, topic, index, replica = max(places, key=lambda place: place[:2])
        back = self._directories[0] if replica is None else root_of(replica.log.directory)
        there = self._random.choice([directory for directory in self._directories if directory != back])
        self._move(topic.name, index, node, there)
        if self._random.random() < 0.4:
            delay_ms = self._random.choice(_BACK_MS)
            self._client.later(delay_ms, lambda: self._move(topic.name, index, node, back))

    def _move(self, topic: str, index: int, node: str, directory: str) -> None:
        self._note(AdminOperation.SHIFT, f"moves {topic}-{index} on {node} to {directory}")
        moved = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[index])
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=directory, topics=[moved])

        def answered(response: AlterReplicaLogDirsResponse | None) -> None:
            if response is not None and response.results[0].partitions[0].error_code == ErrorCode.NONE:
                self.done[AdminOperation.SHIFT] += 1

        self._client.send(AlterReplicaLogDirsRequest(dirs=[wanted]), AlterReplicaLogDirsResponse, answered, node)

    # -- quotas and limits

    def _limit(self) -> None:
        random = self._random
        kind = random.randrange(7)
        rates: tuple[float, ...]
        if kind == 0:
            entity, key, rates = _DEFAULT_CLIENT, "controller_mutation_rate", _MUTATIONS
        elif kind == 1:
            entity, key, rates = _DEFAULT_CLIENT, random.choice(_BYTE_RATES), _RATES_OF_ALL
        else:
            # A default would also apply to the first requests of connections between nodes.
            client = random.choice(self._clients)
            entity = (("client-id", client),)
            of_bytes = _BYTE_RATES[0] if client.startswith("producer") else _BYTE_RATES[1]
            key, rates = random.choice(((of_bytes, _RATES_OF_ONE), ("request_percentage", _PERCENTAGES)))
        self._change(("quota", entity, key), random.choice((None, *rates)), AdminOperation.LIMIT)

    def _throttle(self) -> None:
        random = self._random
        if random.random() < 0.3:
            self._set_rate(_MOVE_RATE)
            return
        topic = random.choice([topic for topic in self._topics if not topic.is_replaced])
        ids = [name.removeprefix("broker") for name in self._brokers]
        some = ",".join(f"{random.randrange(topic.partitions)}:{each}" for each in ids)
        side = random.choice(_SIDES)
        key: Key = ("config", TOPIC_RESOURCE, topic.name, f"{side}.replicas")
        self._change(key, random.choice((None, "*", "*", some)), AdminOperation.THROTTLE)
        self._set_rate(f"{side}.rate")

    def _set_rate(self, key: str) -> None:
        value = self._random.choice((None, *_RATES))
        self._change(("config", BROKER_RESOURCE, self._some_broker(), key), value, AdminOperation.THROTTLE)

    def _some_broker(self) -> str:
        """Returns the resource of one broker, or of all."""
        return self._random.choice(("", *(name.removeprefix("broker") for name in self._brokers)))

    # -- properties of brokers

    def _tune(self) -> None:
        random = self._random
        if random.random() < 0.4:
            self._tune_threads()
            return
        tuned = random.choice(_TUNED)
        must_refuse = not tuned.taken or random.random() < 0.25
        value = random.choice(tuned.refused if must_refuse else (None, *tuned.taken))
        resource = self._some_broker()
        key = ("config", BROKER_RESOURCE, resource, tuned.key)

        def judge(answer: Answer) -> None:
            # A broker judges some default values only where they apply, as Apache Kafka does.
            is_hidden = self._is_set_elsewhere(tuned.key, resource) and (not resource or value is None)
            if answer is not Answer.UNKNOWN and not is_hidden and (answer is Answer.REFUSED) is not must_refuse:
                self.problems.append(f"a property is {answer.value}: {tuned.key}={value}")

        self._change(key, value, AdminOperation.TUNE, judge=judge)

    def _is_set_elsewhere(self, key: str, resource: str) -> bool:
        """Returns whether a key also has, or may have, a value at the other level: for all brokers, or for one of
        them.
        """
        others = [name.removeprefix("broker") for name in self._brokers] if not resource else [""]
        brokers = [self._cluster.nodes[name].broker for name in self._brokers]
        return any(
            broker is None or any(key in broker.metadata.image.config_of(BROKER_RESOURCE, other) for other in others)
            for broker in brokers
        )

    def _tune_threads(self) -> None:
        """Changes the size of one of a broker's thread pools; judges the answer if the size before it was certain."""
        random = self._random
        name, key = random.choice(self._brokers), random.choice(list(_THREADS))
        before = self._threads(name, key)
        if before is None:
            return
        then = int(before * random.choice(_FACTORS))

        def judge(answer: Answer) -> None:
            now = self._threads(name, key)
            if answer is not Answer.UNKNOWN and now in (before, then):
                must_refuse = then <= 0 or not before <= 2 * then <= 4 * before
                if (answer is Answer.REFUSED) is not must_refuse:
                    self.problems.append(f"a property is {answer.value}: {key}={then} of {name} instead of {before}")

        resource = name.removeprefix("broker")
        self._change(("config", BROKER_RESOURCE, resource, key), str(then), AdminOperation.TUNE, judge=judge)

    def _threads(self, name: str, key: str) -> int | None:
        """Returns the number of threads in force on a broker; None if it does not run."""
        node = self._cluster.nodes[name]
        if node.broker is None or not node.is_running:
            return None
        own = node.broker.metadata.image.config_of(BROKER_RESOURCE, name.removeprefix("broker")).get(key)
        return _THREADS[key] if own is None else int(own)

    # -- requests

    def _change(
        self,
        key: Key,
        value: Any,
        kind: AdminOperation,
        *,
        judge: Callable[[Answer], None] | None = None,
        then: Callable[[Answer], None] | None = None,
    ) -> None:
        """Sets a setting, or removes it with None, unless a change of it is under way."""
        if self._registers.is_busy(key):
            return
        *_, resource, name = key
        self._note(kind, f"sets {name} of {resource or 'all brokers'} to {value}")
        world = self._cluster.world
        self._registers.send(key, world.now_us)

        def ended(answer: Answer) -> None:
            self._registers.end(key, value, answer, world.now_us)
            self.done[kind] += answer is Answer.DONE
            if judge is not None:
                judge(answer)
            if then is not None:
                then(answer)

        if key[0] == "quota":
            response_type: type[Message] = AlterClientQuotasResponse
            request, node = _quota_request(resource, name, value), None
        else:
            response_type = IncrementalAlterConfigsResponse
            # The broker itself checks changes of its own properties.
            node = f"broker{resource}" if key[1] == BROKER_RESOURCE and resource else None
            request = _config_request(key, value)
        self._client.send(request, response_type, lambda response: ended(_answer(response)), node)

    def _clear(self) -> None:
        """Removes the next quota or limit, until none is left."""
        left = [key for key in self._registers.settings() if _is_limit(key)]
        self._remove(left)

    def _remove(self, left: Sequence[Key]) -> None:
        if not left:
            self._is_cleared = True
            return
        key, *others = left
        # The broker that has to check this one can be down: the others come first.
        last = partial(self._remove, [*others, key])
        if self._registers.is_busy(key):
            self._client.later(_RETRY_MS, last)
            return

        def then(answer: Answer) -> None:
            if answer is Answer.UNKNOWN:
                self._client.later(_RETRY_MS, last)
            else:
                self._remove(others)

        kind = AdminOperation.LIMIT if key[0] == "quota" else AdminOperation.THROTTLE
        self._change(key, None, kind, then=then)


def _is_limit(key: Key) -> bool:
    name: str = key[-1]
    return key[0] == "quota" or name == _MOVE_RATE or name.startswith(_SIDES)


def _quota_request(entity: _Entity, key: str, value: float | None) -> Message:
    parts = [AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    change = AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
    return AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=parts, ops=[change])])


def _config_request(key: Key, value: str | None) -> Message:
    _, kind, resource, name = key
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name=name, config_operation=_DELETE if value is None else _SET, value=value
    )
    altered = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[altered])


def _answer(response: Any) -> Answer:
    """Returns whether an answer proves that the change was made or refused; an error with another cause proves
    neither.
    """
    if response is None:
        return Answer.UNKNOWN
    rows = response.entries if isinstance(response, AlterClientQuotasResponse) else response.responses
    code = rows[0].error_code
    if code == ErrorCode.NONE:
        return Answer.DONE
    return Answer.REFUSED if code in _REFUSALS else Answer.UNKNOWN
