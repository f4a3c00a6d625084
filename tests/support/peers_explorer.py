"""The parts of a node that ask others, in virtual time, each checked by a plain model: the active controller, the
registration of a controller, the coordinator of a transaction, and documents of the web.

Others answer late, wrongly or not at all; leaders change, requests are abandoned and parts are closed. Each request is
answered once and in time, nothing is sent after the end, and no timer is left.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.support.controller_world import make_config
from tests.support.document_world import DocumentWorld, TokenWorld, next_event_ms

from barnabas.broker.peers import controller_access
from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.broker.peers.controller_registrar import ControllerRegistrar
from barnabas.broker.peers.partition_verification import TransactionVerifier, Verification
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost
from barnabas.simulation.second_decision_table import second_decisions

_TIMEOUT_MS: Final = 2_000
_RETRY_MS, _RETRY_MS_MAX = 20, 200


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"peers: {what} is {found!r}, it should be {expected!r}")


class PeersExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"peers {seed}")

    def run(self) -> None:
        with second_decisions().judging():
            for world in (AccessWorld, RegistrarWorld, VerifierWorld, DocumentWorld, TokenWorld):
                for _ in range(3):
                    world(self._random).run()


def _timers(host: Any) -> int:
    """Returns the number of timers that are not cancelled."""
    return sum(timer.callback is not None for _, _, timer in host.time._heap)


# -- the active controller


class Exchange:
    """A request that others got, until they answer it."""

    def __init__(self, request: Message, reply: Callable[[Any], None], until_ms: int | None) -> None:
        self.request, self.reply, self.until_ms = request, reply, until_ms


class Asked:
    """A request in the model."""

    def __init__(self, number: int, deadline_ms: int) -> None:
        self.number = number
        self.deadline_ms = deadline_ms
        self.pending: Any = None
        self.answers: list[Any] = []
        self.is_abandoned = False
        #: When it must be sent again; None while others have it.
        self.due_ms: int | None = None
        self.pause_ms = _RETRY_MS
        self.sent = 0
        #: Whether this process's controller has it: then its deadline needs a timer.
        self.is_with_own = False
        self.expected: list[Any] = []


class AccessWorld:
    """Requests to the controller of this process, or of another node."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._host: Any = MemoryHost(seed=1)
        self._leader: tuple[str, int] | None = None
        self._own = SimpleNamespace(is_active=False, handle=self._handle)
        self._access = ControllerAccess(
            self._host,
            ReceiveArea(),
            "node",
            lambda: 1,
            lambda: self._leader,
            _TIMEOUT_MS,
            lambda: self._own,
        )
        self._asked: dict[int, Asked] = {}
        self._exchanges: list[Exchange] = []
        self._channels: list[Any] = []
        self._is_closed = False
        #: The address of the open channel.
        self._current: tuple[str, int] | None = None

    def run(self) -> None:
        with patch.object(controller_access, "Channel", self._open):
            for _ in range(80):
                self._step()
                self._compare()
            self._access.close()
            self._is_closed, self._current = True, None
            self._pass(2 * _TIMEOUT_MS)
            for channel in self._channels:
                check("whether a channel is closed in the end", channel.is_closed, True)
        for asked in self._asked.values():
            check("the number of replies", len(asked.answers), 0 if asked.is_abandoned else 1)
        check("the number of timers left", _timers(self._host), 0)

    # -- the others

    def _open(self, host: Any, area: Any, address: tuple[str, int], *rest: Any) -> Any:
        check("whether a new channel is needed", self._current != address, True)
        self._current = address
        channel = SimpleNamespace(address=address, is_closed=False)

        def send(request: Message, reply: Callable[[Any], None], *, timeout_ms: int) -> None:
            check("whether a closed channel is used", (channel.is_closed, address), (False, self._leader))
            self._arrived(request, reply, self._host.clock.now_ms() + timeout_ms)
            self._exchanges[-1].channel = channel  # type: ignore[attr-defined]

        def close() -> None:
            channel.is_closed = True
            for exchange in [each for each in self._exchanges if getattr(each, "channel", None) is channel]:
                self._answer(exchange, None)

        channel.send, channel.close = send, close
        self._channels.append(channel)
        return channel

    def _handle(self, request: Message, reply: Callable[[Any], None]) -> None:
        self._arrived(request, reply, None)
        exchange, kind = self._exchanges[-1], self._random.random()
        if kind < 0.4:
            self._answer(exchange, self._random.choice((0, 0, ErrorCode.NOT_CONTROLLER)))

    def _arrived(self, request: Any, reply: Callable[[Any], None], until_ms: int | None) -> None:
        asked, now_ms = self._asked[request.broker_id], self._host.clock.now_ms()
        check("whether an abandoned request is sent", (asked.is_abandoned, asked.answers), (False, []))
        check("when a request is sent", now_ms, asked.due_ms)
        if until_ms is not None:
            check("the timeout of a request", until_ms, asked.deadline_ms)
            check("whether the timeout is over", now_ms < until_ms, True)
        asked.is_with_own = until_ms is None
        asked.due_ms = None
        asked.sent += 1
        self._exchanges.append(Exchange(request, reply, until_ms))

    def _answer(self, exchange: Exchange, code: int | None) -> None:
        """Answers with an error code, or with None, which is a lost answer."""
        self._exchanges.remove(exchange)
        request: Any = exchange.request
        asked = self._asked[request.broker_id]
        if asked.is_abandoned or asked.answers or asked.expected:
            pass
        elif code is None or code == ErrorCode.NOT_CONTROLLER:
            self._fails(asked)
            asked.is_with_own = False
        else:
            asked.expected = [code]
        response = None if code is None else BrokerHeartbeatResponse(error_code=code)
        exchange.reply(response)
        if asked.expected:
            check("the reply to a request", asked.answers, asked.expected)

    def _fails(self, asked: Asked) -> None:
        now_ms = self._host.clock.now_ms()
        left_ms = asked.deadline_ms - now_ms
        if left_ms <= 0 or self._is_closed:
            asked.due_ms = now_ms
            asked.expected = []
            return
        asked.due_ms = now_ms + min(asked.pause_ms, left_ms)
        asked.pause_ms = min(2 * asked.pause_ms, _RETRY_MS_MAX)

    # -- steps

    def _step(self) -> None:
        random, kind = self._random, self._random.random()
        open_ = [asked for asked in self._asked.values() if not asked.answers and not asked.is_abandoned]
        if kind < 0.25:
            self._send()
        elif kind < 0.35:
            self._own.is_active = not self._own.is_active
        elif kind < 0.45:
            self._leader = random.choice((None, ("a", 1), ("b", 1)))
            if random.random() < 0.8:
                self._access.on_leader()
                if self._leader not in (None, self._current):
                    self._current = None
        elif kind < 0.55 and open_:
            asked = random.choice(open_)
            asked.is_abandoned = True
            asked.pending.abandon()
        elif kind < 0.8 and self._exchanges:
            self._answer(random.choice(self._exchanges), random.choice((0, 0, 7, ErrorCode.NOT_CONTROLLER, None)))
        else:
            self._pass(random.choice((0, 1, 19, 20, 200, 1_500)))

    def _send(self) -> None:
        number, timeout_ms = len(self._asked), self._random.choice((None, 100, 3_000))
        now_ms = self._host.clock.now_ms()
        asked = Asked(number, now_ms + (_TIMEOUT_MS if timeout_ms is None else timeout_ms))
        self._asked[number] = asked
        asked.due_ms = now_ms
        request = BrokerHeartbeatRequest(broker_id=number)
        asked.pending = self._access.begin(
            request, lambda response: self._replied(asked, response), timeout_ms=timeout_ms
        )
        if not asked.sent and self._leader is None and not self._own.is_active:
            self._fails(asked)

    def _replied(self, asked: Asked, response: Any) -> None:
        check("whether an abandoned request is answered", asked.is_abandoned, False)
        check("earlier replies", asked.answers, [])
        if response is None:
            is_late = self._host.clock.now_ms() >= asked.deadline_ms
            check("whether a request without an answer is over", is_late or self._is_closed, True)
            asked.answers.append(None)
        else:
            check("whether a retriable error is passed on", response.error_code == ErrorCode.NOT_CONTROLLER, False)
            asked.answers.append(response.error_code)
        asked.due_ms = None

    def _pass(self, duration_ms: int) -> None:
        until_ms = self._host.clock.now_ms() + duration_ms
        while self._host.clock.now_ms() <= until_ms:
            now_ms = self._host.clock.now_ms()
            for exchange in list(self._exchanges):
                if exchange.until_ms is not None and exchange.until_ms <= now_ms and exchange in self._exchanges:
                    self._answer(exchange, None)
            self._host.time.run_for(0)
            for asked in self._asked.values():  # Attempts that found no controller.
                if asked.due_ms == now_ms and not asked.answers and not asked.is_abandoned:
                    self._fails(asked)
            self._host.time.run_for(0)
            self._compare()
            self._compare_rest()
            if now_ms == until_ms:
                return
            events = [each.until_ms for each in self._exchanges if each.until_ms is not None]
            self._host.time.run_until(min(until_ms, next_event_ms(self._host), *events))

    def _compare(self) -> None:
        now_ms = self._host.clock.now_ms()
        for asked in self._asked.values():
            if asked.is_abandoned:
                check("the replies to an abandoned request", asked.answers, asked.answers[:0])
            elif not asked.answers and now_ms > asked.deadline_ms:
                raise Violation(f"peers: request {asked.number} is not answered at its deadline {asked.deadline_ms}")

    def _compare_rest(self) -> None:
        """Compares what holds when everything that was due has happened."""
        pending = [each for each in self._asked.values() if not each.answers and not each.is_abandoned]
        waiting = sum(each.due_ms is not None or each.is_with_own for each in pending)
        check("the number of timers", _timers(self._host), waiting)
        open_ = [channel.address for channel in self._channels if not channel.is_closed]
        check("the open channels", open_, [] if self._current is None else [self._current])


