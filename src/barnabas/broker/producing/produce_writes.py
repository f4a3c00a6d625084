"""The appends of one produce request.

    normally                   appended immediately, in the order of the request
    in a transaction           appended after the coordinator's response (`transactional_produce.py`)
    expensive to decompress    copied, validated in the background one after the other, then appended like any other

While batches are validated, no other request of this connection is served: a producer's batches keep their order.
Other connections can append in between, because a batch gets its offsets when it is appended. At that point all checks
but those of the records themselves are repeated: rights, leadership, settings, transaction, sequence.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.producing.partition_append import NO_DATA, UNDECIDED, PartitionAppend, TopicAppends, name_of
from barnabas.broker.producing.produce_rights import refuse_unauthorized
from barnabas.broker.producing.transactional_produce import verify
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.portions import whole
from barnabas.common.types import ADMIN_CLIENT_ID, EVENTS_TOPIC, INTERNAL_TOPICS
from barnabas.records.deferred import DeferredValidation
from barnabas.replication.replica_manager import Appended
from barnabas.storage.log import Origin

#: The values of `acks` that Kafka accepts.
ACKS = (-1, 0, 1)

_UNKNOWN_ID = Appended(ErrorCode.UNKNOWN_TOPIC_ID)


class ProduceWrites:
    """The appends of one request, or of one part of a long request."""

    __slots__ = ("_acks", "_answer", "_has_waited", "_request", "_services", "_topics", "_transactional_id")

    def __init__(
        self,
        request: InFlight,
        services: Services,
        transactional_id: str | None,
        acks: int,
        topics: TopicAppends,
        answer: Callable[[], Chunks | None],
        *,
        has_waited: bool = False,
    ) -> None:
        """Creates the writes of one request. `answer` is called when all batches have results; it returns the response,
        or None if that is sent later. `has_waited` is set if the rights were judged in an earlier turn.
        """
        self._has_waited = has_waited
        self._request = request
        self._services = services
        self._transactional_id = transactional_id
        self._acks = acks
        self._topics = topics
        self._answer = answer

    def begin(self) -> Chunks | None:
        """Appends the batches and returns the response; None if it is sent later. The views need to be valid only
        during this call."""
        if self._transactional_id is not None:
            chunks = verify(self._request, self._services, self._transactional_id, self._topics, self._append)
        else:
            chunks = self._append()
        self._has_waited = True
        return chunks

    def _append(self) -> Chunks | None:
        """Appends the batches that have no result yet. Returns the response; None if it follows later."""
        services, acks = self._services, self._acks
        if self._has_waited:
            whole(refuse_unauthorized(self._request, services, self._transactional_id, self._topics))
        replicas = services.replicas
        wall_ms = services.host.clock.wall_ms()
        transactional = self._transactional_id is not None
        deferred = []
        for topic, appends in self._topics:
            name = topic if isinstance(topic, str) else name_of(replicas, topic)
            refusal = None
            if not name and not isinstance(topic, str):
                refusal = _UNKNOWN_ID
            elif name in INTERNAL_TOPICS:
                refusal = self._internal(name)
            for append in appends:
                if append.result is not UNDECIDED:
                    continue
                if refusal is not None:
                    append.finish(refusal)
                    continue
                try:
                    append.partition = partition = replicas.leader(name, append.index)
                except RequestFailed as failure:
                    append.finish(Appended(failure.code, message=failure.message))
                    continue
                result = replicas.append_to(
                    partition, append.data, acks, wall_ms, Origin.CLIENT, transactional, append.validated
                )
                if result.deferred is None:
                    # The body of `finish`, repeated here because this is the hot path.
                    append.result = result
                    append.data = NO_DATA
                    append.validated = None
                else:
                    append.validated = DeferredValidation(result.deferred, append.data, wall_ms)
                    append.data = append.validated.batch
                    deferred.append(append)
        if deferred:
            self._request.connection.begin_exclusive()
            self._validate(deferred)
            return None
        return self._answer()

    def _internal(self, topic: str) -> Appended | None:
        """Returns the refusal of appends to an internal topic. Administrators may append to the journal."""
        if topic == EVENTS_TOPIC and self._transactional_id is None and self._request.client_id == ADMIN_CLIENT_ID:
            return None
        if not self._services.replicas.has(topic):
            return None
        return Appended(ErrorCode.INVALID_TOPIC_EXCEPTION, message=f"Cannot append to internal topic {topic}")

    def _validate(self, deferred: list[PartitionAppend]) -> None:
        """Validates these batches in the background, one at a time, so that other work gets its turn in between; after
        the last one, `begin` appends them."""

        def loaded(error: BaseException | None) -> None:
            request.when_abandoned(None)
            if error is not None:
                request.connection.fail("cannot validate a batch", error)
            elif len(deferred) > 1:
                self._validate(deferred[1:])
            else:
                request.reply_with(self.begin)
                request.connection.end_exclusive()

        request, validation = self._request, deferred[0].validated
        assert validation is not None, "a deferred batch has a validation"
        request.when_abandoned(self._services.replicas.openings.load(validation, loaded).cancel)
