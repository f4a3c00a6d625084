"""The effects of clients on the nodes of a cluster, compared with the rules, credentials and quotas in their metadata.

The effects are seen from outside: records that a leader appended, bytes that a broker sent, topics that a controller
decided, log-ins that succeeded. Each check reads all rules in the image of the node itself.

    no effect without a right    a record, a read, a topic needs a right in the image of the node, in the event of the
                                 effect; so a revoked right ends with the next image
    the rules followed           the index of an authorizer has exactly the rules of its node's image
    who logs in is known         a log-in by SCRAM needs a password that the node's image had during the exchange
    muted is silent              after a response with a throttle time, the node sends nothing on this connection for
                                 that time
    counts do not drift          the limits of connections count those that are open, and no others
    one quota for a user         what a leader appends for a user with a fixed quota stays within it, on any number of
                                 connections
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.assembly import Broker
from barnabas.common.types import TopicPartition
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.records_metadata import TopicRecord
from barnabas.replication.partition import Role
from barnabas.simulation.exchanges import Frames
from barnabas.simulation.history import Violation
from barnabas.simulation.metric_checkers import check_connections
from barnabas.simulation.network import Observer, Socket
from barnabas.simulation.node import Node
from barnabas.simulation.rare_events import Call, RareEvent
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import MILLISECOND_US, SECOND_US
from barnabas.simulation.worlds.replicated import values_in
from barnabas.simulation.worlds.scripted_client import Answered

#: The topics to which users write. A value says from which machine it came, to which topic: "to:a-one|alice.1|17|".
TOPICS: Final = ("a-one", "a-two", "b-one")
#: The names of topics that users create, with the machine: "made-alice.1-17".
MADE: Final = "made-"
#: The decisions of a controller, with the records.
DECISION: Final = RareEvent("a decision about topics", "controller.kraft.proposals:Proposals._replayed")
_IMPLIES: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
}
#: The tolerance of times: two clocks drift, and milliseconds are rounded.
_TOLERANCE_US: Final = 5 * MILLISECOND_US
#: The time over which a rate is compared with a quota.
_RATE_WINDOW_US: Final = 4 * SECOND_US


def value_of(topic: str, machine: str, number: int) -> bytes:
    return f"to:{topic}|{machine}|{number}|".encode()


def may(
    image: MetadataImage, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
) -> bool:
    """Returns whether the rules of an image allow this. Every rule is read."""
    allowing = (operation, AclOperation.ALL, *_IMPLIES.get(operation, ()))
    allowed = False
    for rule in image.security.acls.values():
        if rule.resource_type != resource or rule.principal not in (principal, "User:*"):
            continue
        if rule.host not in ("*", host):
            continue
        if rule.pattern_type == AclPattern.PREFIXED:
            if not name.startswith(rule.resource_name):
                continue
        elif rule.resource_name not in ("*", name):
            continue
        if rule.permission == AclPermission.DENY:
            if rule.operation in (operation, AclOperation.ALL):
                return False
        elif rule.operation in allowing:
            allowed = True
    return allowed


class User(NamedTuple):
    """A user of the run on one of its machines, with the machine's address."""

    name: str
    machine: str
    host: str

    @property
    def principal(self) -> str:
        return f"User:{self.name}"


class Quota(NamedTuple):
    """A user's quota, which never changes, and the number of bytes by which the user can exceed it for a moment."""

    user: str
    bytes_per_s: int
    burst_bytes: int


