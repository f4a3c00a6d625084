"""The active controller: events in, decisions out, replies once they are committed.

Each event becomes a decision of a pure function, which `proposals` writes to the metadata log. The epoch of a broker is
the offset of the first record of its registration, as in Kafka.

All of it runs to completion on the event loop. The decisions are pure functions: those of every kind of controller in
`controller.requests`, those that only a quorum needs in the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Host, Timer
from barnabas.controller.kraft import broker_registrations, directories, features
from barnabas.controller.kraft.acl_control import AclControl
from barnabas.controller.kraft.bootstrap import bootstrap_batches, own_registration, register_controller
from barnabas.controller.kraft.broker_sessions import BrokerSessions
from barnabas.controller.kraft.large_decisions import propose_partitions
from barnabas.controller.kraft.no_ops import NoOpWriter
from barnabas.controller.kraft.proposals import Proposals, Reply
from barnabas.controller.kraft.quota_changes import QuotaControl
from barnabas.controller.kraft.replication_control import ReplicationControl
from barnabas.controller.kraft.token_control import TokenControl
from barnabas.controller.listener import ControllerListener
from barnabas.controller.replication_requests import decide
from barnabas.controller.requests import brokers, configs, elections, partitions, producer_ids, scram, standing, topics
from barnabas.controller.requests.feature_requests import failed
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, in_portions
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.registrations import BrokerImage, Endpoint, endpoints_of
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.raft.node import RaftNode

#: The actor of a change for which no principal is known.
SELF = "controller"


class Controller:
    """The controller of one node; inactive until the node leads the metadata quorum."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        raft: RaftNode,
        store: MetadataStore,
        cluster_id: str,
        strategy: NamedStrategy | None,
    ) -> None:
        self._host = host
        self._config = config
        self._raft = raft
        self._store = store
        self._cluster_id = cluster_id
        self._sessions = BrokerSessions(config.int_of("broker.session.timeout.ms"))
        self._session_timer: Timer | None = None
        self._session_check_due_ms = 0
        #: The decisions and the image that they are made on.
        self.proposals = Proposals(host, config, raft, strategy)
        #: The id of this process as a controller; each start has another one.
        self.incarnation_id = host.random.uuid()
        #: The addresses of this controller. A host that binds port 0 sets them before it starts the controller.
        self.endpoints: tuple[Endpoint, ...] = endpoints_of(config.controller_listeners, config.advertised_listeners)
        self.quotas = QuotaControl(self.proposals)
        #: Elections and reassignments.
        self.replication = ReplicationControl(host.timers, config, self.proposals)
        #: The rules of the authorizer.
        self.acls = AclControl(self.proposals)
        self.tokens = TokenControl(host, config, self.proposals)
        self._no_ops = NoOpWriter(host, config, raft, lambda: self.image.brokers)
        raft.on_leadership(lambda is_leader: self.activate() if is_leader else self.resign())

    @property
    def kraft_version(self) -> int:
        """The level of the feature `kraft.version`, which is in the quorum's log and not in the image."""
        return self._raft.kraft_version

    @property
    def leader_id(self) -> int:
        """The quorum's leader, as far as this node knows; -1 if unknown."""
        return self._raft.leader_id

    @property
    def is_active(self) -> bool:
        return self.proposals.is_active

    @property
    def image(self) -> MetadataImage:
        """The metadata with all decisions so far, committed or not. Available only while active."""
        return self.proposals.image

    @property
    def unclean_election_count(self) -> int:
        """Unclean elections decided since this process began."""
        return self.proposals.unclean_election_count

    def listen(self, listener: ControllerListener) -> None:
        """Registers a listener. It must be called before the controller starts."""
        self.proposals.listen(listener)

    # Activation and resignation.

    def activate(self) -> None:
        """Starts from the committed image: this node leads the quorum, and all records of earlier epochs are
        committed.
        """
        if self.is_active:
            return
        image = self._store.image
        self.proposals.begin(image)
        self._sessions.clear()
        now_ms = self._host.clock.now_ms()
        for broker_id in image.broker_ids():
            # A broker with this node's id runs in this process, which has just begun: the registration is an old one.
            if broker_id != self._config.node_id:
                self._sessions.start(broker_id, now_ms)
        # The bootstrap file is not read when its records are in the log already: it may have been damaged since.
        formatted = () if image.metadata_version else self._raft.bootstrap_records()
        batches = bootstrap_batches(self.proposals.view(), formatted, in_transaction=self._store.in_transaction)
        batches.append(own_registration(self._config.node_id, self.incarnation_id, self.endpoints))
        for records, cause in batches:
            if not self.proposals.propose(Result(records, None, cause)):
                if self._raft.is_alone:
                    self._host.faults.fatal("the metadata log has no space for the first records of a controller")
                self.resign()
                self._raft.step_down()
                return
        self._schedule_session_check()
        self.replication.start()
        self._no_ops.start()
        self.tokens.start()
        self.proposals.on_active()

    def resign(self) -> None:
        """Stops this controller. The quorum answers the waiting requests with an error."""
        self.proposals.end()
        self._sessions.clear()
        self.replication.stop()
        self._no_ops.stop()
        self.tokens.stop()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None

    # Topics.

    def create_topics(
        self,
        request: CreateTopicsRequest,
        reply: Reply[CreateTopicsResponse],
        *,
        actor: str = SELF,
        permit: topics.Permit | None = None,
    ) -> None:
        if not self.is_active:
            reply(topics.create_refused(request, ErrorCode.NOT_CONTROLLER))
            return
        counted = standing.once(permit)
        propose_partitions(
            self.proposals,
            topics.new_partitions(self.proposals.view(), request),
            lambda view: topics.create_topics_in_portions(view, request, actor, counted),
            lambda before, now: standing.creation_stands(request, before, now),
            reply,
            lambda code: reply(topics.create_refused(request, code)),
        )

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        reply: Reply[DeleteTopicsResponse],
        *,
        actor: str = SELF,
        permit: topics.Permit | None = None,
    ) -> None:
        decide(
            self.proposals,
            lambda view: topics.delete_topics(view, request, actor, permit),
            reply,
            lambda code: topics.delete_refused(request, code),
        )

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        reply: Reply[CreatePartitionsResponse],
        *,
        actor: str = SELF,
        permit: topics.Permit | None = None,
    ) -> None:
        if not self.is_active:
            reply(topics.create_partitions_refused(request, ErrorCode.NOT_CONTROLLER))
            return
        counted = standing.once(permit)
        propose_partitions(
            self.proposals,
            topics.additional_partitions(self.proposals.view(), request),
            lambda view: topics.create_partitions_in_portions(view, request, actor, counted),
            lambda before, now: standing.growth_stands(request, before, now),
            reply,
            lambda code: reply(topics.create_partitions_refused(request, code)),
        )

    def alter_partition(
        self, request: AlterPartitionRequest, reply: Reply[AlterPartitionResponse], *, version: int = 3
    ) -> None:
        decide(
            self.proposals,
            lambda view: partitions.alter_partition(view, request, version),
            reply,
            lambda code: AlterPartitionResponse(error_code=code),
        )

    # Configurations.

    def alter_configs(
        self,
        changes: Sequence[configs.ResourceChange],
        validate_only: bool,
        reply: Reply[list[configs.AlterResult]],
        *,
        replace: bool = False,
        actor: str = SELF,
    ) -> None:
        """Replies with one (code, message) per resource, in order. `replace` (AlterConfigs) resets keys not named."""
        if not self.is_active:
            reply([(ErrorCode.NOT_CONTROLLER, None)] * len(changes))
            return
        result = configs.alter_configs(self.proposals.view(), changes, actor, replace=replace)
        if validate_only:
            reply(result.response)
            return
        proposed = self.proposals.propose(result, reply, lambda code: reply([(code, None)] * len(changes)))
        if proposed:
            changed = elections.topics_with_changed_rule(self.image, result.records)
            if changed:
                self.replication.elect_unclean_leaders(changed)

    def update_features(
        self,
        request: UpdateFeaturesRequest,
        api_version: int,
        reply: Reply[UpdateFeaturesResponse],
        *,
        actor: str = SELF,
    ) -> None:
        if not self.is_active:
            reply(failed(ErrorCode.NOT_CONTROLLER))
            return
        kraft_version, changes = self.kraft_version, self._raft.changes
        refusal = changes.upgrade_refusal()
        result = features.update_features(self.proposals.view(), request, api_version, kraft_version, actor, refusal)
        raises = not result.response.error_code and features.raises_kraft_version(request, kraft_version)
        if raises and not changes.upgrade():
            reply(failed(ErrorCode.KAFKA_STORAGE_ERROR))
            return
        self.proposals.propose(result, reply, lambda code: reply(failed(code)))

    def alter_user_scram_credentials(
        self,
        request: AlterUserScramCredentialsRequest,
        reply: Reply[AlterUserScramCredentialsResponse],
        *,
        actor: str = SELF,
    ) -> None:
        if not self.is_active:
            reply(scram.refused(request, ErrorCode.NOT_CONTROLLER))
            return
        propose_partitions(
            self.proposals,
            scram.alteration_count(request),
            lambda view: scram.alter_in_portions(view, request, actor),
            standing.scram_alteration_stands,
            reply,
            lambda code: reply(scram.refused(request, code)),
        )

    # Producer ids.

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, reply: Callable[[int, int, ErrorCode], None]
    ) -> None:
        """Allocates a block of producer ids to a broker; calls `reply(first_id, length, error)`."""
        try:
            self._require_active()
            result = producer_ids.allocate(self.proposals.view(), broker_id, broker_epoch)
        except RequestFailed as error:
            reply(0, 0, error.code)
            return
        self.proposals.propose(
            result,
            lambda block: reply(block.first_id, block.length, ErrorCode.NONE),
            lambda code: reply(0, 0, code),
        )

    # Brokers.

    def register_broker(self, request: BrokerRegistrationRequest, reply: Reply[BrokerRegistrationResponse]) -> None:
        now_ms = self._host.clock.now_ms()
        try:
            self._require_active()
            known = self.image.brokers.get(request.broker_id)
            has_its_directories = known is not None and set(known.directories) <= set(request.log_dirs)
            alive = self._sessions.may_still_run(request.broker_id, now_ms, has_its_directories=has_its_directories)
            result = broker_registrations.register(
                self.proposals.view(),
                request,
                cluster_id=self._cluster_id,
                next_offset=lambda: self._raft.log_end_offset,
                session_alive=alive,
            )
        except RequestFailed as error:
            reply(BrokerRegistrationResponse(error_code=error.code))
            return
        self._sessions.start(request.broker_id, now_ms)
        self.proposals.propose(result, reply, lambda code: reply(BrokerRegistrationResponse(error_code=code)))

    def broker_disconnected(self, broker_id: int, broker_epoch: int) -> None:
        """Records that the connection with this incarnation's heartbeats has ended."""
        if self.is_active:
            broker = self.image.brokers.get(broker_id)
            if broker is not None and broker.epoch == broker_epoch:
                self._sessions.disconnected(broker_id)

    def broker_heartbeat(self, request: BrokerHeartbeatRequest, reply: Reply[BrokerHeartbeatResponse]) -> None:
        broker_id = request.broker_id
        try:
            self._require_active()
            view = self.proposals.view()
            brokers.registration(view, broker_id, request.broker_epoch)
            self._sessions.touch(broker_id, request.current_metadata_offset, self._host.clock.now_ms())
            active = [broker.broker_id for _, broker in sorted(view.image.brokers.items()) if broker.is_active]
            result = broker_registrations.heartbeat(
                view,
                request,
                lowest_offset=self._sessions.lowest_offset(active, self._raft.log_end_offset),
                shutdown_offset=self._sessions.shutdown_offset(broker_id),
            )
        except RequestFailed as error:
            reply(BrokerHeartbeatResponse(error_code=error.code))
            return
        self.proposals.propose(
            result,
            reply,
            lambda code: reply(BrokerHeartbeatResponse(error_code=code)),
            proposed=(lambda: self._note_shutdown(broker_id)) if result.records else None,
        )

    def _note_shutdown(self, broker_id: int) -> None:
        """Records the log offset up to which a broker's controlled shutdown has been decided."""
        broker = self.image.brokers.get(broker_id) if self.is_active else None
        if broker is not None and broker.in_controlled_shutdown:
            self._sessions.begin_shutdown(broker_id, self._raft.log_end_offset - 1)

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, reply: Reply[AssignReplicasToDirsResponse]
    ) -> None:
        try:
            self._require_active()
            result = directories.assign_replicas(self.proposals.view(), request)
        except RequestFailed as error:
            reply(AssignReplicasToDirsResponse(error_code=error.code))
            return
        self.proposals.propose(result, reply, lambda code: reply(AssignReplicasToDirsResponse(error_code=code)))

    def unregister_broker(self, broker_id: int, reply: Callable[[ErrorCode, str | None], None]) -> None:
        try:
            self._require_active()
            result = brokers.unregister(self.proposals.view(), broker_id, SELF)
        except RequestFailed as error:
            reply(error.code, error.message)
            return
        self._sessions.end(broker_id)
        self.proposals.propose(result, lambda _: reply(ErrorCode.NONE, None), lambda code: reply(code, None))

    def broker_process_ended(self, broker_id: int) -> None:
        """Fences a broker whose process has ended, without waiting for the end of its session."""
        if self.is_active:
            self._fence(broker_id, ControllerEvent.PROCESS_GONE)

    def _fence(self, broker_id: int, why: ControllerEvent) -> None:
        """Fences the broker and ends its session. If the quorum refuses the records, this is tried again after one more
        session timeout.
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            self._sessions.end(broker_id)
            return
        self._sessions.start(broker_id, self._host.clock.now_ms())
        cause = Cause(why, SELF, f"broker {broker_id}")
        result = in_portions(self.proposals.view(), [lambda view: brokers.fence(view, broker)], None, cause)
        self.proposals.propose(result, proposed=lambda: self._end_session(broker))

    def _end_session(self, broker: BrokerImage) -> None:
        """Ends the session of a fenced incarnation, unless another one has registered meanwhile."""
        if self.is_active and brokers.is_current(self.proposals.view(), broker):
            self._sessions.end(broker.broker_id)

    def register_controller(
        self, request: ControllerRegistrationRequest, reply: Reply[ControllerRegistrationResponse]
    ) -> None:
        """Registers the endpoints of an inactive controller in the metadata."""
        if not self.is_active:
            reply(ControllerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        self.proposals.propose(
            register_controller(request),
            reply,
            lambda code: reply(ControllerRegistrationResponse(error_code=code)),
        )

    def _check_sessions(self) -> None:
        """Fences the brokers whose sessions have expired."""
        self._session_timer = None
        if not self.is_active:
            return
        now_ms = self._host.clock.now_ms()
        late_ms = now_ms - self._session_check_due_ms
        if late_ms > self._sessions.check_ms:
            self._sessions.extend_all(late_ms, now_ms)
        try:
            for broker_id in self._sessions.expired(now_ms):
                if self.is_active:
                    self._fence(broker_id, ControllerEvent.SESSION_EXPIRED)
        finally:
            if self.is_active:
                self._schedule_session_check()

    def _schedule_session_check(self) -> None:
        """Schedules the next check, even if there is no session now: the checks run as long as the controller is
        active.
        """
        if self._session_timer is not None:
            self._session_timer.cancel()
        now_ms = self._host.clock.now_ms()
        self._session_check_due_ms = self._sessions.next_check_ms(now_ms)
        delay_ms = max(self._session_check_due_ms - now_ms, 0)
        self._session_timer = self._host.timers.call_later(delay_ms, self._check_sessions)

    def _require_active(self) -> None:
        if not self.is_active:
            raise RequestFailed(ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
