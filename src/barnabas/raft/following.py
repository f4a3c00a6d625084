"""Replication on a follower or observer: fetch, append, flush, fetch again (KIP-595), or fetch a snapshot (KIP-630).

    fetch (offset = flushed end) --records--> append, flush --> fetch
                                 --diverging epoch--> truncate --> fetch
                                 --snapshot id--> FetchSnapshot ... --all--> log and listeners begin there --> fetch

Invariants
- A fetch's offset is the leader's proof of what is on this disk, so the next fetch is sent only after everything
  appended was flushed. There is one request at a time.
- Records are appended only at the end of the log; others are dropped and fetched again.
- A snapshot gets its name, and the log is emptied for it, only when it is complete.
"""

from __future__ import annotations

from typing import Any

from barnabas.common.errors import (
    DecodeError,
    ErrorCode,
    FatalFault,
    RecordsRejected,
    is_exhausted,
)
from barnabas.common.host import Buffer
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from barnabas.raft.core import Core
from barnabas.raft.elections import Elections
from barnabas.raft.messages import endpoints_in, fetch_request, fetch_snapshot_request, only_partition
from barnabas.raft.metadata_batches import check_metadata_version, read_batch
from barnabas.raft.peers import Address
from barnabas.raft.quorum import Follower, Role, Unattached
from barnabas.raft.ready import Ahead, Append
from barnabas.raft.snapshots import Snapshot, SnapshotId
from barnabas.raft.voter_history import check_kraft_version
from barnabas.raft.voters import address_on
from barnabas.records.batch import has_valid_crc, iter_headers

#: The minimum delay between two requests of a node that searches for the leader.
_DISCOVERY_MS_MIN = 50
#: The delay between two fetches of a follower whose log cannot be written.
_UNWRITABLE_RETRY_MS = 200


class _Download:
    """A snapshot that is being fetched."""

    __slots__ = ("position", "snapshot_id")

    def __init__(self, snapshot_id: SnapshotId) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0


class _Fetched:
    """A response of the leader, until its records are in the log."""

    __slots__ = ("high_watermark", "is_position", "is_whole", "records", "role")

    def __init__(self, role: Follower, high_watermark: int = -1) -> None:
        self.role = role
        self.high_watermark = high_watermark
        #: Whether its high watermark applies to this log: nothing must be truncated or replaced first.
        self.is_position = False
        #: Whether all its records are valid.
        self.is_whole = True
        self.records = memoryview(b"")


