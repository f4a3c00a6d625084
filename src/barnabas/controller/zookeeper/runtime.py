"""The controller of a broker in ZooKeeper mode: it claims `/controller`, and decides while it holds it.

The broker forwards what its ZooKeeper client reports, and registers before it reports a new session. Requests have the
same methods as those of the quorum's controller, so handlers need not distinguish the two.

    signal --lifecycle--> actions: watch /controller, claim, load, serve, resign, delete /controller
    request --decision--> ActiveController --written and announced--> response, or NOT_CONTROLLER
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Host
from barnabas.controller.listener import CommitListener
from barnabas.controller.requests import elections, partitions, topics
from barnabas.controller.requests.result import Cause, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper import sliced_decisions, topic_requests
from barnabas.controller.zookeeper.active_controller import ActiveController, ActivityEvents
from barnabas.controller.zookeeper.broker_queues import BrokerSender
from barnabas.controller.zookeeper.broker_shutdown import shut_down
from barnabas.controller.zookeeper.claim import Beaten, Claim, Claimed, Won
from barnabas.controller.zookeeper.core import SELF
from barnabas.controller.zookeeper.gauges import ControllerGauges
from barnabas.controller.zookeeper.lifecycle import Action, ControllerLife, ControllerSignal, ControllerState
from barnabas.controller.zookeeper.request_parts import joined_alter_partition, parts_of_alter_partition
from barnabas.controller.zookeeper.slices import Job
from barnabas.controller.zookeeper.succession import Succession
from barnabas.controller.zookeeper.znode_reader import ZnodeReader
from barnabas.controller.zookeeper.znode_writes import check, delete
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import ControllerRegistration, decode_controller
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ReadReply, ZnodeStore
from barnabas.zookeeper.wire.codes import EventType

T = TypeVar("T")
Reply = Callable[[T], None]


class ZookeeperController:
    """The controller of one broker; inactive until its claim succeeds and everything is read."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        store: ZnodeStore,
        send: BrokerSender,
        cluster_id: str,
        strategy: NamedStrategy | None,
    ) -> None:
        self._host = host
        self._config = config
        self._store = store
        self._send = send
        self._strategy = strategy
        self.cluster_id = cluster_id
        self._life = ControllerLife()
        self._claim: Claim | None = None
        self._won: Won | None = None
        self._active: ActiveController | None = None
        self._reader = ZnodeReader(store, _nothing)
        self._succession = Succession(host, config.inter_broker_listener, store)
        self._listeners: list[CommitListener] = []
        self._actions: dict[Action, Callable[[], None]] = {
            Action.RESIGN: self._resign,
            Action.OPEN_SESSION: _nothing,
            Action.REGISTER_BROKER: _nothing,
            Action.WATCH_CONTROLLER: self._watch_controller,
            Action.CLAIM: self._begin_claim,
            Action.LOAD: self._load,
            Action.SERVE: self._serve,
            Action.DELETE_CONTROLLER: self._delete_controller,
        }
        #: The broker that `/controller` names; -1 if there is none, as far as this broker knows.
        self.leader_id = -1
        #: Elections and reassignments on request.
        self.replication = sliced_decisions.LargeReplicationRequests(self, lambda: self._active)
        self.gauges = ControllerGauges(lambda: self._active)
        #: Unclean elections decided since this process began.
        self.unclean_election_count = 0

    @property
    def is_active(self) -> bool:
        return self._life.state is ControllerState.ACTIVE

    @property
    def controller_epoch(self) -> int:
        """Returns the epoch of the last claim that succeeded; 0 if none has."""
        return 0 if self._won is None else self._won.epoch

    @property
    def image(self) -> MetadataImage:
        """The metadata with all decisions so far, written or not. Available only while active."""
        return self._office().core.image

    @property
    def problems(self) -> Sequence[str]:
        """Returns a line for each invalid znode; none while this is not the controller."""
        return [] if self._active is None else self._active.core.problems.listed()

    def view(self) -> ControllerView:
        return self._office().core.view()

    def listen(self, listener: CommitListener) -> None:
        """Registers a listener. It must be called before the controller starts."""
        self._listeners.append(listener)

    # -- signals of the ZooKeeper client

    def on_signal(self, signal: ControllerSignal) -> None:
        """Moves to the next state. SESSION_OPENED means that the broker has registered in the new session."""
        if signal is ControllerSignal.SESSION_EXPIRED:
            self._reader.close()
            self._reader = ZnodeReader(self._store, _nothing)
            self._succession.end()
            self.leader_id = -1
        for action in self._life.on(signal):
            self._actions[action]()

    def changed(self, path: str, event: EventType) -> None:
        """Records that a watch fired."""
        self._reader.changed(path)
        if self._active is not None:
            self._active.changed(path)

    def disconnected(self) -> None:
        if self._active is not None:
            self._active.suspend()

    def reconnected(self) -> None:
        """Continues in the same session."""
        self._reader.resume()
        self._succession.resume()
        if self._claim is not None:
            self._claim.resume()
        if self._active is not None:
            self._active.resume()

    # Requests.

    def create_topics(
        self,
        request: CreateTopicsRequest,
        reply: Reply[CreateTopicsResponse],
        *,
        actor: str = SELF,
        permit: topics.Permit | None = None,
    ) -> None:
        if self._active is None or not self.is_active:
            reply(topics.create_refused(request, ErrorCode.NOT_CONTROLLER))
            return
        topic_requests.create_topics(self._active, request, reply, actor, permit)

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        reply: Reply[DeleteTopicsResponse],
        *,
        actor: str = SELF,
        permit: topics.Permit | None = None,
    ) -> None:
        if self._active is None or not self.is_active:
            reply(topics.delete_refused(request, ErrorCode.NOT_CONTROLLER))
            return
        topic_requests.delete_topics(self._active, request, reply, actor, permit)

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        reply: Reply[CreatePartitionsResponse],
        *,
        actor: str = SELF,
        permit: topics.Permit | None = None,
    ) -> None:
        if self._active is None or not self.is_active:
            reply(topics.create_partitions_refused(request, ErrorCode.NOT_CONTROLLER))
            return
        topic_requests.create_partitions(self._active, request, reply, actor, permit)

    def alter_partition(
        self, request: AlterPartitionRequest, reply: Reply[AlterPartitionResponse], *, version: int = 3
    ) -> None:
        def refused(code: ErrorCode) -> None:
            reply(AlterPartitionResponse(error_code=code))

        if self._active is None or not self.is_active:
            refused(ErrorCode.NOT_CONTROLLER)
            return
        sliced_decisions.decide_parts(
            self._active,
            parts_of_alter_partition(request),
            lambda view, part: partitions.alter_partition(view, part, version),
            self._active.answers.add(reply, refused),
            joined_alter_partition,
        )

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, reply: Callable[[int, int, ErrorCode], None]
    ) -> None:
        """Allocates a block of producer ids to a broker; calls `reply(first_id, length, error)`."""
        self.submit(
            lambda view: self._office().cluster.allocate(view, broker_id, broker_epoch),
            lambda block: reply(block.first_id, block.length, ErrorCode.NONE),
            lambda code: reply(0, 0, code),
        )

    def controlled_shutdown(self, request: ControlledShutdownRequest, reply: Reply[ControlledShutdownResponse]) -> None:
        """Moves leaderships away from a broker that stops, and answers with those that it still has."""
        if self._active is None or not self.is_active:
            reply(ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        shut_down(self._active, request, reply)

    def submit(
        self, decide: Callable[[ControllerView], Result[T]], reply: Reply[T], refused: Callable[[ErrorCode], None]
    ) -> None:
        """Decides now, and replies when the decision is written; `refused` replies if this is not the controller, if
        the decision fails, or if its writes found unexpected content in ZooKeeper.
        """
        if not self.is_active:
            refused(ErrorCode.NOT_CONTROLLER)
            return
        try:
            result = decide(self.view())
        except RequestFailed as failure:
            refused(failure.code)
            return
        self.propose(result, reply, refused)

    def propose(
        self,
        result: Result[Any],
        reply: Reply[Any] | None = None,
        refused: Callable[[ErrorCode], None] | None = None,
    ) -> bool:
        """Writes a decision; replies when it is committed. `refused` replies with NOT_CONTROLLER if a write found
        unexpected content in ZooKeeper: the caller tries again when this controller has read it.
        """
        assert (reply is None) == (refused is None), "a caller that waits for a decision handles its refusal too"
        active = self._office()
        if reply is None or refused is None:
            active.core.propose(result)
            return True
        answer = active.answers.add(reply, refused)

        def settled(lost: frozenset[str]) -> None:
            if lost:
                answer.refuse(ErrorCode.NOT_CONTROLLER)
            else:
                answer.give(result.response)

        active.core.propose(result, settled)
        return True

    # Actions of the lifecycle.

    def _office(self) -> ActiveController:
        assert self._active is not None, "the controller is not active"
        return self._active

    def _watch_controller(self) -> None:
        """Sets the watch on `/controller` that the expired session has ended, and reads the znode."""
        self._reader.watch_data(paths.CONTROLLER, self._on_controller)

    def _on_controller(self, reply: ReadReply) -> None:
        if reply.znode is None or reply.stat is None:
            self.leader_id = -1
            self._succession.end()
            self.on_signal(ControllerSignal.CONTROLLER_GONE)
            return
        try:
            self.leader_id = decode_controller(paths.CONTROLLER, reply.znode.data).broker_id
        except ZnodeError as error:
            self._host.faults.report(str(error))
            self.leader_id = -1
        if self.leader_id in (-1, self._config.node_id):
            self._succession.end()
        else:
            self._succession.follow(self.leader_id, reply.stat.czxid)
        is_own = reply.stat.ephemeral_owner == self._store.session_id != 0
        if not is_own:
            self.on_signal(ControllerSignal.CONTROLLER_IS_ANOTHER)
        elif self._life.state is ControllerState.STANDBY:
            # The epoch was changed under this controller, which has resigned: no other broker can claim before this.
            self._store.multi([delete(paths.CONTROLLER).part()], _nothing)

    def _begin_claim(self) -> None:
        registration = ControllerRegistration(self._config.node_id, self._host.clock.wall_ms())
        self._claim = Claim(self._store, self._host.timers, registration, self._on_claimed, self._host.faults.report)
        self._claim.start()

    def _on_claimed(self, claimed: Claimed) -> None:
        self._claim = None
        if isinstance(claimed, Beaten):
            if claimed.problem is not None:
                self._host.faults.report(str(claimed.problem))
            self.on_signal(ControllerSignal.BEATEN)
            return
        self._won = claimed
        self._host.faults.inform(f"This broker is the controller, with epoch {claimed.epoch}")
        self.on_signal(ControllerSignal.WON)

    def _load(self) -> None:
        assert self._won is not None
        self._active = ActiveController(
            self._host,
            self._config,
            self._store,
            self._send,
            self._strategy,
            self._won,
            ActivityEvents(
                partial(self.on_signal, ControllerSignal.LOADED),
                partial(self.on_signal, ControllerSignal.FENCED),
                self._on_decision,
                partial(_report, self._listeners),
            ),
        )
        self._active.start()

    def _serve(self) -> None:
        """Begins to decide, in slices; the controller resigns if one of them fails."""
        active = self._office()
        for listener in self._listeners:
            listener.on_active(active.core.records.committed)

        def serving() -> Job:
            try:
                yield from active.serve()
            except Exception as error:
                # a controller that cannot load resigns, so that another broker can take over: G41
                self._host.faults.report("the controller cannot load its state, and resigns", error)
                self.on_signal(ControllerSignal.LOAD_FAILED)

        active.core.slices.begin(serving())

    def _resign(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None
        active, self._active = self._active, None
        if active is not None:
            active.close()

    def _delete_controller(self) -> None:
        assert self._won is not None
        fence = check(paths.CONTROLLER_EPOCH, self._won.epoch_version)
        self._store.multi([fence, delete(paths.CONTROLLER).part()], _nothing)

    def _on_decision(self, cause: Cause, before: MetadataImage, records: Sequence[Versioned]) -> Cause:
        losses = elections.unclean_leaders(before, records)
        self.unclean_election_count += len(losses)
        return cause.with_losses(losses)


def _report(
    listeners: Sequence[CommitListener], delta: MetadataDelta, image: MetadataImage, cause: Cause | None
) -> None:
    for listener in listeners:
        listener.on_commit(delta, image, cause)


def _nothing(*_: object) -> None:
    """Does nothing: the callback for events and answers that need no action."""
