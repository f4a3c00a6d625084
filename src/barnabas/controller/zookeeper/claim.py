"""The claim of `/controller`: one multi creates it and raises `/controller_epoch`, so no two claims share an epoch.

read the epoch -> M[create /controller ephemeral, set /controller_epoch] -> won
                            |  refused, or the answer was lost
                            '-> read both back

/controller       /controller_epoch   means
own id            own epoch           won: only the answer was lost (G32)
own id            another epoch       an old session's znode that is about to end: not won
another id        any                 another broker won
absent            any                 nobody is the controller: claim again, with the next epoch

A claim that ZooKeeper refuses for another reason than a rival, such as an ACL (NO_AUTH), is made again after a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.common.host import Timer, Timers
from barnabas.controller.zookeeper.znode_writes import create, set_data
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import (
    ControllerRegistration,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import MultiReply, ReadReply, ZnodeContent, ZnodeStore
from barnabas.zookeeper.wire.codes import ErrorCode

#: The content of `/controller_epoch` before the first controller of a cluster.
_FIRST_EPOCH: Final = 0
#: The pause after a refusal that no rival explains.
_PAUSE_MS: Final = 10_000
#: The errors that a rival's claim, or its creation of the epoch, explains.
_RIVAL: Final = frozenset({ErrorCode.NODE_EXISTS, ErrorCode.BAD_VERSION})


class Won(NamedTuple):
    """A claim that succeeded. `epoch_version` is the data version of `/controller_epoch`, the fence of all writes."""

    epoch: int
    epoch_version: int


class Beaten(NamedTuple):
    """A failed claim: another broker, or an old session of this one, owns the znode. `problem` describes a read that
    failed.
    """

    controller_id: int
    problem: ZnodeError | None = None


Claimed = Won | Beaten


class Claim:
    """An attempt to become the controller. `done` is called once. After a lost answer, the claim waits for `resume`.
    `report` gets one line for each refusal that no rival explains.
    """

    def __init__(
        self,
        store: ZnodeStore,
        timers: Timers,
        registration: ControllerRegistration,
        done: Callable[[Claimed], None],
        report: Callable[[str], None],
    ) -> None:
        self._store = store
        self._timers = timers
        self._report = report
        self._registration = registration
        self._done = done
        self._wanted = Won(-1, -1)
        self._next_step: Callable[[], None] = self._read_epoch
        self._pause: Timer | None = None
        self._is_closed = False

    def start(self) -> None:
        self._next_step()

    def resume(self) -> None:
        """Continues after a pause, or when the session is connected again."""
        self._end_pause()
        if not self._is_closed:
            self._next_step()

    def close(self) -> None:
        """Stops: later answers have no effect."""
        self._end_pause()
        self._is_closed = True

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _read_epoch(self) -> None:
        self._next_step = self._read_epoch
        self._store.read(paths.CONTROLLER_EPOCH, self._on_epoch)

    def _on_epoch(self, reply: ReadReply) -> None:
        if self._is_closed or reply.is_lost:
            return
        if reply.znode is None:
            first = create(paths.CONTROLLER_EPOCH, encode_controller_epoch(_FIRST_EPOCH))
            self._store.multi([first.part()], self._on_epoch_created)
            return
        try:
            epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, reply.znode.data)
        except ZnodeError as problem:
            self._end(Beaten(-1, problem))
            return
        self._wanted = Won(epoch + 1, reply.znode.version + 1)
        self._next_step = self._read_back
        controller = create(paths.CONTROLLER, encode_controller(self._registration))
        raised = set_data(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch + 1), reply.znode.version)
        parts = [controller._replace(is_ephemeral=True).part(), raised.part()]
        self._store.multi(parts, self._on_claimed)

    def _on_epoch_created(self, reply: MultiReply) -> None:
        """Reads the epoch, whichever broker created it."""
        if not self._is_closed and not reply.is_lost and not self._is_forbidden(reply, paths.CONTROLLER_EPOCH):
            self._read_epoch()

    def _on_claimed(self, reply: MultiReply) -> None:
        if self._is_closed or reply.is_lost:
            return
        if reply.refused_part is None:
            self._end(self._wanted)
        elif not self._is_forbidden(reply, paths.CONTROLLER, paths.CONTROLLER_EPOCH):
            self._read_back()

    def _is_forbidden(self, reply: MultiReply, *written: str) -> bool:
        """Returns whether ZooKeeper refused a write for another reason than a rival. Reports it, and begins again after
        a pause: without one, the claim would repeat itself as fast as ZooKeeper answers.
        """
        part = reply.refused_part
        if part is None or reply.error_of(part) in _RIVAL:
            return False
        error = ErrorCode(reply.error_of(part)).name
        self._report(
            f"no claim of {paths.CONTROLLER}: ZooKeeper refuses to write {written[part]}: {error}; this is tried again "
            f"every {_PAUSE_MS // 1_000} s"
        )
        self._next_step = self._read_epoch
        self._pause = self._timers.call_later(_PAUSE_MS, self.resume)
        return True

    def _read_back(self) -> None:
        self._next_step = self._read_back
        self._store.read(paths.CONTROLLER, self._on_controller)

    def _on_controller(self, controller: ReadReply) -> None:
        if self._is_closed or controller.is_lost:
            return

        def on_epoch(epoch: ReadReply) -> None:
            if self._is_closed or epoch.is_lost:
                return
            found = judge(self._registration.broker_id, self._wanted, controller.znode, epoch.znode)
            if found is None:
                self._read_epoch()
            else:
                self._end(found)

        self._store.read(paths.CONTROLLER_EPOCH, on_epoch)

    def _end(self, found: Claimed) -> None:
        self._is_closed = True
        self._done(found)


def judge(own_id: int, wanted: Won, controller: ZnodeContent | None, epoch: ZnodeContent | None) -> Claimed | None:
    """Returns the outcome of a claim that was refused or whose answer was lost, according to the znodes that were read
    back; None to claim again.
    """
    if controller is None:
        return None
    try:
        controller_id = decode_controller(paths.CONTROLLER, controller.data).broker_id
    except ZnodeError as problem:
        return Beaten(-1, problem)
    is_own_epoch = (
        epoch is not None
        and epoch.version == wanted.epoch_version
        and epoch.data == encode_controller_epoch(wanted.epoch)
    )
    return wanted if controller_id == own_id and is_own_epoch else Beaten(controller_id)
