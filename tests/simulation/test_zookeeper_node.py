"""Our ZooKeeper server and client in the simulated world: kills, power failures, cuts, lost answers.

Each user keeps an ephemeral znode, and appends to a shared znode by compare-and-set. In the end, the shared znode has
every append that was acknowledged, in the order of the versions, and none that was refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from barnabas.simulation.faulty_disk import Loss
from barnabas.simulation.network import Network
from barnabas.simulation.program import Program
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, World
from barnabas.simulation.zookeeper_node import ZookeeperNode
from barnabas.zookeeper.client.hosts import parse_connect_string
from barnabas.zookeeper.client.store import MultiReply, ReadReply
from barnabas.zookeeper.client.zookeeper_client import ClientSettings, ZooKeeperClient
from barnabas.zookeeper.files.file_store import FileStore
from barnabas.zookeeper.wire.codes import CreateFlags, EventType, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import OPEN_ACL, CreateRequest, SetDataRequest

SHARED = "/shared"
FAULTS_S = 30


class User(Program):
    """A client that appends its own numbers to the shared znode, as a JSON list."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        super().__init__(world, network, name)
        self.client: ZooKeeperClient | None = None
        self.sessions: list[int] = []
        self.number = 0
        #: Version of the znode -> what this user was told that it appended with it.
        self.acked: dict[int, str] = {}
        self.refused: list[str] = []
        self.lost: list[str] = []
        self.events: list[tuple[str, EventType]] = []
        #: Every (version, data) that was read.
        self.read: dict[int, bytes] = {}
        self.stopping = False
        self._turn = 0

    def _forget(self) -> None:
        self.client = None

    def _main(self) -> None:
        process = self.machine.process
        assert process is not None
        self.host = self.machine.host_for(process)
        settings = ClientSettings(parse_connect_string("zookeeper:2181"), session_timeout_ms=6_000)
        self.client = ZooKeeperClient(self.host, settings, self)
        self.client.open()

    def _stop(self) -> None: ...

    # -- StoreListener

    def session_opened(self, session_id: int) -> None:
        assert session_id not in self.sessions, "a session is new once"
        self.sessions.append(session_id)
        assert self.client is not None
        own = CreateRequest(f"/{self.name}-{len(self.sessions)}", b"", OPEN_ACL, CreateFlags.EPHEMERAL)
        self.client.multi([Part(OpCode.CREATE, own)], lambda _: None)
        self._begin()

    def disconnected(self) -> None:
        self._turn += 1

    def reconnected(self) -> None:
        self._begin()

    def session_expired(self) -> None:
        self._turn += 1
        assert self.client is not None
        self.client.open()

    def auth_failed(self) -> None:
        raise AssertionError("no credentials were given")

    def changed(self, path: str, event_type: EventType) -> None:
        self.events.append((path, event_type))

    # -- appends, one at a time

    def _begin(self) -> None:
        self._turn += 1
        self._next(self._turn)

    def _next(self, turn: int) -> None:
        if turn == self._turn and not self.stopping:
            assert self.client is not None
            self.client.read(SHARED, lambda reply: self._on_read(turn, reply))

    def _on_read(self, turn: int, reply: ReadReply) -> None:
        if turn != self._turn or reply.is_lost:
            return
        assert self.client is not None
        if reply.znode is None:
            parts = [Part(OpCode.CREATE, CreateRequest(SHARED, b"[]", OPEN_ACL, CreateFlags.PERSISTENT))]
            self.client.multi(parts, lambda _: self._later(turn))
            return
        version = reply.znode.version
        data = reply.znode.data or b""
        assert self.read.setdefault(version, data) == data, "a version has one content"
        assert not self.acked or version >= max(self.acked), "a read after an answer shows at least its change"
        self.number += 1
        mine = f"{self.name}/{self.number}"
        wanted = json.dumps([*json.loads(data), mine]).encode()
        part = Part(OpCode.SET_DATA, SetDataRequest(SHARED, wanted, version))
        self.client.multi([part], lambda answer: self._on_set(turn, version + 1, mine, answer))

    def _on_set(self, turn: int, version: int, mine: str, reply: MultiReply) -> None:
        if reply.is_lost:
            self.lost.append(mine)
        elif reply.refused_part is None:
            self.acked[version] = mine
        else:
            self.refused.append(mine)
        self._later(turn)

    def _later(self, turn: int) -> None:
        assert self.host is not None
        self.host.timers.call_later(20 + self.host.random.below(60), lambda: self._next(turn))


