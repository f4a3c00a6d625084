"""The files of a ZooKeeper server under kills and power failures: a small world of which a seed takes milliseconds.

Transactions are appended and synced in groups; snapshots are taken; the process stops or is killed, and the power fails
at any moment, also within a sync. What is found at the next start is the tree after one of the transactions, not before
the last one that was synced. What a start has found is not lost by the next failure, since clients can have read it.
"""

from __future__ import annotations

from random import Random

from tests.support.power_disk import PowerDisk
from tests.support.zookeeper_files import FOLDER, FilesWorld

from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.zookeeper.files.file_store import FileSettings
from barnabas.zookeeper.files.txn_recovery import DamagedFiles

_STEPS = 60
_State = list[tuple[str, bytes | None, int, int]]


class ZookeeperFilesExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"zookeeper files {seed}")
        # The tree here is ahead of the log, so that no snapshot may be taken of it between two syncs.
        settings = FileSettings(preallocated_bytes=random.choice((64, 4_096)), snapshot_after_txns=1_000_000)
        self._disk = PowerDisk()
        self._disk.make_dirs(FOLDER)
        self._world = FilesWorld(self._disk, settings, seed)
        #: The tree after each transaction.
        self._states: dict[int, _State] = {0: self._world.state()}
        #: The last transaction that no failure may lose.
        self._sure = 0

    def run(self) -> None:
        with second_decisions().judging():
            steps = [self._create] * 4 + [self._set] * 4 + [self._delete, self._sync, self._sync, self._pass_time]
            steps += [self._snapshot, self._stop, self._kill, self._fail]
            for _ in range(_STEPS):
                self._random.choice(steps)()
            self._stop()
            self._check("the state after a clean stop", self._world.state(), self._states[max(self._states)])

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"zookeeper files: {what} is {found!r}, it should be {expected!r}")

    # -- transactions

    def _names(self) -> list[str]:
        return sorted(path for path in self._world.database.tree.nodes if path.startswith("/n"))

    def _create(self) -> None:
        new = [f"/n{number}" for number in range(9) if f"/n{number}" not in self._world.database.tree.nodes]
        if new:
            self._world.create(self._random.choice(new), b"x" * self._random.choice((0, 3, 200)))
            self._note()

    def _set(self) -> None:
        if names := self._names():
            self._world.set(self._random.choice(names), self._random.randbytes(self._random.choice((0, 9, 90))))
            self._note()

    def _delete(self) -> None:
        if names := self._names():
            self._world.delete(self._random.choice(names))
            self._note()

    def _note(self) -> None:
        self._states[self._world.database.last_zxid] = self._world.state()

    def _sync(self) -> None:
        self._world.sync()
        self._sure = self._world.database.last_zxid

    def _pass_time(self) -> None:
        self._world.host.time.run_for(self._random.choice((1, 50, 1_000)))

    def _snapshot(self) -> None:
        """Takes a snapshot, which the end of the process can interrupt."""
        self._sync()
        self._world.store.take_snapshot()
        if self._random.random() < 0.5:
            self._world.host.time.run_for(self._random.choice((0, 1, 3)))
            self._random.choice((self._kill, self._fail))()
        else:
            self._world.host.time.run_for(500)

    # -- ends of the process

    def _stop(self) -> None:
        """Stops the server, which syncs its log, and starts it again."""
        self._world.stop()
        self._sure = self._world.database.last_zxid
        self._start(self._disk)

    def _kill(self) -> None:
        """Kills the process: what it wrote is there."""
        self._begin_sync()
        self._start(self._disk)

    def _fail(self) -> None:
        """The power fails: of what was not synced, any part can be there."""
        self._begin_sync()
        found = self._disk.after_crash(self._random.choice(list(Fate)), self._random)
        self._disk = PowerDisk()
        self._disk.make_dirs(FOLDER)
        for name in found.list_dir(FOLDER) if found.is_dir(FOLDER) else ():
            self._disk.write(f"{FOLDER}/{name}", found.read(f"{FOLDER}/{name}"), sync=True)
        self._disk.sync_dir(FOLDER)
        self._start(self._disk)

    def _begin_sync(self) -> None:
        """Writes what is buffered, half the time, before the process ends."""
        if self._random.random() < 0.5:
            self._world.store.sync(lambda: None)

    def _start(self, disk: MemoryDisk) -> None:
        self._world.disk = disk
        try:
            self._world.start()
        except DamagedFiles as damaged:
            raise Violation(f"the server does not start: {damaged}") from damaged
        zxid = self._world.database.last_zxid
        if not self._sure <= zxid <= max(self._states):
            raise Violation(f"a start finds transactions up to {zxid}, those up to {self._sure} were synced")
        self._check(f"the tree after transaction {zxid}", self._world.state(), self._states[zxid])
        self._states = {known: state for known, state in self._states.items() if known <= zxid}
        self._sure = zxid
