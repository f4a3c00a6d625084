"""A partition as a value: its replicas, ISR, ELR and leader, as a controller has decided them."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.protocol.messages.records_metadata import PartitionChangeRecord

#: `leader` of a PartitionChangeRecord that changes neither the leader nor its epoch.
NO_LEADER_CHANGE: Final = -2
NO_LEADER: Final = -1
#: `leader_recovery_state`: 1 from an unclean election until the new leader has recovered (KIP-704).
RECOVERED: Final = 0
RECOVERING: Final = 1

#: Reserved directory ids (KIP-858): no directory assigned yet; a failed directory; (older records) the only directory.
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
LOST_DIRECTORY: Final = bytes(15) + b"\x02"
MIGRATING_DIRECTORY: Final = bytes(16)
#: The lowest id that a directory can have; the ids below are reserved.
FIRST_UNRESERVED_DIRECTORY: Final = bytes(15) + b"\x64"


class PartitionImage(NamedTuple):
    """The state of one partition as the controller has decided it. `directories[i]` is the directory of
    `replicas[i]`.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether this is a known partition, and not a placeholder for one that the broker does not know yet."""
        return bool(self.replicas)

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    def directory_of(self, broker_id: int) -> bytes:
        """Returns the directory id of this broker's replica; the broker must be one of `replicas`."""
        return self.directories[self.replicas.index(broker_id)]

    def merge(self, record: PartitionChangeRecord) -> PartitionImage:
        """Returns this partition after a change record. Fields that the record omits keep their values."""
        replicas = self.replicas if record.replicas is None else tuple(record.replicas)
        directories = self.directories if record.directories is None else tuple(record.directories)
        if len(directories) != len(replicas):
            assert not record.directories, "a directory for each replica, or for none"
            directories = (MIGRATING_DIRECTORY,) * len(replicas)
        leader_moves = record.leader != NO_LEADER_CHANGE
        state = self.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state
        return PartitionImage(
            replicas,
            self.isr if record.isr is None else tuple(record.isr),
            record.leader if leader_moves else self.leader,
            self.leader_epoch + 1 if leader_moves else self.leader_epoch,
            self.partition_epoch + 1,
            directories,
            self.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            self.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            state,
            self.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            self.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
        )


UNKNOWN_PARTITION: Final = PartitionImage((), (), NO_LEADER, -1, -1)