class Scene:
    """A server, three users, and faults drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        network = self.network = Network(self.world)
        self.server = ZookeeperNode(
            self.world, network, "zookeeper", settings={"snapCount": "50", "preAllocSize": "64"}, on_exit=self._ended
        )
        self.users = [User(self.world, network, f"user{number}") for number in (1, 2, 3)]
        self.random = self.world.stream("faults")
        self.is_down = False

    def _ended(self, name: str) -> None:
        self.world.after(SECOND_US, self._start_again, None, "supervise")

    def _start_again(self) -> None:
        if not self.is_down and not self.server.is_running:
            self.server.machine.power_on()
            self.server.start()

    def run(self) -> None:
        self.server.start()
        for user in self.users:
            user.start()
        kinds: list[Callable[[], None]] = [self.kill, self.power, self.pause, self.stop, self.cut, self.reset]
        end_us = FAULTS_S * SECOND_US
        while self.world.now_us < end_us:
            self.world.run_for(self.random.randrange(500, 6000) * MILLISECOND_US)
            self.random.choice(kinds)()
        self.world.run_for(25 * SECOND_US)
        for user in self.users:
            user.stopping = True
        self.world.run_for(2 * SECOND_US)

    # -- faults, which end by themselves

    def kill(self) -> None:
        self.server.kill()

    def stop(self) -> None:
        self.server.stop()

    def power(self) -> None:
        self.is_down = True
        self.server.power_off(self.random.choice(list(Loss)))
        self.world.run_for(self.random.randrange(100, 9000) * MILLISECOND_US)
        self.is_down = False
        self._start_again()

    def pause(self) -> None:
        machine = self.random.choice([self.server, *self.users]).machine
        machine.pause()
        self.world.run_for(self.random.randrange(100, 9000) * MILLISECOND_US)
        machine.resume()

    def cut(self) -> None:
        user = self.random.choice(self.users).name
        ways = self.random.choice(
            [[(user, "zookeeper")], [("zookeeper", user)], [(user, "zookeeper"), ("zookeeper", user)]]
        )
        for way in ways:
            self.network.cut(*way)
        self.world.run_for(self.random.randrange(100, 12_000) * MILLISECOND_US)
        for way in ways:
            self.network.heal(*way)

    def reset(self) -> None:
        self.network.reset_between(self.random.choice(self.users).name, "zookeeper")

    # -- the end

    def check(self) -> None:
        assert not self.world.errors, self.world.errors
        server = self.server.server
        assert server is not None
        tree = server.database.tree
        node = tree.nodes[SHARED]
        appended = json.loads(node.data or b"[]")
        acked = {version: mine for user in self.users for version, mine in user.acked.items()}
        assert len(acked) == sum(len(user.acked) for user in self.users), "two answers for one version"
        for version, mine in acked.items():
            assert appended[version - 1] == mine, (version, mine)
        everything = set(appended)
        assert len(everything) == len(appended)
        assert everything.isdisjoint(mine for user in self.users for mine in user.refused)
        unknown = {mine for user in self.users for mine in user.lost}
        assert everything <= set(acked.values()) | unknown
        assert min(len(user.acked) for user in self.users) > 5, "hardly anything was tried"
        for user in self.users:
            own = [name for name in tree.nodes["/"].children or () if name.startswith(f"{user.name}-")]
            assert own == [f"{user.name}-{len(user.sessions)}"], "an ephemeral znode lives as long as its session"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_what_was_answered_is_there_and_sessions_end_once(seed: int) -> None:
    scene = Scene(seed)
    scene.run()
    scene.check()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 400))
def test_what_was_answered_is_there_on_more_seeds(seed: int) -> None:
    scene = Scene(seed)
    scene.run()
    scene.check()


def test_answers_before_the_sync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake on purpose: the server answers before its log is durable."""
    sync = FileStore.sync

    def answers_first(self: FileStore, done: Callable[[], None]) -> None:
        sync(self, lambda: None)
        done()

    monkeypatch.setattr(FileStore, "sync", answers_first)
    failures = 0
    for seed in range(8):
        scene = Scene(seed)
        try:
            scene.run()
            scene.check()
        except (AssertionError, KeyError):
            failures += 1
    assert failures


def test_a_seed_gives_the_same_run_again() -> None:
    traces = []
    for _ in range(2):
        scene = Scene(5)
        scene.run()
        traces.append((scene.world.trace.hexdigest(), [user.sessions for user in scene.users]))
    assert traces[0] == traces[1]
