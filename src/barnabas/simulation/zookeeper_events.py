"""Rare events of ZooKeeper mode: sessions, claims, fenced writes, topics and brokers as the controller finds them."""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.controller.zookeeper.claim import Beaten, Won
from barnabas.controller.zookeeper.lifecycle import ControllerSignal
from barnabas.simulation.rare_events import Call, Need, RareEvent

_ZOOKEEPER: Final = frozenset({Need.ZOOKEEPER})
_BROKERS: Final = frozenset({Need.ZOOKEEPER, Need.BROKERS})
_SESSION: Final = "zookeeper.client.session:Session."
_CLAIM: Final = "controller.zookeeper.claim:"
_WRITER: Final = "controller.zookeeper.fenced_writer:FencedWriter."
_WATCH: Final = "controller.zookeeper.broker_watch:BrokerWatch."
_TOPICS: Final = "controller.zookeeper.topic_watch:TopicWatch."
_DELETIONS: Final = "controller.zookeeper.deletions:TopicDeletions."
_QUEUES: Final = "controller.zookeeper.broker_queues:BrokerQueues."
_READER: Final = "controller.zookeeper.znode_reader:ZnodeReader."
_SERVER: Final = "zookeeper.server.zookeeper_server:ZooKeeperServer."
_FEED: Final = "broker.zookeeper.controller_feed:ControllerFeed."

SESSIONS: Final = (
    RareEvent("a session with ZooKeeper expires", f"{_SESSION}_expire", needs=_ZOOKEEPER),
    RareEvent(
        "a session with ZooKeeper continues on another connection",
        f"{_SESSION}_on_connect_response",
        lambda call: call.before and call.subject.session_id == call.before,
        lambda call: call.subject.session_id,
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "a connection to ZooKeeper is lost",
        f"{_SESSION}cut",
        lambda call: bool(call.before),
        lambda call: call.subject.is_connected,
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "ZooKeeper is silent for too long",
        f"{_SESSION}cut",
        lambda call: call.arguments[0].startswith("no byte"),
        needs=_ZOOKEEPER,
    ),
    RareEvent("the ZooKeeper server ends a session", f"{_SERVER}_expire", needs=_ZOOKEEPER),
    RareEvent(
        "a client names a session that is gone",
        f"{_SERVER}_continue_session",
        lambda call: call.before is None,
        lambda call: call.subject.tracker.find(call.arguments[1].session_id),
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "a session moves to another connection",
        f"{_SERVER}_continue_session",
        lambda call: call.before is not None,
        lambda call: call.subject._of_sessions.get(call.arguments[1].session_id),
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "the log of the ZooKeeper server is cut at a start", "zookeeper.files.txn_recovery:_cut", needs=_ZOOKEEPER
    ),
    RareEvent(
        "a broker waits for the end of its last session",
        "broker.zookeeper.registration:Registrar._await_deletion",
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "a broker deletes its own earlier registration",
        "broker.zookeeper.registration:Registrar._delete",
        needs=_ZOOKEEPER,
    ),
)


def _pending_writes(call: Call) -> Any:
    """Returns the writes of a refused unit that have not been made yet."""
    attempt, found = call.arguments
    writes = attempt.units[0].writes
    return [write for write in writes if not call.subject._is_done(attempt, write, found[write.path])]


WRITES: Final = (
    RareEvent(
        "a claim loses",
        f"{_CLAIM}Claim._end",
        lambda call: isinstance(call.arguments[0], Beaten),
        needs=_BROKERS,
    ),
    RareEvent("a claim is read back", f"{_CLAIM}Claim._read_back", needs=_BROKERS),
    RareEvent(
        "a claim won although its answer was lost",
        f"{_CLAIM}judge",
        lambda call: isinstance(call.result, Won),
        needs=_ZOOKEEPER,
    ),
    RareEvent("a claim begins again", f"{_CLAIM}judge", lambda call: call.result is None, needs=_BROKERS),
    RareEvent("the answer to a controller's write is lost", f"{_WRITER}_lost", needs=_ZOOKEEPER),
    RareEvent("a group of writes is refused", f"{_WRITER}_split", needs=_ZOOKEEPER),
    RareEvent(
        "a write is refused because it was done before",
        f"{_WRITER}_judge",
        lambda call: call.before == [],
        _pending_writes,
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "a write of a deposed controller is refused",
        f"{_WRITER}_on_reply",
        lambda call: not call.before and call.subject.is_closed and call.arguments[1].refused_part == 0,
        lambda call: call.subject.is_closed,
        needs=_BROKERS,
    ),
    RareEvent(
        "a decision conflicts with another client's write",
        "controller.zookeeper.record_store:RecordStore._on_settled",
        lambda call: bool(call.arguments[1]),
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "the session of the controller expires",
        "controller.zookeeper.runtime:ZookeeperController.on_signal",
        lambda call: bool(call.before) and call.arguments[0] is ControllerSignal.SESSION_EXPIRED,
        lambda call: call.subject._active is not None,
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "a controller in ZooKeeper mode resigns",
        "controller.zookeeper.runtime:ZookeeperController._resign",
        lambda call: bool(call.before),
        lambda call: call.subject._active is not None,
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "the controller waits for its connection to ZooKeeper",
        "controller.zookeeper.active_controller:ActiveController.suspend",
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "a broker finds the controller's process gone",
        "controller.zookeeper.succession:Succession._depose",
        needs=_BROKERS,
    ),
)

