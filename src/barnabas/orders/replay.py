"""The producer: sends orders in event-time order to a topic, and writes each acknowledgement to the ledger.

The steps of one record, and what a crash at each of them leaves:

1. It is handed to librdkafka (acks=all, idempotent). At most WINDOW records are in flight.
2. A broker acknowledges it; the callback notes the offset. After a crash before step 3, the record is in the log and
   not in the ledger.
3. Its line is written to the ledger before any further record is handed over. From then on it is never sent again.

So a crash leaves in doubt only some of the first WINDOW records that the ledger does not have. The next run reads the
log from where the ledger ends. Records that it finds there are entered as `found` and not sent. The others are sent and
marked `again`, because a broker can complete the crashed producer's request after the log was read; a second copy of
these is a duplicate of the application, not a fault of the brokers.

No record expires by a timeout of its own: brokers can be away for as long as the user allows (`give_up_after_s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from barnabas.orders import topic as topics
from barnabas.orders import topic_reader
from barnabas.orders.books import Books
from barnabas.orders.dataset import WEEKS, OrderData
from barnabas.orders.errors import OrdersError
from barnabas.orders.faults import KINDS, MALFORMED, OVERSIZED, Faults, Send, sends
from barnabas.orders.ledger import Entry, Ledger

#: The maximum number of records that are handed over but not in the ledger.
WINDOW = 10_000
#: The number of records handed over between two polls for acknowledgements.
_SERVE_EVERY = 100
_REPORT_EVERY_S = 0.2
_LAST_ACKS_S = 5.0


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The records to replay, and the topic for them. `orders`, `weeks`, `years` and `faults` are fixed for one
    ledger.
    """

    bootstrap: str
    ledger: Path
    topic: str = "orders"
    weeks: int = WEEKS
    #: The number of orders; None: all of the weeks.
    orders: int | None = None
    #: The number of times that the weeks are replayed.
    years: int = 1
    #: Event time divided by wall time; None: as fast as possible.
    speed: float | None = None
    faults: Faults = field(default_factory=Faults)
    #: The longest time without any acknowledgement, in seconds.
    give_up_after_s: float = 120.0
    #: Additional settings of librdkafka.
    settings: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """Returns the identity that the ledger stores: replays with the same identity create the same records in the
        same order.
        """
        return {"weeks": self.weeks, "orders": self.orders, "years": self.years, **asdict(self.faults)}


@dataclass(slots=True)
class Progress:
    """The progress of a replay. The counts are those of the ledger, so that they continue after a resume."""

    total_orders: int = 0
    books: Books = field(default_factory=Books)
    #: Acknowledged or refused records by kind.
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    #: Records of this run; `found` and `again` result from a crash before it.
    sent: int = 0
    found: int = 0
    again: int = 0
    in_flight: int = 0
    event_time_ms: int = 0
    #: Delay of wall time behind the wanted speed; 0 at full speed.
    behind_s: float = 0.0
    elapsed_s: float = 0.0
    #: The longest time in this run with records in flight and none acknowledged.
    longest_pause_s: float = 0.0
    #: Wall time (seconds since 1970) at which that pause began.
    longest_pause_began_s: float = 0.0
    finished: bool = False

    def enter(self, entry: Entry) -> None:
        if entry.refused is not None:
            self.refused[entry.kind] += 1
            return
        self.acknowledged[entry.kind] += 1
        if entry.kind != MALFORMED:
            self.books.enter(entry.order_id, entry.lines, entry.total_cents)

    def summary(self) -> dict[str, Any]:
        """Returns the summary as plain data, for the ledger's `end` line and the command's --json output."""
        return {
            "orders": self.books.orders,
            "lines": self.books.lines,
            "sales_cents": self.books.sales_cents,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "sent": self.sent,
            "found_after_crash": self.found,
            "sent_again_after_crash": self.again,
            "longest_pause_ms": round(self.longest_pause_s * 1000),
            "longest_pause_began_ms": round(self.longest_pause_began_s * 1000),
            "elapsed_s": round(self.elapsed_s, 3),
        }


