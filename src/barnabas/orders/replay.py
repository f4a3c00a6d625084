"""The producer: orders in event-time order into a topic, each acknowledgement into the ledger.

One record's way, and what a crash at each point leaves:

1. It is handed to librdkafka (acks=all, idempotent). At most WINDOW records are under way.
2. A broker acknowledges; the callback notes the offset. A crash before the next step: the record is in the log and not
   in the ledger.
3. The ledger's line is written, before any further record is handed over. From here on it is never sent again.

So what a crash leaves in doubt is among the first WINDOW records that the ledger does not have. The next run reads the
log from where the ledger ends: what it finds there is entered as `found` and not sent. What it does not find is sent
and marked `again`, because a broker may have had the dead producer's request in hand, to finish it after we looked; a
second copy of those is a duplicate of the application, and no fault of the brokers.

A record is never given up by its own time: brokers may be gone for as long as the person allows (`give_up_after_s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from barnabas.orders import log
from barnabas.orders import topic as topics
from barnabas.orders.books import Books
from barnabas.orders.dataset import WEEKS, OrderData
from barnabas.orders.errors import OrdersError
from barnabas.orders.faults import KINDS, MALFORMED, OVERSIZED, Faults, Send, sends
from barnabas.orders.ledger import Entry, Ledger

#: Records handed over and not in the ledger yet.
WINDOW = 10_000
#: Handed over between two looks for acknowledgements.
_SERVE_EVERY = 100
_REPORT_EVERY_S = 0.2
_LAST_ACKS_S = 5.0


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to replay, and where to. `orders`, `weeks`, `years` and `faults` must stay the same for one ledger."""

    bootstrap: str
    ledger: Path
    topic: str = "orders"
    weeks: int = WEEKS
    #: Only so many; None: all of the weeks.
    orders: int | None = None
    #: How often the weeks are gone through.
    years: int = 1
    #: Event time over wall time; None: as fast as it goes.
    speed: float | None = None
    faults: Faults = field(default_factory=Faults)
    #: Seconds without any acknowledgement.
    give_up_after_s: float = 120.0
    #: librdkafka's own settings.
    settings: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """What the ledger keeps: the same identity makes the same records in the same order."""
        return {"weeks": self.weeks, "orders": self.orders, "years": self.years, **asdict(self.faults)}


