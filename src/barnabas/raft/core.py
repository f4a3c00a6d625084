"""The state that all parts of a quorum node share: ports, identity, log, role, and how they learn a new epoch.

A part processes an event and adds the resulting actions to `draft`; it neither writes to the disk nor sends. Its timers
are events: the actions in `draft` are carried out when a callback returns (`raft.node`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, FatalFault, StorageFault, is_exhausted
from barnabas.common.host import Host
from barnabas.common.reports import LimitedReports
from barnabas.protocol.message import Message
from barnabas.raft.delivery import Delivery
from barnabas.raft.log_checkpoint import VotingRestriction
from barnabas.raft.log_health import LogHealth
from barnabas.raft.messages import endpoints_in
from barnabas.raft.metadata_log import MetadataLog
from barnabas.raft.peers import Address, EventTimers, Peers, Reply
from barnabas.raft.quorum import Endpoints, Leader, QuorumState
from barnabas.raft.quorum_state import NONE
from barnabas.raft.ready import ReadyDraft, Request
from barnabas.raft.snapshots import SnapshotFiles
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import VoterKey, address_on

#: The restrictions of a voter that does not vote before it has caught up.
_RESTRICTIONS: Final = frozenset({VotingRestriction.BEHIND, VotingRestriction.NEW})


T = TypeVar("T")


class QuorumTimes(NamedTuple):
    """The settings `controller.quorum.*`, in ms."""

    election_timeout_ms: int
    election_backoff_max_ms: int
    fetch_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int

    @staticmethod
    def of(config: BrokerConfig) -> QuorumTimes:
        return QuorumTimes(
            config.int_of("controller.quorum.election.timeout.ms"),
            config.int_of("controller.quorum.election.backoff.max.ms"),
            config.int_of("controller.quorum.fetch.timeout.ms"),
            config.int_of("controller.quorum.request.timeout.ms"),
            max(config.int_of("controller.quorum.retry.backoff.ms"), 1),
        )


class Identity(NamedTuple):
    """The identity of a node in the quorum: cluster id, voter key, endpoints and directory."""

    cluster_id: str
    key: VoterKey
    #: The endpoints where the other nodes reach this one; empty if it is not a controller.
    endpoints: Endpoints
    #: The log directory that contains the metadata log.
    log_dir: str
    #: The listener by which voters reach each other: the first of `controller.listener.names`.
    listener: str


class Core:
    """The state shared by the parts of one node; complete after `open`."""

    def __init__(
        self,
        host: Host,
        run: Callable[[Callable[[], None]], None],
        peers: Peers,
        times: QuorumTimes,
        identity: Identity,
        delivery: Delivery,
        log_health: LogHealth,
    ) -> None:
        """Creates the core. `run` executes a step as an event, and then carries out the actions that the step added to
        `draft`.
        """
        self.host = host
        self.run = run
        #: Timers whose callbacks are events.
        self.timers = EventTimers(host.timers, run)
        self.log_health = log_health
        self._peers = peers
        #: The actions that the current event has added so far.
        self.draft = ReadyDraft()
        self.times = times
        self.cluster_id = identity.cluster_id
        self.own = identity.key
        self.own_endpoints = identity.endpoints
        self._log_dir = identity.log_dir
        self.listener = identity.listener
        self.delivery = delivery
        #: Whether startup is complete. A node that is the only voter is then the leader, or startup has failed.
        self.has_begun = False
        self.is_stopped = False
        #: The addresses to ask for the leader, in addition to those of the voters.
        self.bootstrap: tuple[Address, ...] = ()
        self._log: MetadataLog | None = None
        self._quorum: QuorumState | None = None
        #: The callbacks before the process ends because the disk of the metadata log failed.
        self.disk_listeners: list[Callable[[], None]] = []
        #: Whether this node has followed a leader since its start.
        self.has_joined = False
        self._duplicate_ids: set[int] = set()
        self._limited = LimitedReports(host.faults, host.clock)
        self._refusals: set[tuple[str, ErrorCode]] = set()

    def open(self, log: MetadataLog, quorum: QuorumState) -> None:
        self._log = log
        self._quorum = quorum
        self.files = SnapshotFiles(self.host.disk, log.directory)

    @property
    def is_open(self) -> bool:
        return self._quorum is not None

    @property
    def log(self) -> MetadataLog:
        assert self._log is not None, "the raft node is not started"
        return self._log

    @property
    def quorum(self) -> QuorumState:
        assert self._quorum is not None, "the raft node is not started"
        return self._quorum

    @property
    def history(self) -> VoterHistory:
        return self.quorum.history

    @property
    def last(self) -> tuple[int, int]:
        """The (epoch, end offset) of the log, which elections compare."""
        return self.log.latest_epoch, self.log.end_offset

    @property
    def now_ms(self) -> int:
        return self.host.clock.now_ms()

    @property
    def can_be_candidate(self) -> bool:
        """Whether this node can start an election: it is a voter, or its removal is not known to be committed.

        A removal may never be committed without the removed voter, because its log can be the only one with the record,
        and longer than the others (Raft dissertation, 4.2.2).
        """
        quorum = self.quorum
        if self.is_restricted and not (quorum.restriction is VotingRestriction.NEW and self.log.end_offset == 0):
            return False
        is_open = self.delivery.high_watermark <= quorum.history.voters_offset
        return quorum.is_voter or (is_open and quorum.was_voter)

    # A voter that may have lost records that it acknowledged.

    @property
    def is_restricted(self) -> bool:
        """Whether this node must catch up before it votes. The only voter has no other node to catch up with."""
        return self.quorum.restriction in _RESTRICTIONS and not self.quorum.is_alone

    @property
    def is_of_new_cluster(self) -> bool:
        """Whether this voter's log is empty, and its directory was formatted for a new cluster."""
        return self.quorum.restriction is VotingRestriction.NEW_CLUSTER and self.log.end_offset == 0

    def may_vote_for(self, candidate_id: int, last_offset: int, *, is_of_new_cluster: bool) -> bool:
        """Returns whether the restriction of this voter permits the vote.

        Voters with empty logs elect the first leader of a new quorum. Those whose directories were formatted for a new
        cluster elect one of themselves, and so do the others: in a quorum with both kinds, the directories of the
        others replace lost ones.
        """
        is_first = last_offset == self.log.end_offset == 0
        if self.is_of_new_cluster and is_first:
            if is_of_new_cluster:
                return True
            why = f"was formatted for a new cluster, and that of node {candidate_id} was not"
        elif not self.is_restricted:
            return True
        elif self.quorum.restriction is VotingRestriction.BEHIND:
            why = "lacks records that it may have acknowledged"
        elif is_first and not is_of_new_cluster:
            return True
        else:
            why = "is new"
        self._limited.inform(
            "held",
            f"this voter does not vote for node {candidate_id}: its metadata log {why}; it votes again when it has "
            "caught up with a leader",
        )
        return False

    def lift_restriction(self) -> None:
        """Ends the voting restriction: this voter votes from now on."""
        quorum = self.quorum
        if quorum.restriction not in _RESTRICTIONS:
            return
        self.draft.lift_restriction()
        if quorum.restriction is VotingRestriction.BEHIND and not quorum.is_alone:
            self.host.faults.inform(
                f"the metadata log has caught up with node {quorum.leader_id} at offset {self.log.flushed_offset}: "
                "this voter votes again"
            )
        quorum.restriction = VotingRestriction.NONE

    def election_timeout_ms(self) -> int:
        """Returns a random timeout, so that voters do not start elections at the same time."""
        base_ms = self.times.election_timeout_ms
        return base_ms + self.host.random.below(max(base_ms, 1))

    # Addresses of the other nodes.

    def address_of(self, node_id: int) -> Address | None:
        return self.quorum.voters.address_of(node_id, self.listener)

    def leader_address(self, listener: str | None = None) -> Address | None:
        """Returns the leader's address on this listener, by default on the voters' listener."""
        listener = self.listener if listener is None else listener
        leader_id = self.quorum.leader_id
        if leader_id == self.own.node_id:
            return address_on(self.own_endpoints, listener)
        known = address_on(self.quorum.leader_endpoints, listener)
        return known if known is not None else self.quorum.voters.address_of(leader_id, listener)

    # Epochs and leaders learned from others.

    def learn(self, epoch: int, leader_id: int, endpoints: Endpoints, *, from_leader: bool = False) -> None:
        """Adopts an epoch, and its leader if known, from a message. `from_leader`: the leader sent the message."""
        quorum = self.quorum
        known = leader_id not in (NONE, self.own.node_id)
        if epoch > quorum.epoch:
            if known:
                quorum.become_follower(epoch, leader_id, self._endpoints_of(leader_id, endpoints))
            else:
                quorum.become_unattached(epoch)
        elif epoch == quorum.epoch and known and not isinstance(quorum.role, Leader):
            # An observer learns the leader's address from any node; a voter only from the leader itself.
            is_trusted = from_leader or not quorum.is_voter
            if quorum.leader_id == NONE or (is_trusted and quorum.leader_id == leader_id):
                quorum.become_follower(epoch, leader_id, self._endpoints_of(leader_id, endpoints))
            elif quorum.leader_id != leader_id:
                self.host.faults.report(
                    f"node {leader_id} is reported as leader of epoch {epoch} of the metadata quorum, "
                    f"but the leader is {quorum.leader_id}"
                )

    def _endpoints_of(self, leader_id: int, endpoints: Endpoints) -> Endpoints:
        if endpoints:
            return endpoints
        voter = self.quorum.voters.by_id(leader_id)
        return () if voter is None else voter.endpoints

    def learn_from(self, code: int, epoch: int, leader_id: int, endpoints: Endpoints) -> bool:
        """Adopts epoch and leader from a response, and returns whether the rest of the response is to be processed.

        The rest is skipped if the response belongs to an old epoch, or if this node has just learned of a newer epoch
        from it.
        """
        if epoch < self.quorum.epoch or code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False
        has_changes = epoch > self.quorum.epoch
        self.learn(epoch, leader_id, endpoints)
        return not has_changes and code not in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def leader_endpoints_in(self, response: object, leader_id: int) -> Endpoints:
        return endpoints_in(response, leader_id, self.listener)

    def report_refusal(self, node: int | Address, response: Any) -> None:
        """Reports a peer that rejects this node's requests; once for each peer and error."""
        code = ErrorCode(response.error_code)
        who = f"node {node}" if isinstance(node, int) else f"{node[0]}:{node[1]}"
        if (who, code) in self._refusals:
            return
        self._refusals.add((who, code))
        if code is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            self.host.faults.report(f"{who} of the metadata quorum responds with {code.name}")
            return
        message = (
            f"{who} of the metadata quorum belongs to another cluster than this node ({self.cluster_id}): correct "
            "controller.quorum.bootstrap.servers or controller.quorum.voters, or format this node for that cluster"
        )
        if self.has_joined:
            self.host.faults.report(message)
        else:
            self.host.faults.fatal(message)

    def report_duplicate_ids(self, node_ids: Sequence[int]) -> None:
        """Reports voters whose node id two processes use; once for each id. The fetches of both processes count for the
        same voter.
        """
        for node_id in node_ids:
            if node_id not in self._duplicate_ids:
                self._duplicate_ids.add(node_id)
                self.host.faults.report(
                    f"two processes of the metadata quorum have node.id {node_id}, in different directories: stop one "
                    "of them and give it another id"
                )

    def is_other_cluster(self, cluster_id: str | None) -> bool:
        """Returns whether a request comes from another cluster. Older peers do not send a cluster id."""
        return cluster_id is not None and cluster_id != self.cluster_id

    def leader_only(self, epoch: int) -> ErrorCode:
        """Returns the error code with which a request for the leader of `epoch` is refused here; NONE if it can be
        served.
        """
        if epoch < self.quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(self.quorum.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # Actions for `draft`.

    def send(
        self, address: Address, message: Message, reply: Reply, *, timeout_ms: int | None = None, durable_end: int = 0
    ) -> None:
        """Sends a request to another node at the end of the event. `reply` is called in a separate event."""
        timeout_ms = self.times.request_timeout_ms if timeout_ms is None else timeout_ms
        self.draft.send(Request(address, message, reply, timeout_ms, durable_end))

    def is_refused(self, address: Address) -> bool:
        """Returns whether the last connection to this address was refused, so that no process listens there."""
        return self._peers.is_refused(address)

    def commit(self, high_watermark: int, *, is_all: bool) -> None:
        """Advances the high watermark now, and delivers the records below it at the end of the event."""
        self.delivery.note_high_watermark(high_watermark)
        self.draft.commit(high_watermark, is_all=is_all)

    # Failures of the disk.

    def guard(self, action: Callable[[], T]) -> T:
        """Returns the result of `action`; a failure of the disk ends this node, because it cannot take part without its
        metadata log.
        """
        try:
            return action()
        except (StorageFault, OSError) as error:
            self.fail(error)

    def persisting(self, step: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
        """Runs a step that writes to the disk. On a full disk the state is unchanged, and `otherwise` retries."""
        try:
            step()
        except (StorageFault, OSError) as error:
            self.report_unsaved_promise(error)
            if otherwise is not None:
                otherwise()

    def report_unsaved_promise(self, error: BaseException) -> None:
        """Reports that a promise of this voter could not be saved on a full disk; any other error ends the node."""
        if not is_exhausted(error):
            self.fail(error)
        text = f"this voter does not vote, because it has no space to save its vote: {error}"
        self.log_health.reports.report("no promise", text, error)

    def fail(self, error: BaseException) -> NoReturn:
        message = f"the metadata log in {self._log_dir} failed: {error}"
        if isinstance(error, OSError | StorageFault):
            for callback in self.disk_listeners:
                callback()
        self.host.faults.fatal(message, error)
        raise FatalFault(message) from error
