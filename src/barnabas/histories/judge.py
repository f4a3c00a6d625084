"""The judge: takes the operations of a history one by one, and judges at the end.

The lines are in the order of time; only rules about transactions and deleted topics depend on that. Topic and value
identify a record, and each value is sent once, so a completion identifies its send by them. For the rules of
transactions, the judge records the sends of each transaction, and the stage of the transaction at each read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from barnabas.histories import findings
from barnabas.histories.anomalies import Finding, Kind, Verdict
from barnabas.histories.known import (
    Client,
    Gap,
    KnownTopic,
    Outcome,
    PartitionLog,
    Position,
    Read,
    Stage,
    Transaction,
    Write,
)
from barnabas.histories.operations import Operation, Process, Value, parse, plain

_ENDS: Final = {"ok": Outcome.ACKED, "fail": Outcome.FAILED, "info": Outcome.UNKNOWN}


class Judge:
    """Judges a history: `take` every operation, then get the `verdict`. An operation with an unknown `f` is counted and
    skipped.
    """

    def __init__(self) -> None:
        self.topics: dict[str, KnownTopic] = {}
        self.clients: dict[Process, Client] = {}
        self.transactions: list[Transaction] = []
        self.gaps: list[Gap] = []
        self._found: list[Finding] = []
        self._places: dict[str, tuple[KnownTopic, int]] = {}
        self._counts = {"operations": 0, "sent": 0, "acked": 0, "failed": 0, "unknown": 0, "polls": 0, "read": 0}
        self._counts |= {"transactions": 0, "ignored": 0}
        self._takers: dict[str, Callable[[Operation], None]] = {
            "send": self._send,
            "poll": self._poll,
            "assign": self._assign,
            "subscribe": self._assign,
            "rebalance": self._assign,
            "seek": self._assign,
            "begin": self._begin,
            "commit": self._commit,
            "abort": self._abort,
            "delete_topic": self._delete_topic,
            "create_topic": self._create_topic,
            "delete_records": self._delete_records,
            "drained": self._drained,
        }

    def take(self, operation: Operation) -> None:
        """Processes an operation. Raises `Malformed`."""
        self._counts["operations"] += 1
        taker = self._takers.get(operation.f)
        if taker is None:
            self._counts["ignored"] += 1
        else:
            taker(operation)

    def verdict(self) -> Verdict:
        topics = self.topics.values()
        logs = [log for topic in topics for log in topic.logs.values()]
        counts = {**self._counts, "partitions": len(logs), "records": sum(len(log.at) for log in logs)}
        verdict = Verdict(counts)
        for finding in (
            *self._found,
            *findings.of_logs(logs),
            *findings.of_writes(topics),
            *findings.of_transactions(self.transactions),
            *findings.of_gaps(self.gaps),
        ):
            verdict.add(finding)
        verdict.findings.sort(key=lambda finding: (finding.note, list(Kind).index(finding.kind)))
        return verdict

    # Producers

    def _send(self, operation: Operation) -> None:
        topic = self._topic(operation.text("topic"))
        value = operation.value()
        if operation.type == "invoke":
            self._sent(operation, topic, value)
            return
        write = topic.writes.get(value)
        if write is None or write.outcome is Outcome.UNSENT:
            write = self._sent(operation, topic, value)
        elif write.outcome is not Outcome.SENT:
            raise operation.malformed(f"{value!r} was already completed in line {write.end_line}")
        write.outcome = _ENDS[operation.type]
        write.end_line = operation.line
        self._counts[write.outcome.name.lower()] += 1
        partition, offset = operation.number("partition"), operation.number("offset")
        if partition is None or operation.type != "ok" or write.vague:
            return
        if offset is not None:
            topic.put(write, partition, offset, operation.line)
        elif write.log is None:
            write.log = topic.log(partition, write.era)

    def _sent(self, operation: Operation, topic: KnownTopic, value: Value) -> Write:
        write = topic.writes.get(value)
        if write is None:
            write = topic.writes[value] = Write(value, topic.era)
            write.vague = topic.changing
        elif write.outcome is not Outcome.UNSENT:
            raise operation.malformed(
                f"{value!r} was already sent in line {write.line}: values must be unique in a topic"
            )
        else:
            topic.unordered = True
        self._counts["sent"] += 1
        client = self._client(operation.process)
        write.process = client.name
        write.outcome = Outcome.SENT
        write.line = operation.line
        write.idempotent = operation.flag("idempotent", True)
        write.transaction = client.transaction
        partition = operation.number("partition")
        if partition is not None and write.log is None:
            write.log = topic.log(partition, write.era)
        return write

    def _begin(self, operation: Operation) -> None:
        if operation.type == "ok":
            self._counts["transactions"] += 1
            client = self._client(operation.process)
            client.transaction = Transaction(operation.line)
            self.transactions.append(client.transaction)

    def _commit(self, operation: Operation) -> None:
        transaction = self._running(operation)
        if operation.type == "invoke":
            transaction.stage = Stage.COMMITTING
        elif operation.type == "fail":
            transaction.stage = Stage.ABORTED
        elif operation.type == "ok":
            transaction.stage = Stage.COMMITTED
        self._end(operation)

    def _abort(self, operation: Operation) -> None:
        """Aborts the transaction. A transaction without a commit request is aborted, whatever the response is."""
        transaction = self._running(operation)
        if transaction.stage is Stage.OPEN:
            transaction.stage = Stage.ABORTED
        self._end(operation)

    def _running(self, operation: Operation) -> Transaction:
        transaction = self._client(operation.process).transaction
        if transaction is None:
            raise operation.malformed(f"process {operation.process!r} has no transaction")
        return transaction

    def _end(self, operation: Operation) -> None:
        """Ends a transaction. A commit that failed must still be aborted."""
        if operation.type == "ok":
            self._client(operation.process).transaction = None

    # Consumers

    def _assign(self, operation: Operation) -> None:
        """Forgets the positions, which are unknown afterwards. `seek` and `rebalance` can name their "partitions"."""
        client = self._client(operation.process)
        self._isolate(operation, client)
        if operation.type == "fail":
            return
        places = operation.places("partitions") if operation.f in ("seek", "rebalance") else []
        if not places:
            client.positions.clear()
        for name, partition in places:
            for log in [log for log in client.positions if (log.topic, log.partition) == (name, partition)]:
                del client.positions[log]

    def _poll(self, operation: Operation) -> None:
        client = self._client(operation.process)
        self._isolate(operation, client)
        if operation.type == "invoke":
            return
        if operation.body.get("records") is None and operation.type != "ok":
            return
        self._counts["polls"] += 1
        moved = operation.flag("rebalanced", False)
        if moved:
            client.positions.clear()
        for place, records in operation.records().items():
            found = self._places.get(place)
            if found is None:
                name, partition = operation.parse_place(place)
                found = self._places[place] = (self._topic(name), partition)
            self._read(operation, client, *found, records, moved)

    def _read(
        self, operation: Operation, client: Client, topic: KnownTopic, partition: int, records: list[Any], moved: bool
    ) -> None:
        line, writes = operation.line, topic.writes
        before: Position | None = None
        inner = False
        for offset, value in _pairs(operation, records):
            write = writes.get(value)
            if write is None:
                write = writes[value] = Write(value, topic.era)
            elif write.vague:
                continue
            log = topic.put(write, partition, offset, line)
            if not write.read_line:
                write.read_line = line
            if offset > log.high:
                log.high, log.high_line = offset, line
            if write.transaction is not None and client.committed_only:
                _note_read(write.transaction, Read(write, log, offset, line, write.transaction.stage is Stage.OPEN))
            if before is None:
                before = client.positions.get(log)
            if before is not None and not moved and offset != before.offset + 1:
                self._jump(client, log, before, Position(offset, line), inner)
            before = client.positions[log] = Position(offset, line)
            inner = True
        self._counts["read"] += len(records)

    def _jump(self, client: Client, log: PartitionLog, before: Position, after: Position, inner: bool) -> None:
        if after.offset > before.offset:
            self.gaps.append(Gap(client, log, before, after, inner))
        else:
            self._found.append(findings.went_back(client, log, before, after, inner))

    def _isolate(self, operation: Operation, client: Client) -> None:
        isolation = operation.isolation()
        if isolation is not None:
            client.committed_only = isolation == "read_committed"

    # Topics

    def _delete_topic(self, operation: Operation) -> None:
        topic = self._topic(operation.text("topic"))
        if operation.type != "fail" and not topic.changing:
            topic.begin_deletion()

    def _create_topic(self, operation: Operation) -> None:
        if operation.type == "ok":
            self._topic(operation.text("topic")).changing = False

    def _delete_records(self, operation: Operation) -> None:
        name, partition = operation.place()
        before = operation.number("before")
        if before is None:
            raise operation.malformed('"before" is missing: the first offset that is kept')
        if operation.type != "fail":
            topic = self._topic(name)
            log = topic.log(partition, topic.era)
            log.begin = max(log.begin, before)

    def _drained(self, operation: Operation) -> None:
        if operation.type == "ok":
            for name, partition in operation.places("partitions"):
                topic = self._topic(name)
                topic.log(partition, topic.era).drained = True

    def _topic(self, name: str) -> KnownTopic:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = KnownTopic(name)
        return found

    def _client(self, process: Process) -> Client:
        found = self.clients.get(process)
        if found is None:
            found = self.clients[process] = Client(process)
        return found


def judge(lines: Iterable[str | bytes]) -> Verdict:
    """Judges a whole history as lines of JSON; blank lines are skipped. Raises `Malformed`."""
    judge = Judge()
    for number, line in enumerate(lines, 1):
        if not line.isspace() and line:
            judge.take(parse(number, line))
    return judge.verdict()


def _pairs(operation: Operation, records: object) -> Iterable[tuple[int, Value]]:
    if not isinstance(records, list):
        raise operation.malformed("records of a partition must be a list of [offset, value]")
    for record in records:
        if type(record) is not list or len(record) != 2 or type(record[0]) is not int or record[0] < 0:
            raise operation.malformed(f"{record!r} is not [offset, value]")
        if record[1] is None:
            raise operation.malformed(f"no value at offset {record[0]}: values identify records")
        yield record[0], plain(record[1])


def _note_read(transaction: Transaction, read: Read) -> None:
    transaction.read = True
    if transaction.stage is not Stage.COMMITTED:
        transaction.reads.append(read)
