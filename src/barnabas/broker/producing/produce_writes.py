"""The appends of one produce request.

    normally                   appended immediately, in the order of the request
    in a transaction           appended after the coordinator's response (`transactional_produce.py`)
    expensive to decompress    copied, validated in the background one after the other, then appended like any other

While batches are validated, no other request of this connection is served: a producer's batches keep their order.
Other connections can append in between, because a batch gets its offsets when it is appended. At that point all checks
but those of the records themselves are repeated: leadership, settings, transaction, sequence.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.producing.transactional_produce import Refused, name_of, produce
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.common.errors import ErrorCode
from barnabas.common.types import ADMIN_CLIENT_ID
from barnabas.protocol.produce_frame import ProduceData
from barnabas.records.deferred import DeferredValidation
from barnabas.replication.manager import Appended

#: For each topic as the request names it, the results of its partitions.
Answered = list[tuple[str | bytes, list[tuple[int, Appended]]]]

#: The values of `acks` that Kafka accepts.
ACKS = (-1, 0, 1)

_Key = tuple[str | bytes, int]


def refuse_all(asked: ProduceData, code: ErrorCode) -> Answered:
    """Returns the same error for every batch of a request."""
    return [(topic, [(index, Appended(code)) for index, _ in batches]) for topic, batches in asked]


class Writes:
    """The appends of one request."""

    __slots__ = ("_acks", "_answer", "_request", "_services", "_transactional_id", "_validated", "answered")

    def __init__(
        self,
        request: InFlight,
        services: Services,
        transactional_id: str | None,
        acks: int,
        answer: Callable[[Answered], Chunks | None],
    ) -> None:
        """`answer` receives the results of all batches and returns the response, or None if it is sent later."""
        self._request = request
        self._services = services
        self._transactional_id = transactional_id
        self._acks = acks
        self._answer = answer
        self._validated: dict[_Key, DeferredValidation] = {}
        self.answered: Answered = []

    def append(self, asked: ProduceData) -> Chunks | None:
        """Appends these batches and returns the response; None if it is sent later. The views need to be valid only
        during this call."""
        if self._transactional_id is not None:
            return produce(self._request, self._services, self._transactional_id, asked, self._append)
        return self._append(asked, {})

    def _append(self, asked: ProduceData, refused: Refused) -> Chunks | None:
        answered = self._append_all(asked, refused)
        if self.answered:
            self._fill_in(answered)
        else:
            self.answered = answered
        for _, rows in answered:
            for _, appended in rows:
                if appended.deferred is not None:
                    self._open(asked, answered)
                    return None
        return self._answer(self.answered)

    def _append_all(self, asked: ProduceData, refused: Refused) -> Answered:
        services, acks, validated = self._services, self._acks, self._validated
        replicas = services.replicas
        append = replicas.append
        wall_ms = services.host.clock.wall_ms()
        transactional = self._transactional_id is not None
        to_journal = not transactional and self._request.client_id == ADMIN_CLIENT_ID
        answered: Answered = []
        for topic, batches in asked:
            name = topic if isinstance(topic, str) else name_of(replicas, topic)
            rows = []
            for index, data in batches:
                appended = refused.get((topic, index)) if refused else None
                if appended is None and not name and not isinstance(topic, str):
                    appended = Appended(ErrorCode.UNKNOWN_TOPIC_ID)
                if appended is None:
                    appended = append(
                        name,
                        index,
                        data,
                        acks=acks,
                        wall_ms=wall_ms,
                        to_journal=to_journal,
                        transactional=transactional,
                        validated=validated.get((topic, index)) if validated else None,
                    )
                rows.append((index, appended))
            answered.append((topic, rows))
        return answered

    def _fill_in(self, answered: Answered) -> None:
        """Fills in the results of the batches whose append was deferred."""
        found = {(topic, index): appended for topic, rows in answered for index, appended in rows}
        for topic, rows in self.answered:
            rows[:] = [(index, found.get((topic, index), appended)) for index, appended in rows]

    # -- in the background

    def _open(self, asked: ProduceData, answered: Answered) -> None:
        """Validates the deferred batches in the background, then appends them."""
        wall_ms = self._services.host.clock.wall_ms()
        self._validated = {}
        late: ProduceData = []
        for (topic, batches), (_, rows) in zip(asked, answered, strict=True):
            kept = []
            for (index, data), (_, appended) in zip(batches, rows, strict=True):
                if appended.deferred is not None:
                    validation = DeferredValidation(appended.deferred, data, wall_ms)
                    self._validated[topic, index] = validation
                    kept.append((index, validation.batch))
            if kept:
                late.append((topic, kept))
        self._request.connection.begin_exclusive()
        self._load(list(self._validated.values()), late)

    def _load(self, validations: list[DeferredValidation], late: ProduceData) -> None:
        """Validates one batch at a time, so that a request with many takes turns with others."""

        def loaded(error: BaseException | None) -> None:
            request.when_abandoned(None)
            if error is not None:
                request.connection.fail("cannot validate a batch", error)
            elif len(validations) > 1:
                self._load(validations[1:], late)
            else:
                request.reply_with(lambda: self.append(late))
                request.connection.end_exclusive()

        request = self._request
        request.when_abandoned(self._services.replicas.openings.load(validations[0], loaded).cancel)