@dataclass(slots=True)
class Progress:
    """How far a replay is; the counts are those of the ledger, so they go on after a resume."""

    total_orders: int = 0
    books: Books = field(default_factory=Books)
    #: Acknowledged or refused records by kind.
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    #: Records of this run, and what came of the crash before it.
    sent: int = 0
    found: int = 0
    again: int = 0
    under_way: int = 0
    event_time_ms: int = 0
    #: Wall time behind the wanted speed; 0 at full speed.
    behind_s: float = 0.0
    elapsed_s: float = 0.0
    #: The longest time that records were under way and none was acknowledged, in this run.
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
        """Plain data: the ledger's `end` and the command's --json."""
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
    on_progress: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Send what the ledger does not have yet. Blocks; may run in a thread.

    `stop` is asked often; once it says yes, what is under way is waited for (at most five seconds) and the ledger is
    left to be gone on with. The result's `finished` tells whether all was sent.

    Raises:
        OrdersError: the topic is missing or unfit, the ledger is another replay's, or the brokers were gone for too
            long. What was acknowledged stands in the ledger.
    """
    facts = topics.describe(topics.admin_client(options.bootstrap, options.settings), options.topic)
    topics.check_keeps_orders(facts)
    ledger = Ledger(options.ledger)
    try:
        run = _Run(options, facts, ledger, Progress())
        run.begin()
        if ledger.contents.end is None:
            # Only now: it takes a second, and a wrong ledger is refused without it.
            data = OrderData(options.weeks, orders=options.orders, years=options.years)
            run.progress.total_orders = len(data)
            run.send_all(sends(data.orders(), options.faults, facts.max_message_bytes + 1), on_progress, stop)
        else:
            run.progress.total_orders = run.progress.books.orders
            run.progress.finished = True
        on_progress(run.progress)
        return run.progress
    finally:
        ledger.close()


class _Run:
    """One run of a replay, on a ledger that may be new or half full."""

    def __init__(self, options: ReplayOptions, facts: topics.TopicFacts, ledger: Ledger, progress: Progress) -> None:
        self.progress = progress
        self._options = options
        self._facts = facts
        self._ledger = ledger
        self._acknowledgements = _Acknowledgements(ledger, progress)
        self._done: set[tuple[int, str]] = set()
        #: What a crash left in the log without a line in the ledger.
        self._tail: dict[tuple[int, bytes | None, bytes | None], list[log.Record]] = {}
        #: Records to be marked `again` still.
        self._in_doubt = 0
        self._producer = Producer(self._settings())

    def begin(self) -> None:
        """Check that the ledger is ours, or begin it; find out what the run before left in the log."""
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
        for record in log.read(self._options.bootstrap, self._facts.name, contents.end_offsets, self._options.settings):
            self._tail.setdefault((record.timestamp_ms, record.key, record.value), []).append(record)

    def send_all(
        self, planned: Iterator[Send], on_progress: Callable[[Progress], None], stop: Callable[[], bool]
    ) -> None:
        clock = _Clock(self._options.speed)
        began_s = reported_s = time.monotonic()
        try:
            for number, send in enumerate(planned):
                if (send.order_id, send.kind) not in self._done and not self._is_found(send):
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
                        on_progress(self.progress)
            else:
                while self.progress.under_way and not stop():
                    self._serve(0.1)
                    self.progress.elapsed_s = time.monotonic() - began_s
                    on_progress(self.progress)
                self.progress.finished = not self.progress.under_way
        finally:
            self._wind_up()
            self.progress.elapsed_s = time.monotonic() - began_s
        if self.progress.finished:
            self._ledger.note({"end": self.progress.summary()})

    def _is_found(self, send: Send) -> bool:
        """Whether the log has it from before the crash, though no acknowledgement reached the ledger."""
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
        """Take acknowledgements, write the ledger, and give up where nothing comes."""
        self._producer.poll(timeout_s)
        self._ledger.flush()
        acknowledgements = self._acknowledgements
        if acknowledgements.failure is not None:
            raise acknowledgements.failure
        if acknowledgements.waiting_s() > self._options.give_up_after_s:
            raise OrdersError(
                f"no acknowledgement for {self._options.give_up_after_s:g} s: "
                f"{acknowledgements.last_error or 'no broker answers'}; {self.progress.books.orders:,} orders are "
                f"acknowledged, {self.progress.under_way:,} records wait",
                "when the brokers are back, run the same command again: it continues where the ledger ends",
            )

    def _wind_up(self) -> None:
        """Take what is acknowledged within a few seconds; what is not stays in doubt until the next run."""
        acknowledgements = self._acknowledgements
        deadline = time.monotonic() + (0 if acknowledgements.failure else _LAST_ACKS_S)
        while self.progress.under_way and time.monotonic() < deadline:
            if acknowledgements.waiting_s() > _LAST_ACKS_S:
                break
            self._producer.poll(0.05)
        acknowledgements.is_over = True
        self._producer.purge()
        self._producer.flush(1.0)

    def _check_same(self, begin: dict[str, Any]) -> None:
        hint = "use the options of the first run, or choose a new file with --ledger"
        if begin["topic"] != self._facts.name:
            raise OrdersError(f"the ledger belongs to topic {begin['topic']}, not of {self._facts.name}", hint)
        if begin["topic_id"] != self._facts.topic_id:
            raise OrdersError(
                f"topic {self._facts.name} is not the one of the ledger: it was deleted and created again since",
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
            # A larger one is refused before it is sent: the brokers would refuse the whole batch that it is in.
            "message.max.bytes": min(max(self._facts.max_message_bytes, 1_000), 1_000_000_000),
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": self._acknowledgements.on_error,
            **self._options.settings,
        }


class _Acknowledgements:
    """What the client calls back with: into the ledger, and how long nothing came."""

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self.failure: OrdersError | None = None
        self.last_error: str | None = None
        #: From here on the client only reports what we took back ourselves.
        self.is_over = False
        self._ledger = ledger
        self._progress = progress
        #: Since when something is under way and nothing came.
        self._waiting_since_s = 0.0

    def on_handed_over(self) -> None:
        if self._progress.under_way == 0:
            self._waiting_since_s = time.monotonic()
        self._progress.under_way += 1
        self._progress.sent += 1

    def enter(self, send: Send, again: bool, error: KafkaError | None, message: Message) -> None:
        """A delivery report, also one of failure."""
        self._progress.under_way -= 1
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
            self.failure = self.failure or OrdersError(f"the producer cannot continue: {self.last_error}", _GO_ON)

    def waiting_s(self) -> float:
        return time.monotonic() - self._waiting_since_s if self._progress.under_way else 0.0

    def _on_failure(self, send: Send, error: KafkaError) -> None:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and send.kind == OVERSIZED:
            self.refuse(send, error)
        elif self.failure is None:
            what = topics.reason(KafkaException(error))
            self.failure = OrdersError(f"order {send.order_id} was rejected: {what}", _GO_ON)

    def _note_pause(self) -> None:
        now_s = time.monotonic()
        pause_s = now_s - self._waiting_since_s
        self._waiting_since_s = now_s
        if pause_s > self._progress.longest_pause_s:
            self._progress.longest_pause_s = pause_s
            self._progress.longest_pause_began_s = time.time() - pause_s


_GO_ON = "all acknowledged orders are in the ledger; run the same command again to continue"


class _Clock:
    """Wall time at which an event time is due; the first event asked for is due at once."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._first_ms: int | None = None
        self._began_s = 0.0

    def wait_s(self, due_ms: int) -> float:
        """Seconds left; negative when it is late."""
        if self._speed is None:
            return 0.0
        if self._first_ms is None:
            self._first_ms, self._began_s = due_ms, time.monotonic()
        return (due_ms - self._first_ms) / 1000 / self._speed - (time.monotonic() - self._began_s)


def _entry(send: Send, partition: int, offset: int) -> Entry:
    return Entry(send.order_id, send.kind, partition, offset, send.total_cents, send.line_count, send.reason)
