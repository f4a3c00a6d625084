"""Carries out the actions of each event (`raft.ready`) in their order; only this module writes and sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.common.errors import RecordsRejected, StorageExhausted, StorageFault, is_exhausted
from barnabas.raft.core import Core
from barnabas.raft.elections import Elections
from barnabas.raft.fetch_answers import FetchAnswers
from barnabas.raft.flushing import Flusher
from barnabas.raft.following import Following
from barnabas.raft.leading import Leading
from barnabas.raft.peers import Peers
from barnabas.raft.ready import Ahead, Answer, Append, Committed, Promise, Ready, Request
from barnabas.raft.starting import PromiseWriter
from barnabas.raft.voter_changes import VoterChanges


class Parts(NamedTuple):
    """The parts of a quorum node that `Execution` notifies of the results of their actions."""

    elections: Elections
    following: Following
    leading: Leading
    answers: FetchAnswers
    changes: VoterChanges


class Execution:
    """Carries out one `Ready` after the other, from `open` on."""

    def __init__(self, core: Core, peers: Peers, parts: Parts, commit: Callable[[Committed | Ahead], None]) -> None:
        """Creates the execution. `commit` delivers committed batches to the listeners, and completes proposals."""
        self._core = core
        self._peers = peers
        self._parts = parts
        self._commit = commit
        self._flusher = Flusher(core, self._on_flushed)
        self._promises: PromiseWriter | None = None

    def open(self, promises: PromiseWriter) -> None:
        """Sets the writer of the promises, which needs the files of an open node."""
        self._promises = promises

    def carry_out(self, ready: Ready) -> None:
        """Carries out the actions of one event. The order of these steps is the order of durability."""
        core = self._core
        refused = None if ready.promise is None else self._promise(ready.promise)
        if refused is not None and not ready.records:
            if not core.has_begun:
                raise refused
            core.report_unsaved_promise(refused)
            self._parts.elections.on_not_saved()
        if ready.restriction_lifted:
            core.guard(core.log.keeper.release)
        if ready.changes_log:
            refused = self._change_log(ready, refused)
        if ready.committed is not None:
            self._commit(ready.committed)
        for message in ready.messages:
            self._send(message, is_saved=refused is None)
        if ready.fetched or ready.wakes:
            for answer in self._parts.answers.due(has_changes=ready.wakes):
                answer.reply(answer.message)
        if ready.flush:
            self._flusher.flush()

    def _promise(self, promise: Promise) -> BaseException | None:
        """Saves a promise (epoch, leader and vote) to disk. Returns the error if the promise is binding and there was
        no space for it.
        """
        core = self._core
        promises = self._promises
        assert promises is not None, "an open node makes promises"
        error = self._space_error(lambda: promises.save(promise.state))
        if error is None:
            core.quorum.on_saved()
            return None
        core.quorum.on_not_saved()
        return error if promise.is_binding else None

    def _change_log(self, ready: Ready, refused: BaseException | None) -> BaseException | None:
        """Truncates, installs a snapshot, appends; then a follower continues, or a leader handles a full disk.

        Returns the error if there was no space for a change, or if records are damaged; the log is then as before it.
        """
        core = self._core
        if ready.truncate_to is not None:
            end_offset = ready.truncate_to
            refused = self._space_error(lambda: core.log.truncate(end_offset)) or refused
            core.delivery.truncated(core.log.end_offset)
            core.history.truncate(core.log.end_offset)
        if ready.install is not None:
            snapshot_id, snapshot = ready.install
            unfit = self._space_error(lambda: core.log.start_after_snapshot(snapshot_id))
            refused = unfit or refused
            if unfit is None:
                core.history.start_at_snapshot(snapshot_id.end_offset, snapshot.voters, snapshot.kraft_version)
                core.delivery.reset(snapshot_id, snapshot)
        for record in () if refused is not None else ready.records:
            try:
                self.append(record)
            except StorageExhausted as fault:
                refused = fault
                if record.is_own:
                    self._parts.leading.on_refused(record, fault)
                    self._parts.changes.on_refused()
                break
            except RecordsRejected as error:
                assert not record.is_own, "a leader's own batches are sound"
                refused = error
                break
        self._parts.following.go_on(refused)
        return refused

    def _space_error(self, write: Callable[[], None]) -> BaseException | None:
        """Carries out a write. Returns the error if there was no space for it, and nothing has changed."""
        try:
            write()
        except (StorageFault, OSError) as error:
            if not is_exhausted(error):
                self._core.fail(error)
            return error
        return None

    def append(self, record: Append) -> None:
        """Appends one batch to the page cache. If it raises, nothing is appended.

        Raises StorageExhausted if there is no space for it, and RecordsRejected if it is damaged.
        """
        core = self._core
        try:
            if isinstance(record.data, bytearray):
                core.log.append(record.data, record.batch.epoch)
            else:
                core.log.append_as_follower(record.data)
        except StorageExhausted:
            raise
        except (StorageFault, OSError) as error:
            core.fail(error)
        core.log_health.on_success()
        core.delivery.appended(record.batch)

    def _send(self, message: Request | Answer, *, is_saved: bool) -> None:
        core = self._core
        if isinstance(message, Answer):
            message.reply(message.message if is_saved or message.if_not_saved is None else message.if_not_saved)
            return
        if message.durable_end > core.log.flushed_offset:
            core.guard(core.log.flush)
        reply = message.reply
        self._peers.send(
            message.address,
            message.message,
            lambda response: core.run(lambda: reply(response)),
            timeout_ms=message.timeout_ms,
        )

    def _on_flushed(self) -> None:
        self._parts.leading.on_flushed()
        self._parts.following.on_flushed()
