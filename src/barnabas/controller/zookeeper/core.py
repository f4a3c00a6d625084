"""The state and operations that the parts of an active controller share: its epoch, its store, its reads, its
decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host
from barnabas.common.reports import LimitedReports
from barnabas.controller.requests.partitions import Located
from barnabas.controller.requests.result import Cause, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper.broker_queues import BrokerQueues
from barnabas.controller.zookeeper.broker_requests import RequestBatch, Sender
from barnabas.controller.zookeeper.fenced_writer import Unit
from barnabas.controller.zookeeper.record_store import ReadPartitions, RecordStore, Settled
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE, Job, Slices, portions
from barnabas.controller.zookeeper.znode_reader import ZnodeReader
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.message import Message
from barnabas.znodes.znode_json import ZnodeError

#: The actor of a change for which no principal is known.
SELF = "controller"

#: A partition: topic id and number.
Place = tuple[bytes, int]
#: Makes decisions about some partitions in their current state.
Decide = Callable[[ControllerView, Sequence[Located]], Result[Any]]


class Problems:
    """The znodes with invalid content, each with its problem. They are reported in the log, and by `status`."""

    def __init__(self, reports: LimitedReports) -> None:
        self._reports = reports
        self._texts: dict[str, str] = {}

    def add(self, error: ZnodeError) -> None:
        if self._texts.get(error.path) != error.problem:
            self._texts[error.path] = error.problem
            self._reports.report(error.path, str(error))

    def mended(self, path: str) -> None:
        if self._texts.pop(path, None) is not None:
            self._reports.over(path, f"znode {path} can be read again")

    def gone(self, path: str) -> None:
        """Forgets the problem of a znode that no longer exists."""
        if self._texts.pop(path, None) is not None:
            self._reports.over(path, f"znode {path} is gone")

    def settled(self, path: str, *, exists: bool) -> None:
        """Forgets the problem of a znode that can be read now, or that no longer exists."""
        if exists:
            self.mended(path)
        else:
            self.gone(path)

    def listed(self) -> list[str]:
        """Returns a line for each znode, sorted by path."""
        return [f"{path}: {problem}" for path, problem in sorted(self._texts.items())]


@dataclass(slots=True)
class Core:
    """The state that the parts of an active controller share in one controller epoch. `is_serving` is false while the
    metadata is read: no decisions are made then.
    """

    host: Host
    config: BrokerConfig
    strategy: NamedStrategy | None
    sender: Sender
    reader: ZnodeReader
    records: RecordStore
    queues: BrokerQueues
    slices: Slices
    problems: Problems
    on_decision: Callable[[Cause, MetadataImage, Sequence[Versioned]], Cause]
    is_serving: bool = False

    @property
    def image(self) -> MetadataImage:
        return self.records.image

    @property
    def own_id(self) -> int:
        return self.sender.controller_id

    def view(self) -> ControllerView:
        return ControllerView(
            self.records.image, self.config, self.host.random, self.strategy, raises_leader_epochs=True
        )

    def propose(self, result: Result[Any], settled: Settled | None = None) -> None:
        """Writes a decision and applies it to the image. `settled` is called when it is committed, with the topics
        whose znodes had unexpected content.
        """
        if not result.records:
            if settled is not None:
                self.records.after_all(settled)
            return
        cause = self.on_decision(result.cause, self.records.image, result.records)
        self.records.propose(result.records, settled, cause)

    def decide_in_slices(
        self,
        partitions: Iterable[Located],
        decide: Decide,
        done: Callable[[], None] | None = None,
        *,
        each: Callable[[Sequence[Place]], None] | None = None,
    ) -> None:
        """Decides about these partitions, in slices if there are many. `each` is called after the decision about each
        portion, with the portion, and `done` after the last one; the decisions are not written then.
        """
        places = [(topic.topic_id, index) for topic, index, _ in partitions]
        self.slices.begin(self._decisions(places, decide, done, each))

    def _decisions(
        self,
        places: Sequence[Place],
        decide: Decide,
        done: Callable[[], None] | None,
        each: Callable[[Sequence[Place]], None] | None,
    ) -> Job:
        for number, portion in enumerate(portions(places)):
            if number or len(places) > PARTITIONS_AT_ONCE:
                yield  # To find thousands of partitions has taken a turn of its own.
            self.propose_in_job(decide(self.view(), located(self.image, portion)))
            if each is not None:
                each(portion)
        if done is not None:
            done()

    def propose_in_job(self, result: Result[Any], settled: Settled | None = None) -> None:
        """Proposes a decision of a job, and lets the job continue once few enough of its decisions wait for ZooKeeper.
        `settled` is called if there is anything to write.
        """
        if not result.records:
            return

        def written(lost: frozenset[str]) -> None:
            self.slices.written()
            if settled is not None:
                settled(lost)

        self.slices.decided()
        self.propose(result, written)

    def write_in_job(
        self,
        units: Iterable[Unit],
        settled: Settled | None = None,
        *,
        records: Sequence[Message] = (),
        partitions: ReadPartitions | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Writes units of a job, with the same limit as `propose_in_job`. The units belong to no records, or make the
        changes of these records and partitions.
        """

        def written(lost: frozenset[str]) -> None:
            self.slices.written()
            if settled is not None:
                settled(lost)

        self.slices.decided()
        self.records.write(list(units), records, written, read=partitions, cause=cause)

    def batch(self, to: Iterable[int] | None = None) -> RequestBatch:
        """Starts a batch of requests about the committed image, to all brokers or to the given ones."""
        return RequestBatch(self.sender, self.records.committed, to)

    def send(self, batch: RequestBatch) -> None:
        for broker_id, requests in batch.requests().items():
            self.queues.add(broker_id, requests)


def located(image: MetadataImage, places: Iterable[Place]) -> list[Located]:
    """Returns these partitions as they are in the image, without those that are not in it."""
    found: list[Located] = []
    for topic_id, index in places:
        topic = image.topics_by_id.get(topic_id)
        if topic is not None and index < len(topic.partitions):
            found.append((topic, index, topic.partitions[index]))
    return found


def places_of(image: MetadataImage) -> list[Place]:
    """Returns all partitions, by topic name and number."""
    return [(topic.topic_id, index) for topic in image.topics() for index in range(len(topic.partitions))]
