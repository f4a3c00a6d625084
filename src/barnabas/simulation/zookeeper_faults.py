"""Faults of the sessions between brokers and the ZooKeeper server of a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import World
from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.txns import TxnEntry


class AnswerLoss:
    """An observer that calls `lose` once, after the first write that `is_wanted`, before its answer has arrived."""

    def __init__(self, world: World, is_wanted: Callable[[TxnEntry], bool], lose: Callable[[], None]) -> None:
        self._world = world
        self._is_wanted = is_wanted
        self._lose = lose
        self._is_done = False

    def recovered(self, database: Database) -> None:
        """Does nothing: nobody waits for an answer of the last process."""

    def appended(self, entry: TxnEntry) -> None:
        """Does nothing: the write can still be lost itself."""

    def applied(self, entry: TxnEntry, database: Database) -> None:
        if not self._is_done and self._is_wanted(entry):
            self._is_done = True
            self._world.at(self._world.now_us, self._lose, None, "lose answer")


def end_session(cluster: Cluster, broker: str) -> None:
    """Ends the ZooKeeper session of a live broker."""
    zookeeper = cluster.zookeeper
    assert zookeeper is not None, "the cluster is in ZooKeeper mode"
    session_id = zookeeper.session_of(broker)
    if session_id:
        zookeeper.end_session(session_id)


def lose_answer(cluster: Cluster, broker: str) -> Callable[[], None]:
    """Breaks the connection of a broker between its next write and the answer. Returns the function that ends this."""
    zookeeper = cluster.zookeeper
    assert zookeeper is not None, "the cluster is in ZooKeeper mode"
    session_id = zookeeper.session_of(broker)

    def is_write(entry: TxnEntry) -> bool:
        return entry.header.session_id == session_id

    def lose() -> None:
        count = cluster.network.reset_between(broker, zookeeper.name)
        cluster.world.note(broker, f"{count} connections with {zookeeper.name} are reset before the answer to a write")

    loss = AnswerLoss(cluster.world, is_write, lose)
    zookeeper.observers.append(loss)
    return lambda: zookeeper.observers.remove(loss)
