"""raft-metrics: the metadata quorum as this node sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import GAUGE, Family, Number, labelled, single
from barnabas.raft.quorum import Candidate, Follower, Leader, Prospective, QuorumState, Resigned, Unattached

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_PREFIX: Final = "kafka_server_raft_metrics_"
#: Kafka's names of the states; a follower that is not a voter is an observer.
_STATES: Final = {
    Leader: "leader",
    Follower: "follower",
    Candidate: "candidate",
    Prospective: "prospective",
    Unattached: "unattached",
    Resigned: "resigned",
}


def collect(broker: Broker) -> Iterator[Family]:
    raft = broker.quorum.raft
    quorum = raft.quorum
    voted = getattr(quorum.role, "voted", None)
    gauges: tuple[tuple[str, str, Number], ...] = (
        ("current_epoch", "Epoch of the quorum", raft.epoch),
        ("current_leader", "Leader of the quorum; -1 if none is known", raft.leader_id),
        (
            "current_vote",
            "Node that this node voted for in this epoch; -1 if none",
            -1 if voted is None else voted.node_id,
        ),
        ("high_watermark", "High watermark of the metadata log", raft.high_watermark),
        ("log_end_offset", "Log end offset of this node's metadata log", raft.log_end_offset),
        ("log_end_epoch", "Epoch of the last record of this node's metadata log", raft.log.latest_epoch),
        ("number_of_voters", "Voters of the quorum", len(raft.voter_ids)),
    )
    for name, text, value in gauges:
        yield single(_PREFIX + name, GAUGE, text, value)
    if broker.config.is_controller:
        yield single(
            "kafka_controller_kafkacontroller_lastcommittedrecordoffset",
            GAUGE,
            "Offset of the last committed metadata record",
            raft.high_watermark - 1,
        )
    yield labelled(
        f"{_PREFIX}current_state", GAUGE, "1 for the state of this node in the quorum", "state", [(_state(quorum), 1)]
    )


def _state(quorum: QuorumState) -> str:
    state = _STATES[type(quorum.role)]
    return "observer" if state == "follower" and not quorum.is_voter else state