def replay(
    options: ReplayOptions,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    hold: Callable[[Progress], bool] = lambda _: False,
) -> Progress:
    """Sends the records that the ledger does not have yet. Blocks; can run in any thread.

    `stop` is called often. Once it returns true, the records in flight are awaited for at most five seconds, and a
    later run can continue from the ledger. `finished` of the result says whether everything was sent. `hold` is called
    before each record; while it returns true, nothing more is sent, and the time of the pause does not count.

    Raises:
        OrdersError: the topic is missing or unsuitable, the ledger belongs to another replay, or the brokers were away
            for too long. All acknowledged records are in the ledger.
    """
    facts = topics.describe(topics.admin_client(options.bootstrap, options.settings), options.topic)
    topics.check_keeps_orders(facts)
    ledger = Ledger(options.ledger)
    try:
        run = _Run(options, facts, ledger, on_progress)
        run.begin()
        if ledger.contents.end is None:
            # Loading takes a second; checking the ledger first refuses a wrong one immediately.
            data = OrderData(options.weeks, orders=options.orders, years=options.years)
            run.progress.total_orders = len(data)
            run.send_all(sends(data.orders(), options.faults, facts.max_message_bytes + 1), stop, hold)
        else:
            run.progress.total_orders = run.progress.books.orders
            run.progress.finished = True
        run.report()
        return run.progress
    finally:
        ledger.close()


