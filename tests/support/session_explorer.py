"""Registrations of brokers, and their claims to be the controller, over znodes in memory: a seed takes milliseconds.

Answers are lost with and without their writes, sessions end, processes are replaced, and `/controller` is deleted by
hand. As with ZOOKEEPER-2985, a client can be told that its session has ended while its znodes are still there. No two
claims win one epoch; in the end each broker is registered in its session, and one of them is the controller.
"""

from __future__ import annotations

from random import Random

from tests.support.znode_memory import MemoryTree
from tests.support.zookeeper_broker import PROPERTIES, MemoryClient

from barnabas.broker.zookeeper.registration import Registrar
from barnabas.broker.zookeeper.store_steps import StoreSteps
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.controller.zookeeper.claim import Beaten, Claim, Claimed, Won
from barnabas.metadata.registrations import Endpoint
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import ControllerRegistration, decode_controller, encode_controller_epoch
from barnabas.zookeeper.wire.codes import EventType

_STEPS = 300
_BROKERS = (1, 2, 3)
_SESSION_MS = 6_000


class _Process:
    """A process of a broker: it registers in each of its sessions, and then claims `/controller`."""

    def __init__(self, world: SessionExplorer, broker_id: int) -> None:
        self._world = world
        self.broker_id = broker_id
        self._host = world.host
        properties = {"broker.id": str(broker_id), "zookeeper.session.timeout.ms": str(_SESSION_MS)}
        config = BrokerConfig.from_properties({**PROPERTIES, **properties})
        self.store = MemoryClient(tree=world.tree, listener=self, is_open=False)
        self._registrar = Registrar(self._host, config, self.store, [Endpoint("PLAINTEXT", "h", 9000 + broker_id, 0)])
        self._steps: StoreSteps | None = None
        self._claim: Claim | None = None
        #: The broker epoch of this session; None before it is known.
        self.epoch: int | None = None
        self.won: Won | None = None
        self.store.open_session()

    def _registered(self, found: int | ConfigError) -> None:
        if isinstance(found, ConfigError):
            raise Violation(f"broker {self.broker_id} is refused: {found}")
        self.epoch = found
        stat = self._world.tree.stat(paths.broker(self.broker_id))
        if stat is not None and stat.ephemeral_owner == self.store.session_id and stat.czxid != found:
            raise Violation(f"broker {self.broker_id} has epoch {found}, its znode {stat.czxid}")
        self.claim()

    def claim(self) -> None:
        """Claims `/controller`, unless this process does, or is the controller as far as it knows."""
        if self._claim is None and self.won is None and self.epoch is not None and self.store.is_connected:
            registration = ControllerRegistration(self.broker_id, self._host.clock.wall_ms())
            self._claim = Claim(self.store, self._host.timers, registration, self._on_claimed, self._world.refused)
            self._claim.start()

    def _on_claimed(self, claimed: Claimed) -> None:
        self._claim = None
        if isinstance(claimed, Won):
            self.won = claimed
            self._world.note_won(self.broker_id, claimed)
        elif isinstance(claimed, Beaten) and claimed.problem is not None:
            raise Violation(f"broker {self.broker_id} cannot read a znode: {claimed.problem}")

    def end(self) -> None:
        """Ends the process; its session remains until its timeout."""
        self._end_work()
        self._registrar.close()
        self.store.listener = None
        self._world.tree.clients.remove(self.store)

    def _end_work(self) -> None:
        if self._steps is not None:
            self._steps.close()
        if self._claim is not None:
            self._claim.close()
        self._steps = self._claim = self.epoch = self.won = None

    # -- client.store.StoreListener

    def session_opened(self, session_id: int) -> None:
        self._steps = StoreSteps(self._registrar.register(), self._registered).start()

    def disconnected(self) -> None:
        self._registrar.disconnected()

    def reconnected(self) -> None:
        self._registrar.reconnected()
        if self._steps is not None:
            self._steps.resume()
        if self._claim is not None:
            self._claim.resume()

    def session_expired(self) -> None:
        self._end_work()

    def auth_failed(self) -> None:
        raise Violation("no credentials were given")

    def changed(self, path: str, event_type: EventType) -> None:
        self._registrar.changed(path, event_type)
        if path == paths.CONTROLLER and event_type is EventType.NODE_DELETED:
            self.won = None


class SessionExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"sessions {seed}")
        self.host = MemoryHost(seed)
        self.tree = MemoryTree()
        self._winners: dict[int, int] = {}
        #: The sessions that have no client any more, and still have znodes.
        self._left: list[int] = []
        self._processes = {broker_id: _Process(self, broker_id) for broker_id in _BROKERS}

    def refused(self, line: str) -> None:
        raise Violation(f"a claim is refused without a rival: {line}")

    def note_won(self, broker_id: int, won: Won) -> None:
        if won.epoch in self._winners:
            raise Violation(f"brokers {self._winners[won.epoch]} and {broker_id} have both won epoch {won.epoch}")
        self._winners[won.epoch] = broker_id
        current = self.tree.content(paths.CONTROLLER_EPOCH)
        if current is None or int(current.data or b"0") < won.epoch:
            raise Violation(f"broker {broker_id} has won epoch {won.epoch}, the znode is {current}")

    def run(self) -> None:
        with second_decisions().judging():
            steps = [self._answer] * 20 + [self._claim] * 4
            steps += [
                self._disconnect,
                self._lose,
                self._lose,
                self._lose,
                self._reconnect,
                self._reconnect,
                self._expire,
                self._expire_early,
            ]
            steps += [self._restart, self._depose, self._end_left, self._pass_time]
            for _ in range(_STEPS):
                self._random.choice(steps)()
            self._calm()

    def _any(self) -> _Process:
        return self._random.choice(list(self._processes.values()))

    def _answer(self) -> None:
        store = self._any().store
        if store.is_connected:
            store.answer(min(store.waiting, self._random.choice((1, 3, 99))))

    def _claim(self) -> None:
        self._any().claim()

    def _disconnect(self) -> None:
        store = self._any().store
        if store.is_connected:
            store.disconnect(self._random.randint(0, store.waiting))

    def _lose(self) -> None:
        """The connection breaks for a moment."""
        store = self._any().store
        if store.is_connected:
            store.disconnect(self._random.randint(0, store.waiting))
            store.reconnect()

    def _reconnect(self) -> None:
        store = self._any().store
        if not store.is_connected:
            store.reconnect()

    def _expire(self) -> None:
        store = self._any().store
        store.expire()
        store.open_session()

    def _expire_early(self) -> None:
        """The client is told that its session has ended, and the znodes of the session stay for a while."""
        store = self._any().store
        self._left.append(store.session_id)
        store.expire(leaves_znodes=True)
        store.open_session()

    def _restart(self) -> None:
        process = self._any()
        self._left.append(process.store.session_id)
        process.end()
        self._processes[process.broker_id] = _Process(self, process.broker_id)

    def _depose(self) -> None:
        if self.tree.stat(paths.CONTROLLER) is not None:
            self.tree.delete(paths.CONTROLLER)
            for process in self._processes.values():
                process.won = None

    def _end_left(self) -> None:
        if self._left:
            self.tree.end_session(self._left.pop(self._random.randrange(len(self._left))))

    def _pass_time(self) -> None:
        duration_ms = self._random.choice((1, 100, 1_000, _SESSION_MS))
        if duration_ms >= 1_000:
            # No session outlives its timeout.
            while self._left:
                self._end_left()
        self.host.time.run_for(duration_ms)

    def _calm(self) -> None:
        """Lets everything work again: all brokers are registered, and one is the controller."""
        while self._left:
            self._end_left()
        for _ in range(3):
            for process in self._processes.values():
                if not process.store.is_connected:
                    process.store.reconnect()
                process.store.answer_all()
            self.host.time.run_for(100)
        if self.tree.stat(paths.CONTROLLER) is None:
            for process in self._processes.values():
                process.won = None
                process.claim()
        for process in self._processes.values():
            process.store.answer_all()
        self._judge()

    def _judge(self) -> None:
        for process in self._processes.values():
            stat = self.tree.stat(paths.broker(process.broker_id))
            found = None if stat is None else (stat.ephemeral_owner, stat.czxid)
            if found != (process.store.session_id, process.epoch):
                expected = f"it should be {process.store.session_id}, {process.epoch}"
                raise Violation(f"the session and epoch of broker {process.broker_id} are {found}, {expected}")
        controller, epoch = self.tree.content(paths.CONTROLLER), self.tree.content(paths.CONTROLLER_EPOCH)
        if controller is None or epoch is None:
            raise Violation("nobody is the controller although everything works")
        winner = decode_controller(paths.CONTROLLER, controller.data).broker_id
        won = self._processes[winner].won
        if won is None or (epoch.data, epoch.version) != (encode_controller_epoch(won.epoch), won.epoch_version):
            raise Violation(f"broker {winner} is the controller with {epoch}, and knows {won}")
