"""The voters and the kraft.version, by offset of the log (KIP-853).

The latest voters count as soon as they are in the log, committed or not; if their record is truncated, those before
them count again. A static quorum has no entries, and always the voters of its configuration.
"""

from __future__ import annotations

from barnabas.common.errors import FatalFault
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_raft import KRaftVersionRecord, VotersRecord
from barnabas.raft.voters import VoterSet, voters_from_record

#: The newest kraft.version that this release supports.
KRAFT_VERSION_MAX = 1
#: Offset of voters without a record: those of the configuration, or of the snapshot of a formatted directory.
NOT_IN_LOG = -1


class VoterHistory:
    """The history of the voters and of kraft.version, by log offset."""

    def __init__(self, voters: VoterSet, kraft_version: int) -> None:
        self._voters: list[tuple[int, VoterSet]] = [(NOT_IN_LOG, voters)]
        self._versions: list[tuple[int, int]] = [(NOT_IN_LOG, kraft_version)]

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1]

    @property
    def voters_before(self) -> VoterSet:
        """The voters that count again if the latest ones are truncated."""
        return self._voters[-2][1] if len(self._voters) > 1 else self.voters

    @property
    def voters_offset(self) -> int:
        """The offset of the record with the latest voters, or NOT_IN_LOG."""
        return self._voters[-1][0]

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1]

    def at(self, end_offset: int) -> tuple[VoterSet, int]:
        """Returns (voters, kraft.version) according to the log before `end_offset`."""
        voters = next(voters for offset, voters in reversed(self._voters) if offset < end_offset)
        version = next(version for offset, version in reversed(self._versions) if offset < end_offset)
        return voters, version

    def note(self, offset: int, message: Message | None) -> bool:
        """Adds a control record of the log, and returns whether it changes the voters.

        Raises FatalFault if this release does not support it.
        """
        if isinstance(message, VotersRecord):
            assert offset > self.voters_offset, "offsets increase"
            self._voters.append((offset, voters_from_record(message)))
            return True
        if isinstance(message, KRaftVersionRecord):
            check_kraft_version(message.kraft_version)
            self._versions.append((offset, message.kraft_version))
            return True
        return False

    def truncate(self, end_offset: int) -> None:
        """Removes the entries from `end_offset` on, where the log was truncated."""
        while self._voters[-1][0] >= end_offset:
            self._voters.pop()
        while self._versions[-1][0] >= end_offset:
            self._versions.pop()

    def start_at_snapshot(self, end_offset: int, voters: VoterSet | None, kraft_version: int) -> None:
        """Replaces all entries by those of the snapshot that the log begins with; a snapshot of a static quorum has
        none.
        """
        check_kraft_version(kraft_version)
        if voters is not None:
            self._voters = [(end_offset - 1, voters)]
            self._versions = [(end_offset - 1, kraft_version)]
        else:
            self._voters, self._versions = self._voters[:1], self._versions[:1]


def check_kraft_version(kraft_version: int) -> None:
    if kraft_version > KRAFT_VERSION_MAX:
        raise FatalFault(
            f"the metadata log has kraft.version {kraft_version}, but this release supports 0 to {KRAFT_VERSION_MAX}: "
            "run the release that wrote it, or a newer one"
        )
