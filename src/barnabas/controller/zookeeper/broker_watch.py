"""The brokers of an active controller: their znodes, by id and czxid.

    known czxid   found znode      means
    none          any              new
    c             none             gone
    c             c                the same; addresses or rack possibly changed
    c             another          bounced: gone, then new (G37)
    c             c, no process    gone, until the process responds or the znode is another one

The process of a broker ends long before its session (`broker_processes.py`); its znode is left alone: only its own
session, or its own next process, removes it. The children of `/brokers/ids` only determine which znodes to watch;
what a broker's own znode contains decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from barnabas.controller.requests.partitions import Located, find
from barnabas.controller.requests.result import Cause, ControllerEvent, Result
from barnabas.controller.zookeeper.broker_processes import BrokerProcesses, ProcessListener
from barnabas.controller.zookeeper.core import SELF, Core, located
from barnabas.controller.zookeeper.new_partitions import has_state
from barnabas.controller.zookeeper.replica_changes import directories_lost, directories_regained, settle
from barnabas.metadata.registrations import BrokerImage, broker_from_record
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.messages.records_metadata import RegisterBrokerRecord, UnregisterBrokerRecord
from barnabas.znodes import paths
from barnabas.znodes.broker_znodes import decode_registration
from barnabas.znodes.entity_records import broker_record
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ReadReply


class BrokerWatch:
    """The registered brokers, as the controller of one epoch watches them. `decide_first_states` gives partitions
    without a state their first one, if they have a live replica.
    """

    def __init__(self, core: Core, decide_first_states: Callable[[Iterable[Located]], None]) -> None:
        self._core = core
        self._decide_first_states = decide_first_states
        listener = ProcessListener(self._process_gone, self._process_answers)
        self._processes = BrokerProcesses(core.host, core.own_id, core.config.inter_broker_listener, listener)
        #: The names of znodes that are not broker ids.
        self._invalid_names: set[str] = set()
        #: The epochs of brokers that have a znode and no process.
        self._without_process: dict[int, int] = {}
        #: Brokers that are gone, and are taken out of their partitions now; their znodes are read afterwards.
        self._leaving: set[int] = set()
        #: The brokers of `_leaving` whose znodes have changed since.
        self._returning: set[int] = set()

    def start(self) -> None:
        self._core.reader.watch_children(paths.BROKER_IDS, self._on_names)

    def serve(self) -> None:
        """Begins to watch the processes. Even the first refused dial counts as the end of a process: whatever ended the
        last controller may have ended a broker too.
        """
        for broker in self._core.image.brokers.values():
            self._processes.watch(broker, is_known=True)

    def close(self) -> None:
        self._processes.close()

    def _on_names(self, names: Sequence[str]) -> None:
        reader = self._core.reader
        invalid = {name for name in names if not paths.is_number(name)}
        for name in sorted(self._invalid_names - invalid):
            self._core.problems.gone(f"{paths.BROKER_IDS}/{name}")
        self._invalid_names = invalid
        for name in names:
            path = f"{paths.BROKER_IDS}/{name}"
            if name in invalid:
                self._core.problems.add(ZnodeError(path, "has a name that is not a broker id"))
            elif not reader.is_watched(path):
                reader.watch_data(path, partial(self._on_broker, int(name)))

    def _on_broker(self, broker_id: int, reply: ReadReply) -> None:
        if broker_id in self._leaving:
            self._returning.add(broker_id)
            return
        path = paths.broker(broker_id)
        known = self._core.image.brokers.get(broker_id)
        if reply.znode is None or reply.stat is None:
            self._core.problems.gone(path)
            self._processes.end(broker_id)
            self._without_process.pop(broker_id, None)
            if known is not None:
                self._gone(known, ControllerEvent.ZNODE_SESSION_ENDED)
            return
        epoch = reply.stat.czxid
        if self._without_process.get(broker_id) == epoch:
            return
        self._without_process.pop(broker_id, None)
        if known is not None and known.epoch != epoch:
            self._gone(known, ControllerEvent.ZNODE_SESSION_ENDED)
            self._on_broker(broker_id, reply)
            return
        try:
            record = broker_record(broker_id, epoch, decode_registration(path, reply.znode.data))
        except ZnodeError as error:
            self._core.problems.add(error)
            return
        self._core.problems.mended(path)
        if known is None:
            self._joined(record)
            return
        record.in_controlled_shutdown = known.in_controlled_shutdown
        broker = broker_from_record(record)
        if broker != known:
            self._core.records.take([record])
            self._watch_process(broker)

    def _watch_process(self, broker: BrokerImage) -> None:
        if self._core.is_serving:
            self._processes.watch(broker, is_known=False)

    def _process_gone(self, broker_id: int, epoch: int) -> None:
        """Treats the broker as gone, although its session has not ended."""
        known = self._core.image.brokers.get(broker_id)
        if self._core.is_serving and known is not None and known.epoch == epoch:
            self._without_process[broker_id] = epoch
            self._gone(known, ControllerEvent.ZNODE_PROCESS_ENDED)

    def _process_answers(self, broker_id: int, epoch: int) -> None:
        """Treats the broker as new, if its registration is still the same."""
        if self._without_process.get(broker_id) == epoch:
            del self._without_process[broker_id]
            self._core.reader.read(paths.broker(broker_id), partial(self._on_broker, broker_id))

    def _gone(self, broker: BrokerImage, event: ControllerEvent) -> None:
        """Removes the broker from the image, from every leadership, and from every ISR that has another member."""
        core, broker_id = self._core, broker.broker_id
        core.queues.end(broker_id)
        cause = Cause(event, SELF, f"broker {broker_id}")
        core.records.take([UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)], cause=cause)
        if not core.is_serving:
            return
        affected = sorted(
            find(core.view(), lambda each: broker_id in each.isr), key=lambda each: each[2].leader != broker_id
        )
        self._leaving.add(broker_id)
        core.decide_in_slices(
            affected,
            lambda view, partitions: Result(settle(view, partitions), None, cause),
            partial(self._left, broker_id),
        )

    def _left(self, broker_id: int) -> None:
        self._leaving.discard(broker_id)
        if broker_id in self._returning:
            self._returning.discard(broker_id)
            self._core.reader.changed(paths.broker(broker_id))

    def _joined(self, record: RegisterBrokerRecord) -> None:
        """Adds the broker to the image, then elects it for partitions without a leader, and gives those that waited for
        it their first state.
        """
        core, broker_id = self._core, record.broker_id
        cause = Cause(ControllerEvent.ZNODE_REGISTERED, SELF, f"broker {broker_id}")
        core.records.take([record, *directories_regained(core.view(), broker_id)], cause=cause)
        self._watch_process(broker_from_record(record))
        if not core.is_serving:
            return
        waiting = [*find(core.view(), lambda each: each.leader == NO_LEADER and broker_id in each.replicas)]
        core.decide_in_slices(waiting, lambda view, partitions: Result(settle(view, partitions), None, cause))
        self._decide_first_states(each for each in waiting if not has_state(each[2]))

    def directories_failed(self, broker_id: int, partitions: Sequence[tuple[bytes, int]]) -> None:
        """Treats replicas whose broker has lost their log directory as offline, as if the broker were gone."""
        core = self._core
        lost = list(directories_lost(core.view(), broker_id, located(core.image, partitions)))
        if not lost:
            return
        cause = Cause(ControllerEvent.BROKER_HEARTBEAT, f"broker {broker_id}", f"{len(lost)} replicas offline")
        core.records.take(lost, cause=cause)
        affected = located(core.image, partitions)
        core.propose(Result(settle(core.view(), affected), None, cause))
