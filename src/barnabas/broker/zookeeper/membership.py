"""A broker's membership in its cluster: what it reads and writes in each session with ZooKeeper.

session opened     ACLs and configurations below their watches -> /brokers/ids/N -> topics that exist -> the controller
session expired    the controller resigns, then the next session opens (G34); everything is done again
watch fired        ACLs, configurations, /feature, the registration in the way, the controller's znodes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from barnabas.broker.zookeeper.acl_watch import AclWatch
from barnabas.broker.zookeeper.acl_writes import AclWrites
from barnabas.broker.zookeeper.config_watch import ConfigWatch
from barnabas.broker.zookeeper.config_writes import ConfigWrites, ZnodeWrites
from barnabas.broker.zookeeper.deleted_topics import remove_deleted
from barnabas.broker.zookeeper.initial_catch_up import InitialCatchUp
from barnabas.broker.zookeeper.moved_replicas import MovedReplicas
from barnabas.broker.zookeeper.quota_writes import QuotaWrites
from barnabas.broker.zookeeper.registration import Registrar
from barnabas.broker.zookeeper.scram_writes import ScramWrites
from barnabas.broker.zookeeper.store_steps import Steps, StoreSteps, create
from barnabas.broker.zookeeper.znode_watch import ZnodeWatch
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.controller.zookeeper.lifecycle import ControllerSignal
from barnabas.controller.zookeeper.runtime import ZookeeperController
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.registrations import endpoints_of
from barnabas.metadata.store import MetadataStore
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import encode_log_dir_event
from barnabas.zookeeper.client.store import ChildrenReply, ExistsReply, ZnodeStore
from barnabas.zookeeper.wire.codes import CreateFlags, EventType

_UNREGISTERED: Final = -1
#: The number of topics that are read at the same time while clients wait.
_READS_AT_ONCE: Final = 16


class SessionStore(ZnodeStore, Protocol):
    """A ZooKeeper client whose sessions are opened by the caller."""

    def open(self) -> None: ...


class Membership:
    """The membership of one broker in its cluster; a `StoreListener`."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        store: SessionStore,
        metadata: MetadataStore,
        controller: ZookeeperController,
        catch_up: InitialCatchUp,
        on_registered: Callable[[], None],
    ) -> None:
        self._host = host
        self._store = store
        self._metadata = metadata
        self._controller = controller
        self._catch_up = catch_up
        self._on_registered = on_registered
        endpoints = endpoints_of(config.advertised_listeners, config.advertised_listeners)
        self._registrar = Registrar(host, config, store, endpoints)
        self.configs = ConfigWatch(host, store, metadata)
        self.writes = ConfigWrites(host, config, store, metadata, self.configs)
        self.quota_writes = QuotaWrites(host, config, store, metadata, self.configs)
        self.scram_writes = ScramWrites(host, config, store, metadata, self.configs)
        acls = AclWatch(host, store, metadata)
        self.acl_writes = AclWrites(host, config, store, metadata, acls)
        self._all_writes: tuple[ZnodeWrites[Any], ...] = (
            self.writes,
            self.quota_writes,
            self.scram_writes,
            self.acl_writes,
        )
        #: The rules come first, if there is an authorizer, so that they are in the first image.
        has_authorizer = config.str_of("authorizer.class.name") != ""
        self._watches: tuple[ZnodeWatch[Any], ...] = (acls, self.configs) if has_authorizer else (self.configs,)
        self._node_id = config.node_id
        #: The czxid of the registration, -1 before it.
        self.broker_epoch = _UNREGISTERED
        #: The data version of /feature.
        self.feature_epoch = 0
        self._joining: StoreSteps | None = None
        #: Sequences of requests in progress, except that of the registration.
        self._others: dict[StoreSteps, None] = {}
        self._is_member = False
        self._is_active = False

    def start(self) -> None:
        """Joins the cluster in the current session; in a new one if it has expired while the logs were opened."""
        self._is_active = True
        if self._store.session_id:
            self._join()
        else:
            self._store.open()

    def leave(self) -> None:
        """Ends the membership; the session is not ended here."""
        self._is_active = False
        self._end_session()

    def report_failed_directory(self) -> None:
        """Reports to the controller that a log directory of this broker has failed: other brokers get the roles of its
        replicas.
        """
        data = encode_log_dir_event(self._node_id)
        self._begin(create(self._store, paths.NEW_LOG_DIR_EVENT, data, CreateFlags.PERSISTENT_SEQUENTIAL))

    def catch_up(self, known: MetadataImage, replicas: ReplicaManager) -> None:
        """Removes what this broker should have removed before its registration, or at the request of a controller that
        failed: those topics of `known` from the image that have no znode any more, and replicas that have moved.
        """
        self._begin(remove_deleted(self._store, self._metadata, self._host.clock, known))
        moved = MovedReplicas(self._node_id, self._store, self._host.timers, self._metadata, replicas)
        self._begin(moved.remove())

    def _begin(self, steps: Steps[object]) -> None:
        """Runs steps concurrently with other steps. They continue after a reconnect, and end with the session."""

        def done(result: object) -> None:
            self._others.pop(running, None)

        running = StoreSteps(steps, done)
        self._others[running] = None
        running.start()

    # -- joining

    def _join(self) -> None:
        self._joining = StoreSteps(self._steps(), self._on_joined).start()

    def _steps(self) -> Steps[int | ConfigError]:
        for watch in self._watches:
            yield from watch.load()
        yield from self._read_feature()
        found = yield from self._registrar.register()
        if isinstance(found, int):
            self.broker_epoch = found
            self._on_registered()
            if self._catch_up.is_waiting:
                self._catch_up.registered()
                self._begin(self._read_topics())
        return found

    def _read_topics(self) -> Steps[None]:
        """Reads the topics that clients must find when the broker opens to them. The controller does not wait for
        this.
        """
        topics: ChildrenReply = yield partial(self._store.children, paths.TOPICS)
        deleted: ChildrenReply = yield partial(self._store.children, paths.DELETE_TOPICS)
        # The controller names no topic whose deletion waits, possibly for a dead broker.
        known = frozenset(topics.names or ()) - frozenset(deleted.names or ())
        names, counts = sorted(known), dict[str, int]()
        for first in range(min(_READS_AT_ONCE, max(len(names), 1))):
            self._begin(self._count_partitions(names[first::_READS_AT_ONCE], counts, len(names)))

    def _count_partitions(self, names: Sequence[str], counts: dict[str, int], total: int) -> Steps[None]:
        """Reads how many partitions of these topics have a state. When the last topic has been counted, passes the
        counts on.
        """
        for name in names:
            reply: ExistsReply = yield partial(self._store.exists, paths.partitions(name))
            counts[name] = 0 if reply.stat is None else reply.stat.num_children
        if len(counts) == total:
            self._catch_up.expect(counts, self._metadata.image)

    def _on_joined(self, found: int | ConfigError) -> None:
        self._joining = None
        if isinstance(found, ConfigError):
            self._host.faults.fatal(str(found))
            return
        self._host.faults.inform(f"broker {self._node_id} is registered in ZooKeeper with epoch {found}")
        self._is_member = True
        self._controller.on_signal(ControllerSignal.SESSION_OPENED)

    def _read_feature(self) -> Steps[None]:
        reply: ExistsReply = yield partial(self._store.exists, paths.FEATURE, watch=True)
        self.feature_epoch = 0 if reply.stat is None else reply.stat.version

    def _end_session(self) -> None:
        self._is_member = False
        if self._joining is not None:
            self._joining.close()
            self._joining = None
        for steps in self._others:
            steps.close()
        self._others.clear()
        self._registrar.close()
        for watch in self._watches:
            watch.close()
        self._controller.on_signal(ControllerSignal.SESSION_EXPIRED)

    # -- store.StoreListener

    def session_opened(self, session_id: int) -> None:
        if self._is_active:
            self._join()
            for writes in self._all_writes:
                writes.resume()

    def disconnected(self) -> None:
        self._registrar.disconnected()
        self._controller.disconnected()

    def reconnected(self) -> None:
        for steps in (self._joining, *self._watches, *self._all_writes, *self._others):
            if steps is not None:
                steps.resume()
        self._registrar.reconnected()
        self._controller.reconnected()

    def session_expired(self) -> None:
        self._end_session()
        if self._is_active:
            self._store.open()

    def auth_failed(self) -> None:
        self._controller.on_signal(ControllerSignal.AUTH_FAILED)

    def changed(self, path: str, event_type: EventType) -> None:
        self._registrar.changed(path, event_type)
        if not self._is_active:
            return
        for watch in self._watches:
            watch.changed(path)
        if path == paths.FEATURE:
            self._begin(self._read_feature())
        self._controller.changed(path, event_type)