# -- the registration of a controller


class RegistrarWorld:
    """A registrar, whose requests are predicted."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._host: Any = MemoryHost(seed=1)
        config = make_config({"process.roles": "controller"})
        self._node_id = config.node_id
        controller: Any = SimpleNamespace(is_active=False, incarnation_id=b"i" * 16, endpoints=())
        self._image = self._draw()
        store: Any = SimpleNamespace(image=self._image, subscribe=self._subscribe)
        self._controller, self._store = controller, store
        self._subscribers: list[Any] = []
        self._replies: list[Callable[[Any], None]] = []
        access: Any = SimpleNamespace(send=self._send)
        self._registrar = ControllerRegistrar(self._host, config, controller, access, store)
        self._is_running = False
        self._pause_ms = 100
        self._count = self._expected = 0
        #: When the next attempt follows a failure; None if there was none.
        self._again_ms: int | None = None

    def _draw(self) -> Any:
        random = self._random
        incarnation = random.choice((b"i" * 16, b"j" * 16, None))
        own = {} if incarnation is None else {self._node_id: SimpleNamespace(incarnation_id=incarnation)}
        return SimpleNamespace(controllers=own, metadata_version=random.choice((20, 20, 0)))

    def _subscribe(self, callback: Any) -> None:
        self._subscribers.append(callback)

    def _send(self, request: Any, reply: Callable[[Any], None]) -> None:
        assert isinstance(request, ControllerRegistrationRequest)
        check("the registered controller", (request.controller_id, request.incarnation_id), (self._node_id, b"i" * 16))
        self._count += 1
        self._replies.append(reply)

    def run(self) -> None:
        self._registrar.start()
        self._is_running = True
        self._expect()
        for _ in range(60):
            self._step()
            check("the number of registrations", self._count, self._expected)
            check("the number of them under way", len(self._replies) <= 1, True)
        self._registrar.stop()
        self._is_running = False
        self._publish()
        self._pass(10_000)
        check("the number of registrations after the end", self._count, self._expected)

    def _expect(self) -> None:
        """Expects a request, unless one is under way or none is needed."""
        own = self._image.controllers.get(self._node_id)
        is_there = own is not None and own.incarnation_id == b"i" * 16
        is_free = len(self._replies) == self._count - self._expected and self._again_ms is None
        if (
            self._is_running
            and is_free
            and not self._controller.is_active
            and self._image.metadata_version
            and not is_there
        ):
            self._expected += 1

    def _publish(self) -> None:
        self._image = self._store.image = self._draw()
        for subscriber in self._subscribers:
            subscriber(None, self._image)
        self._expect()

    def _step(self) -> None:
        random, kind = self._random, self._random.random()
        if kind < 0.4:
            self._publish()
        elif kind < 0.5:
            self._controller.is_active = not self._controller.is_active
        elif kind < 0.8 and self._replies:
            reply = self._replies.pop()
            code = random.choice((ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, None))
            if code == ErrorCode.NONE:
                self._pause_ms = 100
            else:
                self._again_ms = self._host.clock.now_ms() + self._pause_ms
                self._pause_ms = min(2 * self._pause_ms, 5_000)
            reply(None if code is None else ControllerRegistrationResponse(error_code=code))
        else:
            self._pass(random.choice((1, 99, 100, 1_000, 5_000)))

    def _pass(self, duration_ms: int) -> None:
        until_ms = self._host.clock.now_ms() + duration_ms
        if self._again_ms is not None and self._again_ms <= until_ms:
            self._host.time.run_until(self._again_ms - 1)
            check("the number of registrations in a pause", self._count, self._expected)
            self._host.time.run_until(self._again_ms)
            self._again_ms = None
            self._expect()
        self._host.time.run_until(until_ms)


# -- the coordinator of a transaction


class VerifierWorld:
    """A check of a transaction's partitions, with retries while an earlier transaction is being completed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._host: Any = MemoryHost(seed=1)
        pause_ms, most_ms = random.choice(((20, 100), (20, 0), (30, 45)))
        config = make_config(
            {
                "add.partitions.to.txn.retry.backoff.ms": str(pause_ms),
                "add.partitions.to.txn.retry.backoff.max.ms": str(most_ms),
            }
        )
        self._pause_ms, self._most_ms = pause_ms, most_ms
        self._coordinator: int | None = None
        brokers: Any = SimpleNamespace(leader_of=self._leader_of, send=self._send)
        self._verifier = TransactionVerifier(
            self._host, config, brokers, lambda transactional_id: len(transactional_id)
        )
        self._waiting: list[tuple[AddPartitionsToTxnRequest, Callable[[Any], None]]] = []

    def _leader_of(self, partition: TopicPartition) -> int | None:
        check("the partition of the coordinator", partition, TopicPartition("__transaction_state", 2))
        return self._coordinator

    def _send(self, broker_id: int, request: AddPartitionsToTxnRequest, reply: Callable[[Any], None]) -> None:
        check("the coordinator", broker_id, self._coordinator)
        self._waiting.append((request, reply))

    def run(self) -> None:
        for _ in range(4):
            self._verify()
        check("the number of timers left", _timers(self._host), 0)

    def _verify(self) -> None:
        random = self._random
        rows = [TopicPartition(name, index) for name in ("a", "b") for index in (0, 1)]
        rows = random.sample(rows, random.randint(1, 4))
        adds, found = random.random() < 0.7, list[Any]()
        self._coordinator = random.choice((None, -1, 3, 3, 3))
        until_ms = self._host.clock.now_ms() + self._most_ms
        self._verifier.verify(Verification("id", ProducerIdentity(7, 2), rows, adds), found.append)
        while True:
            check("whether it is answered within the call", found, [])
            if self._coordinator is None or self._coordinator < 0:
                self._host.time.run_for(0)
                check("without a coordinator the answer", found, [dict.fromkeys(rows, 15)])
                return
            ((request, reply),) = self._waiting
            self._waiting.clear()
            (asked,) = request.transactions
            names = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
            check("the partitions of the request", sorted(names), sorted(rows))
            shown = (asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.verify_only)
            check("the producer of the request", shown, ("id", 7, 2, not adds))
            self._host.time.run_for(random.choice((0, 5, 30)))
            response, codes = self._response(rows)
            reply(response)
            now_ms = self._host.clock.now_ms()
            if not (adds and 51 in codes.values() and now_ms + self._pause_ms <= until_ms):
                check("the codes of partitions", found, [codes])
                return
            self._coordinator = random.choice((None, 3, 3))
            self._host.time.run_for(self._pause_ms - 1)
            check("requests in a pause", (self._waiting, found), ([], []))
            self._host.time.run_for(1)
            if self._coordinator is None:
                check("without a coordinator later the answer", found, [dict.fromkeys(rows, 15)])
                return

    def _response(self, rows: list[TopicPartition]) -> tuple[Any, dict[TopicPartition, int]]:
        """Returns a response of the coordinator, and the codes that producers get."""
        random, kind = self._random, self._random.random()
        translated = {90: 47, 31: 48}
        if kind < 0.1:
            return None, dict.fromkeys(rows, 13)
        if kind < 0.2:
            code = random.choice((31, 14, 90))
            return AddPartitionsToTxnResponse(error_code=code), dict.fromkeys(rows, translated.get(code, code))
        codes: dict[TopicPartition, int] = {}
        results = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(transactional_id="id")
        for row in rows:
            code = random.choice((0, 0, 51, 51, 90, 49, -1))
            codes[row] = translated.get(code, code)
            if code == -1:
                continue  # The response lacks the row.
            partition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                partition_index=row.partition, partition_error_code=code
            )
            results.topic_results.append(
                AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                    name=row.topic, results_by_partition=[partition]
                )
            )
        other = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(transactional_id="other")
        return AddPartitionsToTxnResponse(results_by_transaction=[other, results]), codes
