"""The processes of the registered brokers, as the active controller watches them: a broker whose process has ended
keeps its znode until its session ends.

A registration is identified by the broker's id and its czxid, the broker epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.common.host import Host
from barnabas.metadata.registrations import BrokerImage
from barnabas.protocol.process_watch import ProcessEvents, ProcessWatch


class ProcessListener(NamedTuple):
    """The callbacks about a registration, with the broker's id and epoch."""

    #: The callback for a process that has ended.
    on_gone: Callable[[int, int], None]
    #: The callback for a process that was gone and responds: something else had refused the connections.
    on_answer: Callable[[int, int], None]


class _Watched(NamedTuple):
    epoch: int
    address: tuple[str, int]
    watch: ProcessWatch


class BrokerProcesses:
    """Watches the process of each registration, except that of this controller's own broker."""

    def __init__(self, host: Host, own_id: int, listener_name: str, listener: ProcessListener) -> None:
        self._host = host
        self._own_id = own_id
        self._listener_name = listener_name
        self._listener = listener
        self._watched: dict[int, _Watched] = {}

    def watch(self, broker: BrokerImage, *, is_known: bool) -> None:
        """Watches this registration instead of an earlier one of the broker. `is_known` says whether its process is
        known to have listened at its address, so that a refused connection means that it has ended.
        """
        endpoint = broker.endpoint(self._listener_name)
        if endpoint is None or broker.broker_id == self._own_id:
            return
        address = (endpoint.host, endpoint.port)
        known = self._watched.get(broker.broker_id)
        if known is not None and known.epoch == broker.epoch and known.address == address:
            return
        self.end(broker.broker_id)
        events = ProcessEvents(
            partial(self._listener.on_gone, broker.broker_id, broker.epoch),
            partial(self._listener.on_answer, broker.broker_id, broker.epoch),
        )
        watch = ProcessWatch(self._host, address, events, is_known=is_known)
        self._watched[broker.broker_id] = _Watched(broker.epoch, address, watch)
        watch.start()

    def end(self, broker_id: int) -> None:
        """Ends the watch of a broker whose znode is gone."""
        watched = self._watched.pop(broker_id, None)
        if watched is not None:
            watched.watch.close()

    def close(self) -> None:
        for watched in self._watched.values():
            watched.watch.close()
        self._watched.clear()
