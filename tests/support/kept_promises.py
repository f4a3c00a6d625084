"""A quorum role whose promises are written as soon as the call that made them ends, on a disk with free space."""

from __future__ import annotations

from typing import Any

from barnabas.raft.quorum import QuorumState, Role
from barnabas.raft.quorum_state import ElectionState
from barnabas.raft.ready import ReadyDraft
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import VoterKey


def _ignore(before: Role, role: Role) -> None:
    """Ignores the change of role."""


class KeptPromises:
    """A stand-in for a `QuorumState`; `written` gets what is written to `quorum-state`."""

    def __init__(
        self, own: VoterKey, history: VoterHistory, stored: ElectionState | None, written: list[ElectionState]
    ) -> None:
        self._draft = ReadyDraft()
        self._state = QuorumState(own, history, stored, self._draft, _ignore)
        self._written = written

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._state, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            result = value(*arguments, **named)
            promise = self._draft.take().promise
            if promise is not None:
                self._written.append(promise.state)
                self._state.on_saved()
            return result

        return call
