"""Histories that a correct cluster can produce: a model of partition logs, with producers, transactions and consumers.

Everything that Kafka allows and that could be mistaken for a fault is drawn: unknown outcomes that were written or not,
transactions that interleave and abort, markers that take offsets, readers of uncommitted records, consumers that begin
again, records and topics that are deleted.
"""

from __future__ import annotations

from random import Random
from typing import Any

Line = dict[str, Any]
TOPIC = "orders"


class _Log:
    """A partition: [offset, value, transaction or None]. A marker takes an offset and has no record."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str, str | None]] = []
        self.end = 0
        self.begin = 0

    def append(self, value: str, transaction: str | None) -> int:
        self.records.append((self.end, value, transaction))
        self.end += 1
        return self.end - 1


class LegalHistory:
    def __init__(self, random: Random, *, steps: int = 120, partitions: int = 2, deletions: bool = True) -> None:
        self.lines: list[Line] = []
        self._random = random
        self._partitions = partitions
        self._logs = [_Log() for _ in range(partitions)]
        self._numbers = 0
        self._pending: dict[str, list[tuple[str, int, str | None]]] = {}
        self._running: dict[str, str] = {}
        #: The partitions that each transaction wrote to, then whether it was committed.
        self._wrote: dict[str, set[int]] = {}
        self._ended: dict[str, bool] = {}
        self._positions: dict[str, list[int]] = {}
        actions = [self._send, self._send, self._answer, self._transact, self._poll, self._poll, self._reassign]
        if deletions:
            actions += [self._delete_records, self._recreate]
        for _ in range(steps):
            random.choice(actions)()
        self._finish()

    def add(self, process: str, type_: str, f: str, **fields: Any) -> None:
        self.lines.append({"process": process, "type": type_, "f": f, **fields, "time": len(self.lines)})

    def _send(self) -> None:
        process = self._random.choice(["p1", "p2", "t1", "t2"])
        transaction = self._running.get(process)
        if process.startswith("t") and transaction is None:
            return
        self._numbers += 1
        value, partition = f"v{self._numbers}", self._random.randrange(self._partitions)
        told = {"partition": partition} if self._random.random() < 0.5 else {}
        self.add(process, "invoke", "send", topic=TOPIC, value=value, **told)
        self._pending.setdefault(process, []).append((value, partition, transaction))

    def _answer(self) -> None:
        """Writes all pending records of one producer in their order, or fails them."""
        waiting = [process for process, pending in self._pending.items() if pending]
        if waiting:
            self._settle(self._random.choice(waiting))

    def _settle(self, process: str, only: str = "") -> None:
        for value, partition, transaction in self._pending.pop(process, ()):
            end = only or self._random.choices(["ok", "fail", "info"], [8, 1, 1])[0]
            written = end == "ok" or (end == "info" and self._random.random() < 0.5)
            fields: Line = {"topic": TOPIC, "value": value, "partition": partition}
            if written:
                offset = self._logs[partition].append(value, transaction)
                if transaction is not None:
                    self._wrote[transaction].add(partition)
                if end == "ok":
                    fields["offset"] = offset if self._random.random() < 0.9 else -1
            self.add(process, end, "send", **fields)

    def _transact(self) -> None:
        process = self._random.choice(["t1", "t2"])
        transaction = self._running.get(process)
        if transaction is None:
            self._numbers += 1
            self._running[process] = transaction = f"{process}.{self._numbers}"
            self._wrote[transaction] = set()
            self.add(process, "invoke", "begin")
            self.add(process, "ok", "begin")
            return
        self._settle(process, only="ok")
        del self._running[process]
        outcome = self._random.choice(["commit", "commit", "abort"])
        self.add(process, "invoke", outcome)
        known = self._random.random() < 0.8
        committed = outcome == "commit" and (known or self._random.random() < 0.5)
        self._ended[transaction] = committed
        for partition in self._wrote[transaction]:
            self._logs[partition].end += 1
        if self._random.random() < 0.5:
            self._poll()
        self.add(process, "ok" if known else "info", outcome)

    def _poll(self) -> None:
        self._read(self._random.choice(["c1", "c2", "u1"]), whole=False)

    def _read(self, process: str, *, whole: bool) -> None:
        committed_only = not process.startswith("u")
        positions = self._positions.setdefault(process, [0] * self._partitions)
        found: dict[str, list[list[Any]]] = {}
        for partition, log in enumerate(self._logs):
            if not whole and self._random.random() < 0.3:
                continue
            given: list[list[Any]] = []
            for offset, value, transaction in log.records:
                if committed_only and transaction is not None and transaction not in self._ended:
                    break
                hidden = committed_only and transaction is not None and not self._ended[transaction]
                if offset >= max(positions[partition], log.begin) and not hidden:
                    given.append([offset, value])
            if not whole:
                given = given[: self._random.randrange(1, 6)]
            if given:
                found[f"{TOPIC}-{partition}"] = given
                positions[partition] = given[-1][0] + 1
        isolation = "read_committed" if committed_only else "read_uncommitted"
        self.add(process, "invoke", "poll", isolation=isolation)
        self.add(process, "ok", "poll", records=found)

    def _reassign(self) -> None:
        if self._random.random() < 0.3:
            process = self._random.choice(["c1", "c2", "u1"])
            self.add(process, "ok", self._random.choice(["assign", "subscribe", "seek", "rebalance"]))
            self._positions.pop(process, None)

    def _delete_records(self) -> None:
        if self._random.random() < 0.2:
            partition = self._random.randrange(self._partitions)
            log = self._logs[partition]
            log.begin = max(log.begin, self._random.randrange(log.end + 1))
            self.add("admin", "ok", "delete_records", topic=TOPIC, partition=partition, before=log.begin)

    def _recreate(self) -> None:
        """Recreates the topic. Pending records reach the old topic or the new one, or fail."""
        if self._random.random() > 0.1 or self._running:
            return
        self.add("admin", "invoke", "delete_topic", topic=TOPIC)
        if self._random.random() < 0.5:
            self._send()
        self.add("admin", "ok", "delete_topic", topic=TOPIC)
        self._logs = [_Log() for _ in range(self._partitions)]
        self._positions.clear()
        if self._random.random() < 0.5:
            self._answer()
        self.add("admin", "ok", "create_topic", topic=TOPIC)

    def _finish(self) -> None:
        for process in list(self._running):
            self._settle(process, only="ok")
            transaction = self._running.pop(process)
            self._ended[transaction] = True
            self.add(process, "invoke", "commit")
            self.add(process, "ok", "commit")
        for process in list(self._pending):
            self._settle(process)
        self._read("audit", whole=True)
        self.add("audit", "ok", "drained", partitions=[f"{TOPIC}-{index}" for index in range(self._partitions)])
