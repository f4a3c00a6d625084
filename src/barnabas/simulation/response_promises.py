"""The promise of honest responses: an acknowledged batch is in the log, and a fenced producer gets an error.

A Produce answer without an error names an offset, and the leader's log has exactly that batch there: the same producer,
epoch, sequence and checksum. A producer id whose epoch has been raised by an answered InitProducerId is fenced with its
older epochs: each later request of such an epoch, at any node, is answered with an error. At the end of a run the
clients' own records are compared: what a client counts as acknowledged, a node has acknowledged to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from barnabas.common.types import TopicPartition
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.replication.partition import Role
from barnabas.simulation.exchanges import Exchange, Exchanges, Listener
from barnabas.simulation.history import Place, Spot, Violation
from barnabas.simulation.log_files import Batch, read_batches
from barnabas.simulation.plain_decoding import Body, Schema
from barnabas.simulation.produce_frames import CHECKSUM, Written, batches_of, rows_of
from barnabas.simulation.replication_checkers import read_without_effects
from barnabas.simulation.request_frames import PRODUCE, Request, answer_body, body_of, has_transactional_id
from barnabas.simulation.simulated_cluster import Cluster

_INIT, _ADD_PARTITIONS, _ADD_OFFSETS, _END, _COMMIT_OFFSETS = 22, 24, 25, 26, 28


class ResponsesAreTrue(Listener):
    """Checks acknowledgements and the responses to fenced producers."""

    api_keys = (PRODUCE, _INIT, _ADD_PARTITIONS, _ADD_OFFSETS, _END, _COMMIT_OFFSETS)

    def __init__(self, cluster: Cluster, exchanges: Exchanges, acked: Callable[[], Mapping[bytes, Spot]]) -> None:
        """`acked`: what the clients count as acknowledged."""
        self._cluster = cluster
        self._exchanges = exchanges
        self._acked = acked
        exchanges.listen(self)
        #: Producer id -> the newest epoch that an InitProducerId answer named.
        self._epochs: dict[int, int] = {}
        #: The requests of fenced epochs that await their answer.
        self._fenced: dict[tuple[Exchange, int], str] = {}
        #: The image of the node when a Produce request arrived.
        self._images: dict[tuple[Exchange, int], MetadataImage] = {}
        #: Partition and first offset of an acknowledged batch -> its last offset.
        self._lasts: dict[tuple[TopicPartition, int], int] = {}
        #: The offsets that clients saw acknowledged: (first, last) of each batch.
        self._acked_to_clients: defaultdict[Place, list[tuple[int, int]]] = defaultdict(list)
        #: The numbers of acknowledged batches that were looked up, of refused rows, and of requests of fenced epochs.
        self.looked_up = self.refused = self.fenced = 0

    def check(self, cluster: Cluster) -> None:
        if self._exchanges.problems:
            raise self._exchanges.problems[0]
        if cluster.checks_all:
            self._check_clients()

    def on_request(self, exchange: Exchange, request: Request) -> None:
        broker = self._cluster.nodes[exchange.node].broker if exchange.is_of_node else None
        if request.api_key == PRODUCE and broker is not None:
            self._images[exchange, request.correlation_id] = broker.metadata.image
        if exchange.is_of_node and (request.api_key != PRODUCE or has_transactional_id(request)):
            for producer_id, epoch in _identities(request):
                if epoch < self._epochs.get(producer_id, -1):
                    text = f"producer {producer_id} with epoch {epoch}, fenced by {self._epochs[producer_id]}"
                    self._fenced[exchange, request.correlation_id] = text

    def on_answer(self, exchange: Exchange, request: Request, frame: bytes) -> None:
        if not exchange.is_of_node:
            if request.api_key == PRODUCE:
                self._take_acks(request, frame)
            return
        fenced = self._fenced.pop((exchange, request.correlation_id), None)
        if fenced is not None:
            self.fenced += 1
            if not any(_errors(request, frame)):
                raise Violation(
                    f"a fenced producer gets no error: {exchange.node} answers {_NAMES[request.api_key]} of "
                    f"{exchange.client}, {fenced}, without an error"
                )
        if request.api_key == _INIT:
            body = answer_body(request, frame, flexible_from=2)
            found = body.begin([("throttle", "int32"), ("error", "int16"), ("id", "int64"), ("epoch", "int16")])
            if not found["error"]:
                self._epochs[found["id"]] = max(found["epoch"], self._epochs.get(found["id"], -1))
        elif request.api_key == PRODUCE:
            self._look_up(exchange, request, frame)

    # -- acknowledged batches

    def _look_up(self, exchange: Exchange, request: Request, frame: bytes) -> None:
        """Looks for each acknowledged batch in the log of the node that acknowledged it."""
        written = {each.place: each for each in batches_of(request)}
        image = self._images.pop((exchange, request.correlation_id), EMPTY_IMAGE)
        for row in self._exchanges.produced(request, frame):
            if row.error:
                self.refused += 1
                continue
            sent = written.get(row.place)
            if sent is not None:
                last = row.base_offset + sent.batch.last_offset - sent.batch.base_offset
                self._lasts[self._exchanges.place(row.place), row.base_offset] = last
            if sent is None or not sent.is_only or row.base_offset < 0:
                continue
            problem = self._find(exchange.node, sent, row.base_offset, image)
            if problem:
                raise Violation(
                    f"acknowledged and not written: {exchange.node} answers {exchange.client} that its batch is at "
                    f"{self._exchanges.place(row.place)}@{row.base_offset}: {problem}"
                )

    def _find(self, name: str, sent: Written, offset: int, before: MetadataImage) -> str:
        node = self._cluster.nodes[name]
        place = self._exchanges.place(sent.place)
        found = None if node.broker is None else node.broker.replicas.find(*place)
        if found is None or found.role is not Role.LEADER or found.log.config.is_compacted:
            return ""  # The leader has resigned meanwhile, or compaction can have removed records.
        topic = before.topics_by_name.get(place.topic)
        if topic is not None and topic.topic_id != found.topic_id:
            return ""  # The topic was replaced while other partitions of the request waited.
        log = found.log
        if not log.log_start_offset <= offset:
            return ""
        if offset >= log.log_end_offset:
            return f"its log ends at {log.log_end_offset}"
        self.looked_up += 1
        data = read_without_effects(node, found, offset, log.log_end_offset)
        there = next((batch for batch in read_batches(data) if batch.base_offset == offset), None)
        if there is None:
            return "no batch of the log begins at this offset"
        own, other = _identity(sent.batch), _identity(there)
        if own != other:
            return f"producer, epoch, sequence and records are {own} in the request and {other} in the log"
        if sent.batch.producer_id < 0 and data[there.position :][CHECKSUM] != sent.checksum:
            return "the log has another batch at this offset"
        return ""

    # -- clients

    def _take_acks(self, request: Request, frame: bytes) -> None:
        for row in self._exchanges.produced(request, frame):
            place = self._exchanges.place(row.place)
            last = self._lasts.get((place, row.base_offset))
            if not row.error and last is not None:
                self._acked_to_clients[place].append((row.base_offset, last))

    def _check_clients(self) -> None:
        covered = {
            place: {at for first, last in found for at in range(first, last + 1)}
            for place, found in self._acked_to_clients.items()
        }
        for value, (place, offset) in self._acked().items():
            if offset not in covered.get(TopicPartition(*place), ()):
                raise Violation(
                    f"a client counts as acknowledged what no node acknowledged to it: {value!r} at "
                    f"{place[0]}-{place[1]}@{offset}",
                    (place, offset),
                )


_NAMES: Final = {
    PRODUCE: "Produce",
    _INIT: "InitProducerId",
    _ADD_PARTITIONS: "AddPartitionsToTxn",
    _ADD_OFFSETS: "AddOffsetsToTxn",
    _END: "EndTxn",
    _COMMIT_OFFSETS: "TxnOffsetCommit",
}


def _identity(batch: Batch) -> tuple[int, int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_offset - batch.base_offset


# -- formats


def _identities(request: Request) -> Iterator[tuple[int, int]]:
    """Yields the producer ids and epochs of a request that changes a transaction. An EndTxn that aborts is left out:
    Kafka answers a repetition of it without an error."""
    if request.api_key == PRODUCE:
        for written in batches_of(request):
            if written.batch.is_transactional:
                yield written.batch.producer_id, written.batch.producer_epoch
        return
    flexible_from, schema = _TRANSACTIONAL.get(request.api_key, (0, None))
    if schema is None or (request.api_key == _ADD_PARTITIONS and request.version >= 4):
        return
    found = body_of(request, flexible_from=flexible_from).begin(schema)
    if found.get("commits", True):
        yield found["id"], found["epoch"]


_TRANSACTIONAL: Final[dict[int, tuple[int, Schema]]] = {
    _ADD_PARTITIONS: (3, [("transactional id", "string"), ("id", "int64"), ("epoch", "int16")]),
    _ADD_OFFSETS: (3, [("transactional id", "string"), ("id", "int64"), ("epoch", "int16")]),
    _END: (3, [("transactional id", "string"), ("id", "int64"), ("epoch", "int16"), ("commits", "bool")]),
    _COMMIT_OFFSETS: (
        3,
        [("transactional id", "string"), ("group", "string"), ("id", "int64"), ("epoch", "int16")],
    ),
}


def _errors(request: Request, frame: bytes) -> Iterator[int]:
    """Yields the error codes of an answer."""
    if request.api_key == PRODUCE:
        yield from (row.error for row in rows_of(request, frame))
        return
    body = answer_body(request, frame, flexible_from=_TRANSACTIONAL[request.api_key][0])
    body.begin([("throttle", "int32")])
    if request.api_key in (_ADD_PARTITIONS, _COMMIT_OFFSETS):
        yield from _errors_of_rows(body)
    else:
        yield body.number("int16")


def _errors_of_rows(body: Body) -> Iterator[int]:
    rows: Schema = [("index", "int32"), ("error", "int16")]
    for topic in body.begin([("topics", [[("name", "string"), ("partitions", [rows])]])])["topics"]:
        yield from (row["error"] for row in topic["partitions"])