class _View:
    """The state of one node: its process, its last images, the ends of the logs that it leads."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        #: (time from which it is in effect, image), for some seconds.
        self.images: deque[tuple[int, MetadataImage]] = deque()
        #: The image in effect at the end of the last event.
        self.before = MetadataImage()
        self.ends: dict[TopicPartition, tuple[int, int]] = {}
        #: User -> (time, bytes) of its records.
        self.written: dict[str, deque[tuple[int, int]]] = {}


class Effects(Observer):
    """Checks the effects in a run: each must follow from the metadata of its node."""

    def __init__(self, cluster: Cluster, users: Iterable[User], quota: Quota) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._users = {user.machine: user for user in users}
        self._by_address = {user.host: user for user in users}
        self._quota = quota
        self._views: dict[str, _View] = {}
        #: Socket of a node -> times at which its frames were sent.
        self._sent: dict[tuple[object, object], tuple[Frames, list[int]]] = {}
        #: Connection -> the throttle time of its last response, in ms.
        self._throttled_ms: dict[tuple[object, object], int] = {}
        self.counts = {"writes": 0, "reads": 0, "topics": 0, "log-ins": 0, "refused log-ins": 0, "mutes": 0}
        self.failure: str | None = None
        cluster.network.add_observer(self)

    # -- what a node did in one event

    def check(self, cluster: Cluster) -> None:
        for node in cluster.dirty:
            self._check_node(node)
        if self.failure is not None:
            raise Violation(self.failure)

    def _check_node(self, node: Node) -> None:
        broker = node.broker
        if broker is None:
            self._views.pop(node.name, None)
            return
        view = self._view(node.name, broker)
        image = broker.metadata.image
        if not view.images or view.images[-1][1] is not image:
            view.images.append((self._world.now_us, image))
            while len(view.images) > 2 and view.images[1][0] < self._world.now_us - 20 * SECOND_US:
                view.images.popleft()
            if not view.before.security.acls or view.before.security.acls is not image.security.acls:
                self._check_index(node.name, broker, image)
        if node.is_running:
            check_connections(node, broker)
        if node.name.startswith("broker"):
            self._check_logs(node.name, view, image)
        view.before = image

    def _view(self, name: str, broker: Broker) -> _View:
        view = self._views.get(name)
        if view is None or view.broker is not broker:
            view = self._views[name] = _View(broker)
            view.before = broker.metadata.image
        return view

    def _check_index(self, name: str, broker: Broker, image: MetadataImage) -> None:
        authorizer = broker.authorizer
        assert authorizer is not None, "each node has an authorizer"
        own = dict(authorizer.index.rules)
        if own != dict(image.security.acls.items()):
            raise Violation(f"the authorizer of {name} has other rules than its metadata")

    def _check_logs(self, name: str, view: _View, image: MetadataImage) -> None:
        for topic in TOPICS:
            partition = view.broker.replicas.find(topic, 0)
            key = TopicPartition(topic, 0)
            if partition is None or partition.role is not Role.LEADER:
                view.ends.pop(key, None)
                continue
            end, epoch = partition.log.log_end_offset, partition.leader_epoch
            begin, before = view.ends.get(key, (end, epoch))
            view.ends[key] = (end, epoch)
            if end > begin and before == epoch:
                data = bytes(partition.log.read(begin, 1 << 20, up_to=end).data)
                self._on_append(name, view, image, topic, data)

    def _on_append(self, name: str, view: _View, image: MetadataImage, topic: str, data: bytes) -> None:
        for _, value in values_in(data):
            user = self._users[(value or b"").decode().split("|")[1]]
            self.counts["writes"] += 1
            self._need(name, (view.before, image), user, AclOperation.WRITE, AclResource.TOPIC, topic)
            self._on_bytes(name, view, image, user.name, len(value or b""))

    def _need(
        self,
        name: str,
        images: Iterable[MetadataImage],
        user: User,
        operation: AclOperation,
        resource: AclResource,
        what: str,
    ) -> None:
        if not any(may(image, user.principal, user.host, operation, resource, what) for image in images):
            raise Violation(f"an effect without a right: {user.name} may not {operation.name} {what}, {name} served it")

    # -- quotas

    def _on_bytes(self, name: str, view: _View, image: MetadataImage, user: str, size: int) -> None:
        quota = self._quota
        if user != quota.user or (("user", user),) not in image.security.quotas:
            return
        now_us = self._world.now_us
        written = view.written.setdefault(user, deque())
        written.append((now_us, size))
        while written[0][0] < now_us - _RATE_WINDOW_US:
            written.popleft()
        total = sum(each for _, each in written)
        # The two windows of the rate are empty at first, so they admit two seconds of the quota once.
        limit = quota.bytes_per_s * (_RATE_WINDOW_US // SECOND_US + 2) * 6 // 5 + quota.burst_bytes
        if total > limit:
            raise Violation(f"more than its quota: {user} wrote {total} bytes in 4 s to {name}, at most {limit}")

    # -- decisions of a controller

    def on_decision(self, _: RareEvent, call: Call) -> None:
        """Checks the topics of a decision. It is called within the event, and fails at its end."""
        process = self._world.running
        if process is None or self.failure is not None:
            return
        name = process.name.partition(".")[0]
        view = self._views.get(name)
        if view is None:
            return
        for record, _version in call.argument(0, "records"):
            if isinstance(record, TopicRecord) and record.name.startswith(MADE):
                self.counts["topics"] += 1
                user = self._users[record.name.split("-")[1]]
                self._within_event(partial(self._need_to_create, name, view, user, record.name))

    def _need_to_create(self, name: str, view: _View, user: User, made: str) -> None:
        images = (view.before, view.broker.metadata.image)
        for resource, what in ((AclResource.CLUSTER, "kafka-cluster"), (AclResource.TOPIC, made)):
            if any(may(image, user.principal, user.host, AclOperation.CREATE, resource, what) for image in images):
                return
        raise Violation(f"an effect without a right: {user.name} may not CREATE {made}, {name} decided it")

    def _within_event(self, check: Callable[[], None]) -> None:
        """Checks something in the middle of an event of a node; a violation is raised at its end."""
        try:
            check()
        except Violation as broken:
            self.failure = self.failure or str(broken)

    # -- what a node sends

    def sent(self, socket: Socket, data: bytes) -> None:
        user = self._by_address.get(socket.remote[0])
        name = socket.process.name.partition(".")[0]
        view = self._views.get(name)
        if user is None or view is None:
            return
        frames, times = self._sent.setdefault((socket.local, socket.remote), (Frames(), []))
        times += [self._world.now_us] * len(frames.take(data))
        for topic in TOPICS:
            if f"to:{topic}|".encode() in data:
                self._within_event(partial(self._on_read, name, view, user, topic))

    def _on_read(self, name: str, view: _View, user: User, topic: str) -> None:
        self.counts["reads"] += 1
        images = (view.before, view.broker.metadata.image)
        self._need(name, images, user, AclOperation.READ, AclResource.TOPIC, topic)

    def answered(self, answer: Answered) -> None:
        """Takes a response that a user got. A response behind one with a throttle time must have left its node
        after that time."""
        key = (answer.socket.remote, answer.socket.local)
        throttle_ms = self._throttled_ms.pop(key, 0)
        _, times = self._sent.get(key, (None, []))
        place = answer.place
        if throttle_ms and place < len(times):
            self.counts["mutes"] += 1
            pause_us = times[place] - times[place - 1]
            if pause_us < throttle_ms * MILLISECOND_US - _TOLERANCE_US:
                pause_ms = pause_us // MILLISECOND_US
                self.failure = self.failure or (
                    f"a muted connection was served {pause_ms} ms after a response with throttle_time_ms={throttle_ms}"
                )
        time_ms = getattr(answer.response, "throttle_time_ms", 0)
        if time_ms > 0:
            self._throttled_ms[key] = time_ms

    # -- log-ins

    def logged_in(self, node: str, user: str, mechanism: int, stored_key: bytes, since_us: int) -> None:
        """Checks a log-in that succeeded: an image of this time must have had this credential."""
        self.counts["log-ins"] += 1
        view = self._views.get(node)
        if view is None:
            return
        images = [image for at, image in view.images if at >= since_us]
        images += [image for at, image in view.images if at < since_us][-1:]
        if any(
            (found := image.security.scram.get((mechanism, user))) is not None and found.stored_key == stored_key
            for image in images
        ):
            return
        self.failure = self.failure or f"a log-in without credentials: {user} at {node}"