CLUSTER: Final = (
    RareEvent(
        "a broker's process is found to be gone before its session ends",
        f"{_WATCH}_process_gone",
        lambda call: call.subject._without_process.get(call.arguments[0]) == call.arguments[1],
        needs=_BROKERS,
    ),
    RareEvent(
        "a broker that was believed to be gone answers",
        f"{_WATCH}_process_answers",
        lambda call: call.before == call.arguments[1],
        lambda call: call.subject._without_process.get(call.arguments[0]),
        needs=_BROKERS,
    ),
    RareEvent("a broker leaves the image of the controller", f"{_WATCH}_gone", needs=_BROKERS),
    RareEvent("a topic is deleted by its marker", f"{_DELETIONS}_begin", needs=_ZOOKEEPER),
    RareEvent("the znodes of a topic are deleted singly", f"{_DELETIONS}_delete_singly", needs=_ZOOKEEPER),
    RareEvent(
        "a broker joins while a topic is deleted",
        f"{_DELETIONS}broker_joined",
        lambda call: bool(call.subject._begun),
        needs=_BROKERS,
    ),
    RareEvent("a deletion marker has no topic", f"{_DELETIONS}_end_if_absent", needs=_ZOOKEEPER),
    RareEvent("a topic is read again", f"{_TOPICS}read_again", needs=_ZOOKEEPER),
    RareEvent(
        "a topic is read again after decisions that are under way",
        f"{_TOPICS}read_again",
        lambda call: bool(call.before),
        lambda call: call.subject._core.records.is_pending(call.arguments[0]),
        needs=_ZOOKEEPER,
    ),
    RareEvent("a topic without an id gets one", f"{_TOPICS}_write_topic_id", needs=_ZOOKEEPER),
    RareEvent(
        "requests to a broker that is gone are dropped",
        f"{_QUEUES}end",
        lambda call: bool(call.before),
        lambda call: bool(getattr(call.subject._queues.get(call.arguments[0]), "items", ())),
        needs=_BROKERS,
    ),
    RareEvent(
        "a request of the controller is sent again",
        f"{_QUEUES}_try",
        lambda call: bool(call.before),
        lambda call: call.arguments[1].timer is not None,
        needs=_BROKERS,
    ),
    RareEvent(
        "the answer to a read of a znode is lost",
        f"{_READER}_ended",
        lambda call: bool(call.argument(1, "is_lost")) and not call.subject._is_closed,
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "a znode changes while it is read",
        f"{_READER}_ended",
        lambda call: bool(call.before) and not call.argument(1, "is_lost"),
        lambda call: call.arguments[0].again,
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "elections are requested by a znode",
        "controller.zookeeper.admin_znode_requests:PreferredElectionZnode._elect",
        needs=_ZOOKEEPER,
    ),
    RareEvent(
        "moves are requested by a znode",
        "controller.zookeeper.admin_znode_requests:ReassignmentZnode._begin",
        lambda call: bool(call.subject._asked),
        needs=_BROKERS,
    ),
    RareEvent(
        "a request of an earlier controller is refused",
        f"{_FEED}_refusal",
        lambda call: call.result is ErrorCode.STALE_CONTROLLER_EPOCH,
        needs=_BROKERS,
    ),
    RareEvent(
        "a request for an earlier incarnation is refused",
        f"{_FEED}_refusal",
        lambda call: call.result is ErrorCode.STALE_BROKER_EPOCH,
        needs=_BROKERS,
    ),
    RareEvent(
        "a role of an earlier leader epoch is refused",
        f"{_FEED}_role_refusal",
        lambda call: call.result is ErrorCode.STALE_CONTROLLER_EPOCH,
        needs=_BROKERS,
    ),
    # No row for a role for another topic of the same name: a topic's name is free only when no broker has its log,
    # unless somebody removes its znodes by hand, for which nothing is promised.
    RareEvent(
        "a replica stops without losing its log",
        "replication.replica_manager:ReplicaManager.remove",
        lambda call: call.named.get("delete") is False,
        needs=_BROKERS,
    ),
)

ZOOKEEPER_EVENTS: Final = (*SESSIONS, *WRITES, *CLUSTER)
