"""The `quorum-state` file: the state that a voter must not forget, so that it neither votes twice nor follows an old
epoch.

    data_version 0   static voters        data_version 1   voters in the log (kraft.version 1)
    clusterId ""                          -
    leaderId, leaderEpoch                 leaderId, leaderEpoch
    votedId                               votedId, votedDirectoryId
    appliedOffset 0, currentVoters        -

JSON on one line, with keys in this order, as Kafka writes it. It is on disk before its vote or epoch takes effect
(guard G16). A second line, which Kafka does not read, has the CRC-32C of the first one: if it is missing, Kafka has
written the file last.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from barnabas.common.errors import FatalFault
from barnabas.common.host import Disk
from barnabas.common.types import ZERO_UUID, uuid_from_text, uuid_to_text
from barnabas.records.checksum import crc32c
from barnabas.storage.checkpoints import write_atomically

FILE_NAME = "quorum-state"
NONE = -1


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The content of the `quorum-state` file. `leader_id` and `voted_id` are -1 if there is none."""

    epoch: int
    leader_id: int = NONE
    voted_id: int = NONE
    voted_directory_id: bytes = ZERO_UUID
    #: The static voters at the time (data_version 0); empty if the log lists them.
    voter_ids: tuple[int, ...] = field(default=(), compare=False)
    #: Whether the file has a checksum, so that no other program has written it since this node did.
    is_own: bool = field(default=False, compare=False)


class QuorumStateFile:
    """The file of one metadata log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"

    def read(self) -> ElectionState | None:
        """Returns the state, or None if there is no file because the node never took part in the quorum."""
        if not self._disk.exists(self._path):
            return None
        return decode_state(self._disk.read(self._path), self._path)

    def write(self, state: ElectionState, *, kraft_version: int, voter_ids: list[int]) -> None:
        """Writes the state, durable when this returns."""
        content = encode_state(state, kraft_version=kraft_version, voter_ids=voter_ids)
        write_atomically(self._disk, self._path, with_checksum(content))


def with_checksum(line: bytes) -> bytes:
    return line + b"\n" + _checksum(line)


def _checksum(line: bytes) -> bytes:
    return f"crc32c {crc32c(line):08x}\n".encode()


def encode_state(state: ElectionState, *, kraft_version: int, voter_ids: list[int]) -> bytes:
    fields: dict[str, Any]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_to_text(state.voted_directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_state(data: bytes, path: str) -> ElectionState:
    """Decodes the `quorum-state` file. Raises FatalFault if it is damaged."""
    line, _, checksum = data.partition(b"\n")
    try:
        if checksum.strip() and checksum != _checksum(line):
            raise ValueError("the checksum does not match")
        fields = json.loads(line)
        version = int(fields["data_version"])
        if version not in (0, 1):
            raise ValueError(f"data_version {version}")
        directory = uuid_from_text(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
        voters = tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ()) if version == 0 else ()
        return ElectionState(
            int(fields["leaderEpoch"]),
            int(fields["leaderId"]),
            int(fields["votedId"]),
            directory,
            voters,
            bool(checksum.strip()),
        )
    except (ValueError, KeyError, TypeError) as error:
        log_dir = path.rpartition("/")[0].rpartition("/")[0]
        raise FatalFault(
            f"{path} cannot be read ({error}); without it this node could vote twice: restore the file, or run "
            f"`barnabas log repair {log_dir} --yes`, which writes one that begins with a later epoch"
        ) from error