class Following:
    """The requests of a follower or observer, one at a time, and the responses to them."""

    def __init__(self, core: Core, elections: Elections) -> None:
        self._core = core
        self._elections = elections
        self._download: _Download | None = None
        #: Whether a request is in flight.
        self._is_waiting = False
        #: The leader's last high watermark; -1 for a new leader, which has not compared its log to this one's yet.
        self._leader_high_watermark = -1
        self._bootstrap_index = 0
        #: The address of the last request, if it was not answered.
        self._silent: Address | None = None
        self._fetched: _Fetched | None = None

    def on_role(self, role: Role) -> None:
        self._download = None
        self._is_waiting = False
        self._leader_high_watermark = -1
        if isinstance(role, Follower):
            self._core.has_joined = True
            self._next(role)
        elif isinstance(role, Unattached) and not self._core.quorum.is_voter:
            self._discover(role)

    # Requests.

    def on_flushed(self) -> None:
        role = self._core.quorum.role
        if isinstance(role, Follower) and not self._is_waiting:
            self._commit()
            self._next(role)

    def _next(self, role: Follower) -> None:
        """Sends the next fetch to the leader, as soon as everything before its offset is on disk."""
        core = self._core
        if core.is_stopped or core.quorum.role is not role or self._is_waiting:
            return
        if core.log.flushed_offset < core.log.end_offset:
            core.draft.flush()
            return
        address = core.leader_address()
        if address is None:
            return
        self._is_waiting = True
        self._send(role, address)

    def _send(self, role: Follower | Unattached, address: Address) -> None:
        core = self._core
        download = self._download
        if download is not None:
            request: Message = fetch_snapshot_request(
                core.cluster_id,
                core.own,
                epoch=role.epoch,
                snapshot_id=download.snapshot_id,
                position=download.position,
            )
            core.send(
                address,
                request,
                lambda piece: core.persisting(lambda: self._on_piece(role, download, piece), lambda: self._again(role)),
            )
            return
        last_epoch, offset = core.last
        request = fetch_request(
            core.cluster_id,
            core.own,
            epoch=role.epoch,
            offset=offset,
            last_epoch=min(last_epoch, role.epoch),
            high_watermark=core.delivery.high_watermark,
            is_unwritable=not core.log_health.is_writable,
        )
        core.send(
            address,
            request,
            lambda answer: core.persisting(lambda: self._on_fetch(role, address, answer), lambda: self._again(role)),
            durable_end=offset,
        )

    def _again(self, role: Follower | Unattached) -> None:
        """Retries later: an effect of the response could not be saved."""
        if isinstance(role, Follower):
            self._later(role)
        else:
            self._discover_later(role)

    def _later(self, role: Follower) -> None:
        self._core.timers.call_later(self._core.times.retry_backoff_ms, lambda: self._next(role))

    # The search for a leader, by a node without a vote.

    def _discover(self, role: Follower | Unattached) -> None:
        """Sends a fetch to a bootstrap server or voter; the response names the leader."""
        core = self._core
        if core.is_stopped or core.quorum.role is not role or self._is_waiting:
            return
        voters = [core.address_of(node_id) for node_id in core.quorum.voters.ids if node_id != core.own.node_id]
        known = [address for address in voters if address is not None]
        own = address_on(core.own_endpoints, core.listener)
        known += [address for address in core.bootstrap if address not in known and address != own]
        # The node that did not answer may be paused, and another request to it would time out too.
        known = [address for address in known if address != self._silent] or known
        if not known:
            return
        self._bootstrap_index += 1 + core.host.random.below(len(known))
        self._is_waiting = True
        self._send(role, known[self._bootstrap_index % len(known)])

    def _discover_later(self, role: Follower | Unattached) -> None:
        delay_ms = max(self._core.times.retry_backoff_ms, _DISCOVERY_MS_MIN)
        self._core.timers.call_later(delay_ms, lambda: self._discover(role))

    # Responses.

    def _on_fetch(self, role: Follower | Unattached, address: Address, response: Message | None) -> None:
        core = self._core
        if core.is_stopped or core.quorum.role is not role:
            return
        self._is_waiting = False
        self._silent = address if response is None else None
        if not isinstance(response, FetchResponse) or response.error_code:
            if response is not None:
                core.report_refusal(address, response)
            self._on_silence(role)
            return
        taken_over = self._take_leader(role, response)
        if taken_over is None:
            return
        answer, is_current = taken_over
        if not isinstance(role, Follower):
            self._discover_later(role)
        elif not is_current or answer.error_code:
            if (
                answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                and answer.current_leader.leader_epoch == role.epoch
            ):
                # The leader itself reports that it resigned: its EndQuorumEpoch was lost.
                self._elections.leader_is_gone()
            self._later(role)
        else:
            self._on_partition(role, answer)

    def _take_leader(
        self, role: Follower | Unattached, response: FetchResponse | FetchSnapshotResponse
    ) -> tuple[Any, bool] | None:
        """Adopts epoch and leader from a response, and returns its partition and whether to process it further. Returns
        None if nothing remains to be done.
        """
        core = self._core
        answer = only_partition(response)
        leader = answer.current_leader if answer is not None else None
        if leader is None:
            self._on_silence(role)
            return None
        endpoints = endpoints_in(response, leader.leader_id, core.listener)
        is_current = core.learn_from(answer.error_code, leader.leader_epoch, leader.leader_id, endpoints)
        # A new role has already sent its request.
        return (answer, is_current) if core.quorum.role is role else None

    def _on_silence(self, role: Follower | Unattached) -> None:
        """Retries after no usable response. A voter waits for its timeout; an observer searches for the leader."""
        core = self._core
        if not core.quorum.is_voter:
            self._discover_later(role)
            return
        if isinstance(role, Follower):
            address = core.leader_address()
            if address is not None and core.is_refused(address):
                self._elections.leader_is_gone()
            self._later(role)

    def _on_partition(self, role: Follower, answer: Any) -> None:
        role.has_fetched = True
        self._elections.on_leader_response()
        diverging, snapshot_id = answer.diverging_epoch, answer.snapshot_id
        fetched = _Fetched(role, answer.high_watermark)
        if diverging is not None and diverging.epoch >= 0:
            self._truncate(diverging.epoch, diverging.end_offset)
        elif snapshot_id is not None and snapshot_id.epoch >= 0 and snapshot_id.end_offset >= 0:
            self._begin_download(SnapshotId(snapshot_id.end_offset, snapshot_id.epoch))
        else:
            fetched.is_position = True
            if answer.records is not None and len(answer.records):
                fetched.records = memoryview(answer.records)
                fetched.is_whole = self._append(fetched.records)
        self._process(fetched)

    def _process(self, fetched: _Fetched) -> None:
        """Continues after the log was changed as the response requires; immediately if there is nothing to change."""
        self._fetched = fetched
        if not self._core.draft.changes_log:
            self.go_on()

    def go_on(self, refused: BaseException | None = None) -> None:
        """Fetches again after the log was changed as a response requires, or after it refused some of the changes."""
        core = self._core
        fetched, self._fetched = self._fetched, None
        if fetched is None or core.quorum.role is not fetched.role or core.is_stopped:
            return
        if refused is not None:
            # The log is as before the refused change, and the same response comes again.
            fetched.is_whole = False
            core.history.truncate(core.log.end_offset)
            if isinstance(refused, RecordsRejected):
                core.host.faults.report(f"cannot read records from the leader of the metadata quorum: {refused}")
            else:
                core.log_health.on_refused(refused)
                if fetched.is_position:
                    self._follow_in_memory(fetched.records, fetched.high_watermark)
        if fetched.is_position:
            self._leader_high_watermark = max(fetched.high_watermark, -1)
            in_log = refused is None or fetched.high_watermark <= core.log.end_offset
            if in_log and core.log.flushed_offset >= core.log.end_offset:
                self._commit()
        if fetched.is_whole:
            self._next(fetched.role)
        elif core.log_health.is_writable:
            self._later(fetched.role)
        else:
            core.timers.call_later(_UNWRITABLE_RETRY_MS, lambda: self._next(fetched.role))

    def _commit(self) -> None:
        core = self._core
        high_watermark = self._leader_high_watermark
        if core.is_restricted and 0 <= high_watermark <= core.log.flushed_offset:
            # The leader has everything that was committed with this voter's help, and now this voter has it again.
            core.lift_restriction()
        if high_watermark < 0 or high_watermark < core.delivery.high_watermark:
            return
        is_all = high_watermark <= core.log.end_offset
        core.commit(min(high_watermark, core.log.end_offset), is_all=is_all)

    def _truncate(self, epoch: int, end_offset: int) -> None:
        """Truncates the log: the leader has other records after the end of `epoch`."""
        core = self._core
        own_epoch, own_end = core.log.end_of_epoch(epoch)
        target = min(own_end, end_offset) if own_epoch == epoch else own_end
        if target < core.delivery.offset_in_log:
            core.fail(
                ValueError(
                    f"node {core.quorum.leader_id}, which leads epoch {core.quorum.epoch}, has no record at {target}, "
                    f"but everything before {core.delivery.offset} was committed: its log has lost records, or "
                    "this node's log belongs to another quorum"
                )
            )
        core.draft.truncate(target)

    def _append(self, records: memoryview) -> bool:
        """Appends all whole batches that follow the log's end. Returns False if the next fetch should wait."""
        core = self._core
        end_offset, epoch = core.log.end_offset, core.log.latest_epoch
        appends: list[Append] = []
        try:
            for position, header in iter_headers(records):
                view = records[position : position + header.size_bytes]
                if header.base_offset != end_offset or header.partition_leader_epoch < epoch:
                    core.host.faults.report(
                        f"the leader sent a batch at {header.base_offset}, epoch {header.partition_leader_epoch} where "
                        f"the metadata log ends at {end_offset}, epoch {epoch}"
                    )
                    return False
                if not has_valid_crc(records, position, header):
                    raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, "a batch does not match its checksum")
                appends.append(Append(view, read_batch(header, view, core.history)))
                end_offset, epoch = header.last_offset + 1, header.partition_leader_epoch
        except (DecodeError, RecordsRejected) as error:
            core.host.faults.report(f"cannot read records from the leader of the metadata quorum: {error}")
            return False
        except FatalFault as error:
            core.host.faults.fatal(str(error))
            raise
        finally:
            if appends:
                core.quorum.promise_again()
                core.draft.append(appends)
        return True

    def _follow_in_memory(self, records: memoryview, high_watermark: int) -> None:
        """Delivers the committed records of the response to the listeners, although the log has no space for them."""
        if high_watermark < 0:
            return  # A new leader does not know yet what is committed.
        core = self._core
        end_offset = core.log.end_offset
        batches = []
        try:
            for position, header in iter_headers(records):
                if header.last_offset >= high_watermark:
                    break
                if header.base_offset < max(end_offset, core.delivery.offset):
                    continue
                if not has_valid_crc(records, position, header):
                    raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, "a batch does not match its checksum")
                view = memoryview(bytes(records[position : position + header.size_bytes]))
                batches.append(read_batch(header, view, core.history))
        except (DecodeError, RecordsRejected) as error:
            core.host.faults.report(f"cannot read records from the leader of the metadata quorum: {error}")
        finally:
            # The set of voters is valid only up to the records that are in the log.
            core.history.truncate(end_offset)
        core.draft.commit_ahead(Ahead(tuple(batches), end_offset, high_watermark))

    # Snapshots.

    def _begin_download(self, snapshot_id: SnapshotId) -> None:
        core = self._core
        if core.files.exists(snapshot_id):
            self._install(snapshot_id, core.files.read(snapshot_id))
            return
        try:
            core.files.begin_part(snapshot_id)
        except OSError as error:
            if not is_exhausted(error):
                core.fail(error)
            core.log_health.on_refused(error)
            return
        self._download = _Download(snapshot_id)

    def _on_piece(self, role: Follower | Unattached, download: _Download, response: Message | None) -> None:
        core = self._core
        if core.is_stopped or core.quorum.role is not role or self._download is not download:
            return
        self._is_waiting = False
        assert isinstance(role, Follower)
        if not isinstance(response, FetchSnapshotResponse) or response.error_code:
            self._on_silence(role)
            return
        taken_over = self._take_leader(role, response)
        if taken_over is None:
            return
        answer, is_current = taken_over
        if not is_current or answer.error_code:
            # The snapshot may have been replaced: the next fetch names another one.
            self._download = None
            self._later(role)
            return
        role.has_fetched = True
        self._elections.on_leader_response()
        self._take_piece(download, answer.size, answer.position, answer.unaligned_records)
        self._process(_Fetched(role))

    def _take_piece(self, download: _Download, size_bytes: int, position: int, data: Buffer | None) -> None:
        core = self._core
        if data is None or not len(data) or position != download.position:
            return
        try:
            core.files.append_part(download.snapshot_id, data)
        except OSError as error:
            if not is_exhausted(error):
                core.fail(error)
            core.log_health.on_refused(error)
            self._download = None  # the next request begins from the start
            return
        download.position += len(data)
        if download.position < size_bytes:
            return
        self._download = None
        try:
            snapshot = core.files.finish_part(download.snapshot_id)
        except DecodeError as error:
            core.host.faults.report(f"the snapshot {download.snapshot_id.file_name} arrived damaged: {error}")
            return
        self._install(download.snapshot_id, snapshot)

    def _install(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Replaces the contents of the log and of the listeners by the snapshot."""
        core = self._core
        try:
            for record, _ in snapshot.records:
                check_metadata_version(record)
            check_kraft_version(snapshot.kraft_version)
        except FatalFault as error:
            core.host.faults.fatal(str(error))
            raise
        if (snapshot_id.epoch, snapshot_id.end_offset) <= core.last:
            core.host.faults.report(
                f"the leader sent the snapshot {snapshot_id.file_name}, which is older than this log"
            )
            return
        core.draft.install(snapshot_id, snapshot)
