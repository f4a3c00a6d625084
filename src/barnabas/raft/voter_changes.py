"""The addition, removal and update of voters while the quorum runs (KIP-853).

    add      the leader queries the new voter's range of kraft.version; it must have caught up; then a VotersRecord
    remove   a VotersRecord without it; a leader that removes itself resigns when that is committed
    update   a voter sends its endpoints and range; a VotersRecord, and an immediate response. Before kraft.version 1
             there is no record: the leader remembers the update for the upgrade
    upgrade  kraft.version 1 for a quorum of static voters that all have fetched: the version, and a VotersRecord with
             their directory ids

Invariants
- One change at a time, and none before this leader has committed a record of its own epoch and the current voters are
  committed: majorities of two successive voter sets always share a voter (guard G18).
- A voter is a node id and a directory id. A node that lost its directory is removed and added again.
- A change for which the log has no space is refused with KAFKA_STORAGE_ERROR, and the voters remain as they were.

Error codes and texts are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID, uuid_to_text
from barnabas.metadata.features import KRAFT_VERSION
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.records_raft import KRaftVersionRecord
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from barnabas.raft.core import Core
from barnabas.raft.leading import Leading
from barnabas.raft.log_health import NO_SPACE
from barnabas.raft.messages import update_voter_request
from barnabas.raft.peers import Alarm
from barnabas.raft.quorum import Follower, Leader, Role
from barnabas.raft.voter_history import KRAFT_VERSION_MAX
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet

AnswerReply = Callable[[Message], None]
_TIMED_OUT = "The request timed out."


class _Pending:
    """A change of the voters that is not committed yet. `last_offset` is None before its record is in the log."""

    __slots__ = ("last_offset", "reply", "response", "voter")

    def __init__(self, voter: Voter | None, response: type[Any], reply: AnswerReply) -> None:
        self.voter = voter
        self.response = response
        self.reply = later(reply)
        self.last_offset: int | None = None


class VoterChanges:
    """The changes of the voter set that this node makes, one at a time."""

    def __init__(self, core: Core, leading: Leading) -> None:
        self._core = core
        self._leading = leading
        self._pending: _Pending | None = None
        self._expiry = Alarm(core.host.clock, core.timers, self._expire)
        self._own_update = Alarm(core.host.clock, core.timers, self._send_own)
        #: Updates that static voters have sent to this leader, by node id.
        self._updates: dict[int, Voter] = {}

    def on_role(self, role: Role) -> None:
        self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        self._updates.clear()
        if isinstance(role, Follower):
            self._own_update.set(self._core.times.fetch_timeout_ms)
        else:
            self._own_update.cancel()

    def stop(self) -> None:
        self._expiry.cancel()
        self._own_update.cancel()

    def on_committed(self) -> None:
        """Completes the pending change if the high watermark has passed it; a leader that was removed resigns."""
        core = self._core
        leader = core.quorum.role
        assert isinstance(leader, Leader)
        pending, high_watermark = self._pending, leader.progress.high_watermark
        if pending is not None and pending.last_offset is not None and high_watermark > pending.last_offset:
            self._finish(ErrorCode.NONE, None)
        if not core.quorum.is_voter and core.history.voters_offset < high_watermark:
            core.quorum.become_resigned()

    def on_refused(self) -> None:
        """Refuses the pending change if the log had no space for its record; the voters are as before."""
        if self._pending is not None and self._pending.last_offset is not None:
            self._finish(ErrorCode.KAFKA_STORAGE_ERROR, NO_SPACE)

    # Requests.

    def add(self, request: AddRaftVoterRequest, reply: AnswerReply) -> None:
        core = self._core
        key = VoterKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners)
        refusal = self._refusal(request.cluster_id, core.quorum.epoch)
        if refusal is None and (key.node_id < 0 or key.directory_id == ZERO_UUID):
            refusal = ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"
        address = next(((e.host, e.port) for e in endpoints if e.name == core.listener), None)
        if refusal is None and address is None:
            shown = {e.name: f"{e.host}:{e.port}" for e in endpoints}
            refusal = (
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint ({shown}) for the default listener {core.listener}",
            )
        refusal = refusal or self._not_now("adding voter")
        if refusal is None and core.quorum.voters.by_id(key.node_id) is not None:
            refusal = (
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {_show(key)} is already part of the set of voters {_show_all(core.quorum.voters)}.",
            )
        if refusal is not None:
            core.draft.answer(reply, AddRaftVoterResponse(error_code=refusal[0], error_message=refusal[1]))
            return
        assert address is not None
        pending = self._pending = _Pending(Voter(key, endpoints), AddRaftVoterResponse, reply)
        self._expiry.set(core.times.request_timeout_ms)
        query = ApiVersionsRequest(client_software_name="barnabas", client_software_version="raft")
        core.send(address, query, lambda response: self._on_versions(pending, response))

    def _on_versions(self, pending: _Pending, response: Message | None) -> None:
        core = self._core
        if self._pending is not pending or core.is_stopped or pending.voter is None:
            return
        leader = core.quorum.role
        assert isinstance(leader, Leader)
        key = pending.voter.key
        if not isinstance(response, ApiVersionsResponse) or response.error_code:
            code = "NETWORK_EXCEPTION" if response is None else "an error"
            self._finish(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for since API_VERSIONS returned an error {code}",
            )
            return
        known = next((feature for feature in response.supported_features if feature.name == KRAFT_VERSION), None)
        low, high = (0, 0) if known is None else (known.min_version, known.max_version)
        if not low <= core.history.kraft_version <= high:
            self._finish(
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {_show(key)} since the {KRAFT_VERSION} range (min: {low}, "
                f"max: {high}) doesn't support the finalized version {core.history.kraft_version}",
            )
        elif not leader.progress.is_caught_up(key, core.now_ms):
            self._finish(
                ErrorCode.REQUEST_TIMED_OUT, f"Aborted add voter operation for {_show(key)} since it is lagging behind"
            )
        else:
            voter = pending.voter._replace(min_kraft_version=low, max_kraft_version=high)
            self._append(pending, core.quorum.voters.with_voter(voter))

    def remove(self, request: RemoveRaftVoterRequest, reply: AnswerReply) -> None:
        core = self._core
        key = VoterKey(request.voter_id, request.voter_directory_id)
        refusal = self._refusal(request.cluster_id, core.quorum.epoch)
        if refusal is None and (key.node_id < 0 or key.directory_id == ZERO_UUID):
            refusal = ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
        refusal = refusal or self._not_now("removing voter")
        voters = core.quorum.voters
        if refusal is None and (len(voters) == 1 or key not in [voter.key for voter in voters]):
            text = f"Cannot remove voter {_show(key)} from the set of voters {_show_all(voters)}"
            refusal = ErrorCode.VOTER_NOT_FOUND, text
        if refusal is not None:
            core.draft.answer(reply, RemoveRaftVoterResponse(error_code=refusal[0], error_message=refusal[1]))
            return
        pending = self._pending = _Pending(None, RemoveRaftVoterResponse, reply)
        self._expiry.set(core.times.request_timeout_ms)
        self._append(pending, voters.without(key))

    def upgrade_refusal(self) -> str | None:
        """Returns why kraft.version cannot be raised to 1 now; None if it can. Only the leader's result counts."""
        core = self._core
        leader = core.quorum.role
        if not isinstance(leader, Leader) or leader.progress.high_watermark < 0 or self._pending is not None:
            return "The leader of the metadata quorum is not ready for it."
        missing = [state.key.node_id for state in leader.progress.voters if state.directory_id == ZERO_UUID]
        missing = [node_id for node_id in missing if node_id not in self._updates]
        if missing:
            return (
                f"The directory ids of the voters {', '.join(map(str, missing))} are not known: they have not fetched "
                f"from the leader, {core.own.node_id}."
            )
        old = [node_id for node_id, update in sorted(self._updates.items()) if update.max_kraft_version < 1]
        if old:
            return f"The voters {', '.join(map(str, old))} do not support it."
        return None

    def upgrade(self) -> bool:
        """Raises kraft.version from 0 to 1: from now on the voters are in the log, and can be changed. Returns False if
        the log has no space for it.
        """
        assert self.upgrade_refusal() is None, "the caller checks `upgrade_refusal` first"
        core = self._core
        leader = core.quorum.role
        assert isinstance(leader, Leader)
        directories = {state.key.node_id: state.directory_id for state in leader.progress.voters}
        voters = VoterSet(tuple(self._upgraded(voter, directories[voter.key.node_id]) for voter in core.quorum.voters))

        def append() -> None:
            self._leading.append_control([KRaftVersionRecord(version=0, kraft_version=1), voters.to_record()])
            self._leading.publish()

        core.run(append)
        return core.history.kraft_version > 0

    def _upgraded(self, voter: Voter, directory_id: bytes) -> Voter:
        """Returns a static voter as the first VotersRecord lists it.

        The directory id of its fetches takes precedence over the one it has sent, which can be outdated.
        """
        update, node_id = self._updates.get(voter.key.node_id), voter.key.node_id
        endpoints, low, high = voter.endpoints, 0, KRAFT_VERSION_MAX
        if node_id == self._core.own.node_id:
            endpoints = self._core.own_endpoints
        elif update is not None:
            endpoints, low, high = update.endpoints, update.min_kraft_version, update.max_kraft_version
            directory_id = update.key.directory_id if directory_id == ZERO_UUID else directory_id
        return Voter(VoterKey(node_id, directory_id), endpoints, low, high)

    def update(self, request: UpdateRaftVoterRequest, listener: str) -> UpdateRaftVoterResponse:
        core = self._core
        code = self._update(request)
        address = core.leader_address(listener)
        leader = UpdateRaftVoterResponse.CurrentLeader(
            leader_id=core.quorum.leader_id,
            leader_epoch=core.quorum.epoch,
            host="" if address is None else address[0],
            port=0 if address is None else address[1],
        )
        return UpdateRaftVoterResponse(error_code=code, current_leader=leader)

    def _update(self, request: UpdateRaftVoterRequest) -> ErrorCode:
        core = self._core
        key = VoterKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners)
        feature = request.kraft_version_feature
        low, high = feature.min_supported_version, feature.max_supported_version
        refusal = self._refusal(request.cluster_id, request.current_leader_epoch)
        if refusal is not None:
            return refusal[0]
        has_listener = any(endpoint.name == core.listener for endpoint in endpoints)
        if key.node_id < 0 or key.directory_id == ZERO_UUID or not has_listener or low < 0 or high < low:
            return ErrorCode.INVALID_REQUEST
        is_static = core.history.kraft_version < 1
        refusal = self._not_now("updating voter", may_be_static=True)
        if refusal is not None:
            return refusal[0]
        if not low <= core.history.kraft_version <= high:
            return ErrorCode.INVALID_REQUEST
        if core.quorum.voters.find(key) is None:
            return ErrorCode.VOTER_NOT_FOUND
        if is_static:
            self._updates[key.node_id] = Voter(key, endpoints, low, high)
            return ErrorCode.NONE
        self._leading.append_control([core.quorum.voters.with_voter(Voter(key, endpoints, low, high)).to_record()])
        self._leading.publish()
        return ErrorCode.NONE

    def _append(self, pending: _Pending, voters: VoterSet) -> None:
        pending.last_offset = self._leading.append_control([voters.to_record()])
        self._leading.publish()

    # Reasons against a change.

    def _refusal(self, cluster_id: str | None, epoch: int) -> tuple[ErrorCode, str] | None:
        core = self._core
        if core.is_other_cluster(cluster_id):
            text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{core.cluster_id}"'
            return ErrorCode.INCONSISTENT_CLUSTER_ID, text
        code = core.leader_only(epoch)
        return (code, "") if code else None

    def _not_now(self, what: str, *, may_be_static: bool = False) -> tuple[ErrorCode, str] | None:
        core = self._core
        leader = core.quorum.role
        assert isinstance(leader, Leader)
        high_watermark = leader.progress.high_watermark
        if self._pending is not None:
            text = "Request timed out waiting for leader to handle previous voter change request"
        elif high_watermark < 0:
            text = "Request timed out waiting for leader to establish HWM and fence previous voter changes"
        elif core.history.kraft_version < 1:
            if may_be_static:
                return None
            text = f"Cluster doesn't support {what} because the {KRAFT_VERSION} feature is {core.history.kraft_version}"
            return ErrorCode.UNSUPPORTED_VERSION, text
        elif core.history.voters_offset >= high_watermark:
            text = (
                "Request timed out waiting for voters to commit the latest voter change at "
                f"{core.history.voters_offset} with HWM {high_watermark}"
            )
        else:
            return None
        return ErrorCode.REQUEST_TIMED_OUT, text

    def _finish(self, code: ErrorCode, text: str | None) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        self._expiry.cancel()
        if text is None:
            text = _TIMED_OUT if code is ErrorCode.REQUEST_TIMED_OUT else code.name
        self._core.draft.answer(pending.reply, pending.response(error_code=code, error_message=text))

    def _expire(self) -> None:
        self._finish(ErrorCode.REQUEST_TIMED_OUT, None)

    # This voter's own entry.

    def _send_own(self) -> None:
        """Sends this node's endpoints and range to the leader if the VotersRecord has other ones."""
        core = self._core
        role = core.quorum.role
        if core.is_stopped or not isinstance(role, Follower):
            return
        self._own_update.set(core.times.fetch_timeout_ms)
        known = core.quorum.voters.find(core.own)
        own = Voter(core.own, core.own_endpoints, 0, KRAFT_VERSION_MAX)
        address = core.leader_address()
        if core.history.kraft_version < 1 or known is None or known == own or address is None:
            return
        request = update_voter_request(core.cluster_id, core.own, role.epoch, core.own_endpoints)
        core.send(address, request, lambda response: None)


def _show(key: VoterKey) -> str:
    return f"ReplicaKey(id={key.node_id}, directoryId={uuid_to_text(key.directory_id)})"


def _show_all(voters: VoterSet) -> str:
    return "[" + ", ".join(_show(voter.key) for voter in voters) + "]"
