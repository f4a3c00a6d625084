"""The succession of a controller whose process has ended, without waiting for the end of its session.

A broker that is not the controller watches the controller's process. When the process is gone, the broker deletes
`/controller` with a check of `/controller_epoch`; the deletion is an event for all brokers, and the first claim wins.

    /controller names another broker -> its address in /brokers/ids/N -> watch of its process
    gone -> read /controller and /controller_epoch -> M[check /controller_epoch, delete /controller]

Guards
- Only a connection that worked and ended, and a refused dial after it, count (`protocol.process_watch`). A controller
  that is paused or cut off keeps its session.
- A claim is ended at most once: a firewall that rejects connections cannot let one broker end the claims of a healthy
  controller again and again, because the next claim counts only after a connection worked again.
- The multi of a claim creates `/controller` and sets `/controller_epoch`, so one zxid created the one and last changed
  the other. Unless they are equal, the epoch that was read is not the one of this claim, and nothing is deleted.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Host
from barnabas.controller.zookeeper.znode_writes import check, delete
from barnabas.protocol.process_watch import ProcessEvents, ProcessWatch
from barnabas.znodes import paths
from barnabas.znodes.broker_znodes import decode_registration
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import MultiReply, ReadReply, ZnodeStore

_NO_CLAIM: Final = -1


class Succession:
    """The watch of the controller by one broker. A claim is identified by the czxid of `/controller`."""

    def __init__(self, host: Host, listener_name: str, store: ZnodeStore) -> None:
        self._host = host
        self._listener_name = listener_name
        self._store = store
        self._controller_id = -1
        self._claim = _NO_CLAIM
        self._watch: ProcessWatch | None = None
        #: Whether the process of the controller is gone, and the result of the deletion is not known.
        self._is_due = False

    def follow(self, controller_id: int, claim: int) -> None:
        """Watches the process of this controller instead of the previous one."""
        if claim == self._claim:
            return
        self.end()
        self._controller_id, self._claim = controller_id, claim
        self._read_address()

    def end(self) -> None:
        """Ends the watch: there is no controller, it is this broker, or the session has ended."""
        self._claim = _NO_CLAIM
        self._is_due = False
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def resume(self) -> None:
        """Continues after the session is connected again."""
        if self._is_due:
            self._depose()
        elif self._claim != _NO_CLAIM and self._watch is None:
            self._read_address()

    def _read_address(self) -> None:
        claim, path = self._claim, paths.broker(self._controller_id)

        def on_registration(reply: ReadReply) -> None:
            if claim != self._claim or self._watch is not None or reply.znode is None:
                return
            try:
                endpoints = decode_registration(path, reply.znode.data).endpoints
            except ZnodeError as error:
                self._host.faults.report(str(error))
                return
            for endpoint in endpoints:
                if endpoint.name == self._listener_name:
                    events = ProcessEvents(self._depose, lambda: None)
                    self._watch = ProcessWatch(self._host, (endpoint.host, endpoint.port), events)
                    self._watch.start()

        self._store.read(path, on_registration)

    # -- the end of a claim

    def _depose(self) -> None:
        self._is_due = True
        claim = self._claim

        def on_controller(controller: ReadReply) -> None:
            if claim != self._claim or controller.is_lost:
                return
            if controller.stat is None or controller.stat.czxid != claim:
                self._is_due = False
                return
            self._store.read(paths.CONTROLLER_EPOCH, on_epoch)

        def on_epoch(epoch: ReadReply) -> None:
            if claim != self._claim or epoch.is_lost:
                return
            if epoch.stat is None or epoch.stat.mzxid != claim:
                self._is_due = False
                return
            self._host.faults.inform(
                f"The process of controller {self._controller_id} has ended: {paths.CONTROLLER} is deleted"
            )
            fence = check(paths.CONTROLLER_EPOCH, epoch.stat.version)
            self._store.multi([fence, delete(paths.CONTROLLER).part()], on_deleted)

        def on_deleted(reply: MultiReply) -> None:
            """Does nothing more: all brokers see the deletion and claim `/controller`; if it was refused, the watched
            session ends by itself.
            """
            if claim == self._claim and not reply.is_lost:
                self._is_due = False

        self._store.read(paths.CONTROLLER, on_controller)
