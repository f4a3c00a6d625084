"""The batches of one produce request on their way into their logs.

    as usual                  appended at once, in the order of the request
    of a transaction          after the coordinator was asked (`broker.transactional_produce`)
    too much work to open     copied, validated beside the loop one after the other, then appended like any other

While batches are validated, nothing else of this connection is served: a producer's batches keep their order. Others
may append in between, for a batch has its offsets from the moment at which it is appended. All checks but those of the
records themselves are made again by then: leadership, settings, transaction, sequence.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.producing.transactional_produce import Refused, name_of, produce
from barnabas.broker.requests.connection import Chunks, InFlight
from barnabas.broker.requests.context import Services
from barnabas.common.errors import ErrorCode
from barnabas.common.types import ADMIN_CLIENT_ID
from barnabas.protocol.produce_frame import Asked
from barnabas.records.deferred import DeferredValidation
from barnabas.replication.manager import Appended

#: By topic as the request names it, partitions and what became of their batches.
Answered = list[tuple[str | bytes, list[tuple[int, Appended]]]]

#: The values of `acks` that Kafka accepts.
ACKS = (-1, 0, 1)

_Key = tuple[str | bytes, int]


def refuse_all(asked: Asked, code: ErrorCode) -> Answered:
    return [(topic, [(index, Appended(code)) for index, _ in batches]) for topic, batches in asked]


class Writes:
    """Those of one request."""

    __slots__ = ("_acks", "_answer", "_request", "_services", "_transactional_id", "_validated", "answered")

    def __init__(
        self,
        request: InFlight,
        services: Services,
        transactional_id: str | None,
        acks: int,
        answer: Callable[[Answered], Chunks | None],
    ) -> None:
        """`answer` gets what became of all of them; what it returns is the answer, None if that comes later."""
        self._request = request
        self._services = services
        self._transactional_id = transactional_id
        self._acks = acks
        self._answer = answer
        self._validated: dict[_Key, DeferredValidation] = {}
        self.answered: Answered = []

    def append(self, asked: Asked) -> Chunks | None:
        """Append these, and answer; None if it takes longer. The views need to be valid in this call only."""
        if self._transactional_id is not None:
            return produce(self._request, self._services, self._transactional_id, asked, self._append)
        return self._append(asked, {})

    def _append(self, asked: Asked, refused: Refused) -> Chunks | None:
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

    def _append_all(self, asked: Asked, refused: Refused) -> Answered:
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
        """What became of those that had been deferred."""
        found = {(topic, index): appended for topic, rows in answered for index, appended in rows}
        for topic, rows in self.answered:
            rows[:] = [(index, found.get((topic, index), appended)) for index, appended in rows]

    # -- beside the loop

    def _open(self, asked: Asked, answered: Answered) -> None:
        """Validate what was deferred, then append it."""
        wall_ms = self._services.host.clock.wall_ms()
        self._validated = {}
        late: Asked = []
        for (topic, batches), (_, rows) in zip(asked, answered, strict=True):
            kept = []
            for (index, data), (_, appended) in zip(batches, rows, strict=True):
                if appended.deferred is not None:
                    validation = DeferredValidation(appended.deferred, data, wall_ms)
                    self._validated[topic, index] = validation
                    kept.append((index, validation.batch))
            if kept:
                late.append((topic, kept))
        self._request.connection.begin_slow()
        self._load(list(self._validated.values()), late)

    def _load(self, validations: list[DeferredValidation], late: Asked) -> None:
        """One at a time, so that a request with many takes turns with others."""

        def loaded(error: BaseException | None) -> None:
            request.when_abandoned(None)
            if error is not None:
                request.connection.fail("cannot validate a batch", error)
            elif len(validations) > 1:
                self._load(validations[1:], late)
            else:
                request.reply_with(lambda: self.append(late))
                request.connection.end_slow()

        request = self._request
        request.when_abandoned(self._services.replicas.openings.load(validations[0], loaded).cancel)