class _Run:
    """One run of a replay, with a new ledger or with one that has entries."""

    def __init__(
        self,
        options: ReplayOptions,
        facts: topics.TopicFacts,
        ledger: Ledger,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        progress = self.progress = Progress()
        self._on_progress = on_progress
        self._options = options
        self._facts = facts
        self._ledger = ledger
        self._acknowledgements = _Acknowledgements(ledger, progress)
        self._done: set[tuple[int, str]] = set()
        #: Records that a crash left in the log without a line in the ledger.
        self._tail: dict[tuple[int, bytes | None, bytes | None], list[topic_reader.Record]] = {}
        #: The number of records still to be marked `again`.
        self._in_doubt = 0
        self._producer = Producer(self._settings())

    def report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def begin(self) -> None:
        """Checks that the ledger belongs to this replay, or begins it; finds the records that the previous run left in
        the log.
        """
        contents = self._ledger.contents
        if contents.begin is None:
            starts = self._ends_now()
            self._ledger.note(
                {
                    "begin": {
                        "topic": self._facts.name,
                        "topic_id": self._facts.topic_id,
                        "start_offsets": starts,
                        "replay": self._options.identity(),
                    }
                }
            )
            self._ledger.sync()
            return
        self._check_same(contents.begin)
        for entry in contents.entries:
            self._done.add((entry.order_id, entry.kind))
            self.progress.enter(entry)
        if contents.end is not None:
            return
        self._ledger.note({"resumed": {"acknowledged": len(contents.entries)}})
        self._in_doubt = WINDOW
        for record in topic_reader.read(
            self._options.bootstrap, self._facts.name, contents.end_offsets, self._options.settings
        ):
            self._tail.setdefault((record.timestamp_ms, record.key, record.value), []).append(record)

    def send_all(
        self,
        planned: Iterator[Send],
        stop: Callable[[], bool],
        hold: Callable[[Progress], bool],
    ) -> None:
        clock = _Clock(self._options.speed)
        began_s = reported_s = time.monotonic()
        try:
            for number, send in enumerate(planned):
                if (send.order_id, send.kind) not in self._done and not self._is_found(send):
                    if hold(self.progress):
                        while hold(self.progress) and not stop():
                            self._serve(0.05)
                            self.report()
                        clock = _Clock(self._options.speed)
                    while (wait_s := clock.wait_s(send.due_ms)) > 0 and not stop():
                        self._serve(min(wait_s, 0.1))
                    self._hand_over(send, stop)
                    self.progress.event_time_ms = send.due_ms
                    self.progress.behind_s = max(0.0, -wait_s)
                if number % _SERVE_EVERY == 0 or self._options.speed is not None:
                    self._serve(0)
                    if stop():
                        break
                    if time.monotonic() - reported_s >= _REPORT_EVERY_S:
                        reported_s = time.monotonic()
                        self.progress.elapsed_s = reported_s - began_s
                        self.report()
            else:
                while self.progress.in_flight and not stop():
                    self._serve(0.1)
                    self.progress.elapsed_s = time.monotonic() - began_s
                    self.report()
                self.progress.finished = not self.progress.in_flight
        finally:
            self._wind_up()
            self.progress.elapsed_s = time.monotonic() - began_s
        if self.progress.finished:
            self._ledger.note({"end": self.progress.summary()})

    def _is_found(self, send: Send) -> bool:
        """Returns whether the record has been in the log since before a crash, without a line in the ledger."""
        if not self._tail:
            return False
        found = self._tail.get((send.timestamp_ms, send.key, send.value))
        if not found:
            return False
        record = found.pop(0)
        entry = _entry(send, record.partition, record.offset)._replace(found=True)
        self._ledger.enter(entry)
        self.progress.enter(entry)
        self.progress.found += 1
        return True

    def _hand_over(self, send: Send, stop: Callable[[], bool]) -> None:
        again = self._in_doubt > 0
        while not stop():
            try:
                self._producer.produce(
                    self._facts.name,
                    send.value,
                    send.key,
                    timestamp=send.timestamp_ms,
                    on_delivery=partial(self._acknowledgements.enter, send, again),
                )
            except BufferError:
                self._serve(0.05)
            except KafkaException as error:
                if topics.error_of(error) != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise OrdersError(f"cannot produce to {self._facts.name}: {topics.reason(error)}") from error
                self._acknowledgements.refuse(send, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
                return
            else:
                self._acknowledgements.on_handed_over()
                self._in_doubt -= again
                self.progress.again += again
                return

    def _serve(self, timeout_s: float) -> None:
        """Processes acknowledgements and writes the ledger.

        Raises:
            OrdersError: the producer failed, or no acknowledgement arrived for too long.
        """
        self._producer.poll(timeout_s)
        self._ledger.flush()
        acknowledgements = self._acknowledgements
        if acknowledgements.failure is not None:
            raise acknowledgements.failure
        if acknowledgements.waiting_s() > self._options.give_up_after_s:
            raise OrdersError(
                f"no acknowledgement for {self._options.give_up_after_s:g} s: "
                f"{acknowledgements.last_error or 'no broker answers'}; {self.progress.books.orders:,} orders are "
                f"acknowledged, {self.progress.in_flight:,} records wait",
                "when the brokers are back, run the same command again: it continues where the ledger ends",
            )

    def _wind_up(self) -> None:
        """Waits a few seconds for acknowledgements; unacknowledged records stay in doubt until the next run."""
        acknowledgements = self._acknowledgements
        deadline = time.monotonic() + (0 if acknowledgements.failure else _LAST_ACKS_S)
        while self.progress.in_flight and time.monotonic() < deadline:
            if acknowledgements.waiting_s() > _LAST_ACKS_S:
                break
            self._producer.poll(0.05)
        acknowledgements.is_over = True
        self._producer.purge()
        self._producer.flush(1.0)

    def _check_same(self, begin: dict[str, Any]) -> None:
        hint = "use the options of the first run, or choose a new file with --ledger"
        if begin["topic"] != self._facts.name:
            raise OrdersError(f"the ledger belongs to topic {begin['topic']}, not to {self._facts.name}", hint)
        if begin["topic_id"] != self._facts.topic_id:
            raise OrdersError(
                f"topic {self._facts.name} is not the topic of the ledger: it was deleted and created again since",
                "choose a new file with --ledger",
            )
        wanted = self._options.identity()
        other = [name for name, value in begin["replay"].items() if wanted.get(name) != value]
        if other:
            was = ", ".join(f"{name} {begin['replay'][name]}" for name in other)
            raise OrdersError(f"the ledger belongs to another replay ({was})", hint)

    def _ends_now(self) -> dict[int, int]:
        settings = {"bootstrap.servers": self._options.bootstrap, "group.id": "barnabas-orders", "log_level": 0}
        consumer = Consumer({**settings, **self._options.settings})
        try:
            return topics.end_offsets(consumer, self._facts.name, self._facts.partitions)
        finally:
            consumer.close()

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._options.bootstrap,
            "client.id": "orders-replay",
            "log_level": 0,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": WINDOW,
            # The client refuses a larger record before sending it: the brokers would refuse its whole batch.
            "message.max.bytes": min(max(self._facts.max_message_bytes, 1_000), 1_000_000_000),
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": self._acknowledgements.on_error,
            **self._options.settings,
        }


class _Acknowledgements:
    """The producer's callbacks: they write the ledger and measure the longest time without an acknowledgement."""

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self.failure: OrdersError | None = None
        self.last_error: str | None = None
        #: Whether the run has ended: from then on the client only reports records that `purge` removed.
        self.is_over = False
        self._ledger = ledger
        self._progress = progress
        #: The time since when records are in flight and none was acknowledged.
        self._waiting_since_s = 0.0

    def on_handed_over(self) -> None:
        if self._progress.in_flight == 0:
            self._waiting_since_s = time.monotonic()
        self._progress.in_flight += 1
        self._progress.sent += 1

    def enter(self, send: Send, again: bool, error: KafkaError | None, message: Message) -> None:
        """Processes a delivery report, which can also report a failure."""
        self._progress.in_flight -= 1
        if error is not None:
            if not self.is_over:
                self._on_failure(send, error)
            return
        self._note_pause()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        entry = _entry(send, partition, offset)._replace(again=again)
        self._ledger.enter(entry)
        self._progress.enter(entry)

    def refuse(self, send: Send, error: KafkaError) -> None:
        entry = Entry(send.order_id, send.kind, refused=error.name())
        self._ledger.enter(entry)
        self._progress.enter(entry)

    def on_error(self, error: KafkaError) -> None:
        self.last_error = topics.reason(KafkaException(error))
        if error.fatal() and not self.is_over:
            self.failure = self.failure or OrdersError(f"the producer cannot continue: {self.last_error}", _RESUME_HINT)

    def waiting_s(self) -> float:
        return time.monotonic() - self._waiting_since_s if self._progress.in_flight else 0.0

    def _on_failure(self, send: Send, error: KafkaError) -> None:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and send.kind == OVERSIZED:
            self.refuse(send, error)
        elif self.failure is None:
            what = topics.reason(KafkaException(error))
            self.failure = OrdersError(f"order {send.order_id} was rejected: {what}", _RESUME_HINT)

    def _note_pause(self) -> None:
        now_s = time.monotonic()
        pause_s = now_s - self._waiting_since_s
        self._waiting_since_s = now_s
        if pause_s > self._progress.longest_pause_s:
            self._progress.longest_pause_s = pause_s
            self._progress.longest_pause_began_s = time.time() - pause_s


_RESUME_HINT = "all acknowledged orders are in the ledger; run the same command again to continue"


class _Clock:
    """The clock of a replay: the wall time at which each event time is due. The first event is due immediately."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._first_ms: int | None = None
        self._began_s = 0.0

    def wait_s(self, due_ms: int) -> float:
        """Returns the seconds until the event is due; negative if it is late."""
        if self._speed is None:
            return 0.0
        if self._first_ms is None:
            self._first_ms, self._began_s = due_ms, time.monotonic()
        return (due_ms - self._first_ms) / 1000 / self._speed - (time.monotonic() - self._began_s)


def _entry(send: Send, partition: int, offset: int) -> Entry:
    return Entry(send.order_id, send.kind, partition, offset, send.total_cents, send.line_count, send.reason)
