"""The causes of metadata changes, as a code and a sentence each.

The cause comes with the controller's decision. Where another controller decided, and its cause was lost with it, the
cause is inferred from the change itself, as far as that is possible. Codes are for programs and stay the same from
release to release; sentences are for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.common.types import uuid_to_text
from barnabas.controller.requests.result import Cause, ControllerEvent
from barnabas.metadata.image import MetadataDelta
from barnabas.metadata.topics import NO_LEADER, PartitionImage
from barnabas.replication.isr_reasons import IsrReason, ReplicaLag, read_reason

UNKNOWN: Final = "unknown"


class EventCause(NamedTuple):
    """The cause of one change.

    `actor` is the node or client that observed or requested the change. `is_inferred` is set where the cause was lost
    with the controller that decided and was inferred from the change.
    """

    code: str
    text: str
    actor: str
    is_inferred: bool = False
    seen: IsrReason | None = None


#: Code and sentence of each event.
CAUSES: Final[Mapping[ControllerEvent, tuple[str, str]]] = {
    ControllerEvent.PROCESS_GONE: ("broker-gone", "{detail} was fenced: no process listens at its address"),
    ControllerEvent.SESSION_EXPIRED: (
        "session-expired",
        "{detail} was fenced: it sent no heartbeat for broker.session.timeout.ms",
    ),
    ControllerEvent.FENCED_ON_REQUEST: ("fence-asked", "{actor} asked to be fenced"),
    ControllerEvent.CONTROLLED_SHUTDOWN: ("controlled-shutdown", "{actor} shuts down cleanly"),
    ControllerEvent.UNFENCED: ("broker-back", "{actor} is up and has caught up with the metadata: it was unfenced"),
    ControllerEvent.BROKER_HEARTBEAT: ("directory-lost", "{actor} reported a failed log directory"),
    ControllerEvent.REFUSES_WRITES: (
        "broker-full",
        "{actor} cannot write to {detail}, which is full, slow or hangs: its replicas there leave the ISR, and "
        "leadership moves to replicas that can write",
    ),
    ControllerEvent.ACCEPTS_WRITES: ("broker-writable", "{actor} can write to all its log directories again"),
    ControllerEvent.ALTER_PARTITION: ("isr-asked", "{actor} requested this ISR as the leader"),
    ControllerEvent.ELECT_LEADERS: ("election-asked", "{actor} requested a {detail} election"),
    ControllerEvent.LEADERS_REBALANCED: ("rebalance", "leadership moves back to the preferred replicas"),
    ControllerEvent.UNCLEAN_ELECTIONS_ALLOWED: (
        "unclean-allowed",
        "no eligible replica could lead, and the topic allows unclean elections",
    ),
    ControllerEvent.ALTER_PARTITION_REASSIGNMENTS: ("reassignment-asked", "{actor} requested to move replicas"),
    ControllerEvent.CREATE_TOPICS: ("create-asked", "{actor} created {detail}"),
    ControllerEvent.DELETE_TOPICS: ("delete-asked", "{actor} deleted {detail}"),
    ControllerEvent.CREATE_PARTITIONS: ("partitions-asked", "{actor} extended {detail} partitions"),
    ControllerEvent.ALTER_CONFIGS: ("config-asked", "{actor} changed the configuration of {detail}"),
    ControllerEvent.CREATE_ACLS: ("acl-asked", "{actor} added {detail}"),
    ControllerEvent.DELETE_ACLS: ("acl-removal-asked", "{actor} removed {detail}"),
    ControllerEvent.ALTER_CLIENT_QUOTAS: ("quota-asked", "{actor} changed the quotas of {detail}"),
    ControllerEvent.UPDATE_FEATURES: ("feature-asked", "{actor} set {detail}"),
    ControllerEvent.ALTER_USER_SCRAM_CREDENTIALS: ("credential-asked", "{actor} changed the credential of {detail}"),
    ControllerEvent.CREATE_DELEGATION_TOKEN: ("token-asked", "{actor} created a delegation token {detail}"),
    ControllerEvent.RENEW_DELEGATION_TOKEN: ("token-renewal-asked", "{actor} renewed delegation token {detail}"),
    ControllerEvent.EXPIRE_DELEGATION_TOKEN: (
        "token-end-asked",
        "{actor} set the end of delegation token {detail}",
    ),
    ControllerEvent.DELEGATION_TOKENS_EXPIRED: ("tokens-expired", "{detail} were removed: they had expired"),
    ControllerEvent.UNREGISTER_BROKER: ("unregister-asked", "{actor} unregistered {detail}"),
    ControllerEvent.ASSIGN_REPLICAS_TO_DIRS: ("directories-named", "{actor} reported the directories of its replicas"),
    ControllerEvent.ACTIVATION: ("activation", "a controller became active: {detail}"),
    ControllerEvent.CONTROLLER_REGISTRATION: ("controller-there", "{actor} has registered"),
    ControllerEvent.ALLOCATE_PRODUCER_IDS: ("producer-ids", "{actor} requested producer ids"),
    ControllerEvent.REGISTRATION_AMENDED: ("broker-amended", "{actor} updated its registration"),
    ControllerEvent.NEW_INCARNATION: ("broker-started", "{actor} has started"),
    ControllerEvent.UNCLEAN_INCARNATION: (
        "unclean-shutdown",
        "{actor} has started after an unclean shutdown: it may have lost unflushed records",
    ),
    ControllerEvent.ZNODE_REGISTERED: ("broker-joined", "{detail} has registered in ZooKeeper"),
    ControllerEvent.ZNODE_SESSION_ENDED: ("session-ended", "{detail} is gone: its session with ZooKeeper has ended"),
    ControllerEvent.ZNODE_PROCESS_ENDED: ("process-ended", "{detail} is gone: no process listens at its address"),
    ControllerEvent.ZNODE_CHANGED: ("znode-changed", "{detail} was changed in ZooKeeper"),
}


def cause_of_change(cause: Cause | None, delta: MetadataDelta) -> EventCause:
    """Returns the cause of a whole change."""
    if cause is None:
        return _inferred(delta)
    code, text = CAUSES[cause.event]
    return EventCause(code, text.format(actor=cause.actor, detail=cause.detail), cause.actor)


def _inferred(delta: MetadataDelta) -> EventCause:
    for broker_id, after in delta.changed_brokers.items():
        before, who = delta.image.brokers.get(broker_id), f"broker {broker_id}"
        if after is None:
            return EventCause("unregister-asked", f"{who} was unregistered", who, True)
        if before is None or before.epoch != after.epoch:
            return EventCause("broker-started", f"{who} has started", who, True)
        if before.fenced and not after.fenced:
            return EventCause(
                "broker-back", f"{who} is up and has caught up with the metadata: it was unfenced", who, True
            )
        if after.in_controlled_shutdown:
            return EventCause("controlled-shutdown", f"{who} shuts down cleanly", who, True)
        if after.fenced and not before.fenced:
            text = f"{who} was fenced; the cause was lost with the controller that decided it"
            return EventCause("broker-fenced", text, who, True)
        if before.unwritable != after.unwritable:
            known = CAUSES[ControllerEvent.REFUSES_WRITES if after.unwritable else ControllerEvent.ACCEPTS_WRITES]
            return EventCause(
                known[0], known[1].format(actor=who, detail=shown_directories(after.unwritable)), who, True
            )
        if set(before.directories) - set(after.directories):
            return EventCause("directory-lost", f"{who} reported a failed log directory", who, True)
    return EventCause(UNKNOWN, "the cause was lost with the controller that decided it", "", True)


def shown_directories(directories: Iterable[bytes]) -> str:
    return "log directory " + ", ".join(uuid_to_text(directory) for directory in directories)


def cause_of_partition(
    whole: EventCause, cause: Cause | None, key: tuple[bytes, int], before: PartitionImage, after: PartitionImage
) -> EventCause:
    """Returns the cause of one partition's part in a change.

    Adds the leader's report about the replicas that joined or left the ISR, and the records that an unclean election
    loses.
    """
    joined = [replica for replica in after.isr if replica not in before.isr]
    left = [replica for replica in before.isr if replica not in after.isr]
    by_leader = whole.code == "isr-asked" or (whole.code == UNKNOWN and after.leader == before.leader != NO_LEADER)
    found = whole
    if by_leader and joined and not left:
        found = _caught_up(whole, cause, key, before.leader, joined)
    elif by_leader and left and not joined and not before.removing_replicas:
        found = _lagged(whole, cause, key, before.leader, left)
    is_moving = bool(after.removing_replicas or after.adding_replicas)
    if by_leader and (before.removing_replicas or before.adding_replicas) and not is_moving:
        text = f"{found.text}; all replicas of the reassignment are now in sync, and it is complete"
        found = found._replace(code="reassignment-done", text=text)
    if is_unclean(before, after):
        had = list(before.isr or before.elr or before.last_known_elr)
        text = f"{found.text}; replica {after.leader} was neither in sync nor eligible: records only on {had} are lost"
        found = found._replace(text=text)
    return found


def is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    """Returns whether the new leader was elected uncleanly and lacks records that other replicas had."""
    if after.leader in (NO_LEADER, before.leader) or after.leader_recovery_state == 0:
        return False
    return after.leader not in (*before.isr, *before.elr)


def _isr_reason(cause: Cause | None, key: tuple[bytes, int]) -> IsrReason | None:
    return None if cause is None else read_reason(cause.isr_reasons.get(key, ()))


def _caught_up(
    whole: EventCause, cause: Cause | None, key: tuple[bytes, int], leader: int, joined: list[int]
) -> EventCause:
    seen = _isr_reason(cause, key)
    text = f"{_brokers(joined)} caught up with leader {leader}"
    if seen is not None:
        members = {member.broker_id: member for member in seen.members}
        ends = [str(members[replica].leo) for replica in joined if replica in members]
        text += f": log end offset {', '.join(ends) or '?'}, the leader's {seen.leader_leo}"
    return whole._replace(code="follower-caught-up", text=text, seen=seen)


def _lagged(whole: EventCause, cause: Cause | None, key: tuple[bytes, int], leader: int, left: list[int]) -> EventCause:
    seen = _isr_reason(cause, key)
    text = f"{_brokers(left)} fell behind leader {leader} for longer than replica.lag.time.max.ms"
    if seen is not None:
        lags = "; ".join(_lag(member) for member in seen.members)
        text += f": {lags}; the leader's log end offset {seen.leader_leo}"
    return whole._replace(code="follower-lagged", text=text, seen=seen)


def _lag(member: ReplicaLag) -> str:
    end = "it has not fetched" if member.leo < 0 else f"log end offset {member.leo}"
    return f"{end}, last caught up with the leader {member.lag_ms} ms before" if member.lag_ms >= 0 else end


def _brokers(ids: list[int]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else "brokers " + ", ".join(map(str, ids))
