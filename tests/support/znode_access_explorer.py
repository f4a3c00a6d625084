"""The reads, watches and writes of a ZooKeeper controller over znodes in memory: a small world of milliseconds a seed.

A reader watches and reads znodes and a writer changes them in units, while other clients change them, too, answers get
lost, sessions end and readers are closed in the middle of reads. A read finds what was there since it began, a watch in
the end what is there now; a unit happened, or is a conflict; and a writer writes nothing after another claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from tests.support.znode_memory import MemoryTree, ZnodeMemory

from barnabas.controller.zookeeper.fenced_writer import Conflict, FencedWriter, Unit
from barnabas.controller.zookeeper.znode_reader import WINDOW, ZnodeReader
from barnabas.controller.zookeeper.znode_writes import ZnodeWrite, create, delete, put, set_data
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.znodes import paths
from barnabas.zookeeper.client.store import MultiReply, ReadReply, ZnodeContent
from barnabas.zookeeper.wire.codes import EventType, OpCode
from barnabas.zookeeper.wire.operations import Part

_STEPS: Final = 120
_KEYS: Final = ("/a", "/b", "/c")
_PLACES: Final = tuple(f"{key}/{index}" for key in _KEYS for index in range(4))


class _Znodes(MemoryTree):
    """Znodes that remember everything that was ever in them."""

    def __init__(self) -> None:
        content = {path: ZnodeContent(b"", 0) for path in (*_KEYS, *_PLACES[::2], paths.CONTROLLER_EPOCH)}
        super().__init__(content)
        #: The contents of each znode with the times of their changes; the first since 0.
        self.history: dict[str, list[tuple[int, ZnodeContent | None]]] = {
            path: [(0, self.content(path))] for path in _PLACES
        }
        #: All writes that took effect: time, path, and content; None for a deletion.
        self.writes: list[tuple[int, str, bytes | None]] = []

    def apply(self, parts: Sequence[Part], session_id: int) -> MultiReply:
        before = self.zxid
        reply = super().apply(parts, session_id)
        if self.zxid > before:
            changes: list[Any] = [part.record for part in parts if part.type != OpCode.CHECK]
            self.writes += [(self.zxid, each.path, getattr(each, "data", None)) for each in changes]
            for path in self.history.keys() & {each.path for each in changes}:
                self.history[path].append((self.zxid, self.content(path)))
        return reply

    def since(self, path: str, zxid: int) -> list[ZnodeContent | None]:
        """Returns what the znode had at this time or later."""
        known = self.history[path]
        return [each for place, (_, each) in enumerate(known) if place + 1 == len(known) or known[place + 1][0] > zxid]


class _Decision:
    """Units that were given to a writer, and when."""

    def __init__(self, units: Sequence[Unit], zxid: int, losses: int) -> None:
        self.units = units
        self.zxid = zxid
        self.losses = losses
        self.is_settled = False


class _Reads:
    """A reader and what it owes."""

    def __init__(self, store: ZnodeMemory, tree: _Znodes) -> None:
        self._tree = tree
        self.reader = ZnodeReader(store, self._on_idle)
        self.is_closed = False
        self.is_idle = True
        self.holds = 0
        #: The reads without an answer.
        self.once: set[object] = set()
        #: The last contents that watches have found.
        self.watched: dict[str, ZnodeContent | None] = {}
        self.names: dict[str, tuple[str, ...]] = {}

    def _on_idle(self) -> None:
        if self.once or self.holds or self.is_closed:
            raise Violation(f"idle with {len(self.once)} reads and {self.holds} holds")
        self.is_idle = True

    def _is_open(self) -> None:
        if self.is_closed:
            raise Violation("a closed reader has found something")

    def read(self, path: str) -> None:
        token, zxid = object(), self._tree.zxid
        self.once.add(token)
        self.is_idle = False

        def found(reply: ReadReply) -> None:
            self._is_open()
            self.once.remove(token)
            if reply.znode not in self._tree.since(path, zxid):
                raise Violation(f"a read of {path} finds {reply.znode}, it has been {self._tree.since(path, zxid)}")

        self.reader.read(path, found)

    def list(self, path: str) -> None:
        token = object()
        self.once.add(token)
        self.is_idle = False

        def found(names: tuple[str, ...]) -> None:
            self._is_open()
            self.once.remove(token)
            if not set(names) <= {place.rpartition("/")[2] for place in _PLACES}:
                raise Violation(f"the names below {path} are {names}")

        self.reader.names(path, found)

    def watch(self, path: str) -> None:
        def found(reply: ReadReply) -> None:
            self._is_open()
            if path not in self.watched:
                raise Violation(f"{path} is found although it is forgotten")
            self.watched[path] = reply.znode

        self.is_idle = False
        self.watched[path] = self.watched.get(path, ZnodeContent(b"never found", -1))
        self.reader.watch_data(path, found)

    def watch_names(self, path: str) -> None:
        def found(names: tuple[str, ...]) -> None:
            self._is_open()
            self.names[path] = names

        self.is_idle = False
        self.names[path] = ("never found",)
        self.reader.watch_children(path, found)

    def forget(self, path: str) -> None:
        self.watched.pop(path, None)
        self.reader.forget(path)
        if self.reader.is_watched(path):
            raise Violation(f"{path} is watched although it is forgotten")

    def hold(self) -> None:
        self.holds += 1
        self.is_idle = False
        self.reader.hold()

    def release(self) -> None:
        self.holds -= 1
        self.reader.release()

    def is_right(self) -> None:
        """Checks a reader without reads under way."""
        if self.once:
            raise Violation(f"{len(self.once)} reads have no answer")
        if not self.is_idle and not self.holds:
            raise Violation("nobody is told that everything is read")
        for path, found in self.watched.items():
            if found != self._tree.content(path):
                raise Violation(f"the watch of {path} knows {found}, it is {self._tree.content(path)}")
        for path, names in self.names.items():
            if names != tuple(sorted(self._tree.names(path))):
                raise Violation(f"the watch of {path} knows {names}, it is {self._tree.names(path)}")


class ZnodeAccessExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"znodes {seed}")
        self._tree = _Znodes()
        self._store = ZnodeMemory(tree=self._tree, listener=self)  # type: ignore[arg-type]
        self._number = 0
        self._losses = 0
        self._begin()

    def _begin(self) -> None:
        """A new claim: a reader and a writer."""
        self._reads = _Reads(self._store, self._tree)
        content = self._tree.content(paths.CONTROLLER_EPOCH)
        assert content is not None
        self._fenced_at: int | None = None
        self._is_told = False
        self._decisions: list[_Decision] = []
        self._own: set[bytes | None] = set()
        #: The writes of each znode, in their order.
        self._given: dict[str, list[ZnodeWrite]] = {path: [] for path in _PLACES}
        #: The versions that the znodes will have after all writes, as the writer knows them; None: no znode.
        self._versions: dict[str, int | None] = {}
        self._read_all()
        self._writer = FencedWriter(self._store, content.version, self._on_fenced)

    def _read_all(self) -> None:
        for path in _PLACES:
            content = self._tree.content(path)
            self._versions[path] = None if content is None else content.version

    def run(self) -> None:
        with second_decisions().judging():
            steps: list[Callable[[], None]] = [self._read, self._read, self._watch, self._watch, self._forget]
            steps += [self._answer] * 5 + [self._write] * 6 + [self._change] * 3 + [self._rest]
            steps += [self._hold, self._lose, self._lose, self._end, self._fence, self._read_again, self._many]
            for _ in range(_STEPS):
                self._random.choice(steps)()
            self._rest()

    # -- the listener of the client

    def session_opened(self, session_id: int) -> None:
        self._begin()

    def disconnected(self) -> None:
        self._writer.suspend()

    def reconnected(self) -> None:
        self._reads.reader.resume()
        self._writer.resume()

    def session_expired(self) -> None:
        self._close()

    def changed(self, path: str, event: EventType) -> None:
        if self._reads.reader.is_watched(path) or path in self._reads.names:
            self._reads.is_idle = False
        self._reads.reader.changed(path)
        if self._random.random() < 0.05:
            # an event without a watch has no effect
            self._reads.reader.changed("/unknown")

    # -- reads

    def _place(self) -> str:
        return self._random.choice(_PLACES)

    def _read(self) -> None:
        if self._random.random() < 0.7:
            self._reads.read(self._place())
        else:
            self._reads.list(self._random.choice(_KEYS))

    def _many(self) -> None:
        """Sometimes more reads than may be under way."""
        if self._random.random() < 0.05:
            before = self._store.waiting
            for index in range(WINDOW + 20):
                self._reads.read(_PLACES[index % len(_PLACES)])
            if self._store.waiting - before > WINDOW:
                raise Violation(f"{self._store.waiting - before} reads are under way")

    def _watch(self) -> None:
        if self._random.random() < 0.7:
            self._reads.watch(self._place())
        else:
            self._reads.watch_names(self._random.choice(_KEYS))

    def _forget(self) -> None:
        self._reads.forget(self._place())

    def _hold(self) -> None:
        if self._reads.holds:
            self._reads.release()
        else:
            self._reads.hold()

    # -- writes

    def _data(self) -> bytes:
        self._number += 1
        return b"%d" % self._number

    def _unit(self) -> Unit:
        key = self._random.choice(_KEYS)
        places = self._random.sample(
            [place for place in _PLACES if place.startswith(key)], self._random.choice((1, 1, 2))
        )
        writes = tuple(self._change_of(place) for place in places)
        for write in writes:
            self._given[write.path].append(write)
        return Unit(key, writes, is_last=self._random.random() < 0.1)

    def _change_of(self, path: str) -> ZnodeWrite:
        known, data = self._versions[path], self._data()
        self._own.add(data)
        if self._random.random() < 0.15:
            self._versions[path] = 0 if known is None else known + 1
            # The znode is put there, whatever is known about it.
            return put(path, data) if known is None or self._random.random() < 0.5 else set_data(path, data)
        if known is None:
            self._versions[path] = 0
            return create(path, data)
        if self._random.random() < 0.2:
            self._versions[path] = None
            return delete(path)
        self._versions[path] = known + 1
        return set_data(path, data, known)

    def _write(self) -> None:
        units = [self._unit() for _ in range(self._random.choice((0, 1, 1, 2, 3)))]
        decision = _Decision(units, self._tree.zxid, self._losses)
        self._decisions.append(decision)
        self._writer.write(units, partial(self._on_settled, self._writer, decision))

    def _on_settled(self, writer: FencedWriter, decision: _Decision, conflicts: Sequence[Conflict]) -> None:
        if decision.is_settled:
            raise Violation("a decision is settled twice")
        if writer is not self._writer or writer.is_closed:
            raise Violation("a closed writer has settled a decision")
        decision.is_settled = True
        left = list(decision.units)
        is_late = self._fenced_at is not None and decision.zxid >= self._fenced_at
        if is_late and any(conflict.found for conflict in conflicts):
            raise Violation("a writer takes another claim for a conflict")
        for conflict in conflicts:
            unit = self._unit_of(conflict, left, decision.zxid)
            left.remove(unit)
            has_lost = self._losses > decision.losses
            if not has_lost and any(
                self._wrote(each.path, each.data, decision.zxid) for each in unit.writes if each.data
            ):
                raise Violation(f"{unit} is a conflict and has happened")
        for unit in left:
            for write in unit.writes:
                if not self._happened(write, decision.zxid):
                    raise Violation(f"{write} is settled and has not happened")

    def _unit_of(self, conflict: Conflict, units: Sequence[Unit], zxid: int) -> Unit:
        """Returns the unit that a conflict is about: it can be what is left of one that has partly happened."""
        wanted = {(write.path, write.data) for write in conflict.unit.writes}
        for unit in units:
            writes = {(write.path, write.data): write for write in unit.writes}
            if wanted <= set(writes) and all(self._happened(writes[each], zxid) for each in set(writes) - wanted):
                return unit
        raise Violation(f"{conflict.unit} is a conflict and was not written")

    def _happened(self, write: ZnodeWrite, zxid: int) -> bool:
        """Returns whether the znode had this content since then, or that of a later write; each is written once."""
        given = self._given[write.path]
        later = given[given.index(write) :] if write.data else [write, *given]
        if any(each.data is None for each in later) and None in self._tree.since(write.path, zxid):
            return True
        return any(self._wrote(each.path, each.data, zxid) for each in later)

    def _wrote(self, path: str, data: bytes | None, zxid: int) -> bool:
        return any(at > zxid and (place, written) == (path, data) for at, place, written in self._tree.writes)

    def _read_again(self) -> None:
        """The owner reads the znodes of conflicts, when it has no decision about them."""
        if all(each.is_settled for each in self._decisions):
            self._read_all()
            for key in _KEYS:
                self._writer.was_read(key)

    def _on_fenced(self) -> None:
        if self._fenced_at is None or self._is_told:
            raise Violation("a writer is fenced without another claim, or twice")
        self._is_told = True

    def _is_still_fenced(self) -> None:
        """Checks that nothing was written after another claim."""
        if self._fenced_at is not None:
            for zxid, path, data in self._tree.writes:
                if zxid > self._fenced_at and data in self._own:
                    raise Violation(f"{data!r} was written to {path} after another claim")

    # -- what others do

    def _change(self) -> None:
        """Another client changes a znode."""
        path = self._place()
        if self._tree.content(path) is not None and self._random.random() < 0.3:
            self._tree.delete(path)
        else:
            self._tree.set(path, b"other %d" % self._random.randrange(1_000_000))

    def _answer(self) -> None:
        self._store.answer(self._random.randrange(self._store.waiting + 1))

    def _lose(self) -> None:
        self._losses += 1
        self._store.disconnect(self._random.randrange(self._store.waiting + 1))
        for _ in range(self._random.randrange(3)):
            self._random.choice((self._change, self._write, self._read))()
        self._store.reconnect()

    def _close(self) -> None:
        self._is_still_fenced()
        self._reads.is_closed = True
        self._reads.reader.close()
        self._writer.close()

    def _end(self) -> None:
        """The controller resigns, or its session ends."""
        if self._random.random() < 0.5:
            return
        self._losses += 1
        if self._random.random() < 0.5:
            self._close()
            self._begin()
        else:
            self._store.expire()
            self._store.open_session()

    def _fence(self) -> None:
        """Another controller claims; this one resigns when it knows."""
        if self._random.random() < 0.3 and self._fenced_at is None:
            self._tree.set(paths.CONTROLLER_EPOCH, b"")
            self._fenced_at = self._tree.zxid

    def _rest(self) -> None:
        """Lets everything be answered."""
        while self._store.waiting:
            self._answer()
        self._is_still_fenced()
        if self._fenced_at is not None:
            if not self._is_told and not all(each.is_settled for each in self._decisions):
                raise Violation("a writer does not know that it is fenced")
            self._close()
            self._begin()
            return
        self._reads.is_right()
        if not all(each.is_settled for each in self._decisions):
            raise Violation("a decision is never settled")
        self._decisions.clear()
