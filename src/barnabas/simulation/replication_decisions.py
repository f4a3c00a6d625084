"""The rules for a controller's decisions about partitions, checked at every step of the metadata:

the leader is in the ISR, ISR and ELR are disjoint parts of the replicas, no fenced broker is in the ISR (G9)
an ELR only while the ISR is below the min ISR (G11)
epochs go forward; another leader has another epoch
no unclean election except of the last known leader, or if the topic allows them (G13)
below the min ISR no broker leaves ISR and ELR that can still have committed records (MinIsrRecoveryQuorum): only
brokers that came back in another incarnation, or from which the partition was moved away
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.types import TopicPartition
from barnabas.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.metadata.topics import NO_LEADER, RECOVERING, PartitionImage
from barnabas.replication.partition import Partition
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State, changed_partitions
from barnabas.simulation.timeline import partition_text

_MIN_ISR, _UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


class Decisions:
    """Checks the controller's decisions. `defaults` are the nodes' properties, which apply if topics and brokers do not
    override them. In ZooKeeper mode a dead broker loses its registration (`unregisters`) before the controller takes it
    out of its ISRs. With decisions `in_portions` a broker that comes back in another incarnation leaves ISRs and ELRs
    some partitions at a time, and its registration follows with the last of them: then it must not be back in one of
    these ISRs as the same incarnation.
    """

    def __init__(self, defaults: Mapping[str, str], *, unregisters: bool = False, in_portions: bool = False) -> None:
        self._defaults = defaults
        self._unregisters = unregisters
        self._in_portions = in_portions
        #: The brokers that have left a partition and await another incarnation, with their current epoch.
        self._leaving: dict[tuple[TopicPartition, int], int] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        """Does nothing: this checks only the controller."""

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        self._check_leaving(now)
        for (tp, _), earlier, decided in changed_partitions(before, now):
            min_isr = min(self.min_isr(now, tp.topic), len(decided.replicas))
            problem = _state_problem(None if self._unregisters else now, decided, min_isr)
            if not problem and earlier is not None:
                may_be_unclean = any(self.allows_unclean(image, tp.topic) for image in (before, now))
                problem = _step_problem(earlier, decided, may_be_unclean=may_be_unclean)
                if not problem and min_isr == min(self.min_isr(before, tp.topic), len(earlier.replicas)):
                    gone = _departed(before, now, earlier, decided, min_isr)
                    if self._in_portions:
                        self._leaving.update({(tp, replica): now.brokers[replica].epoch for replica in gone})
                    elif gone:
                        problem = f"broker {gone[0]} leaves ISR and ELR although it may have committed records"
            if problem:
                before_text = "nothing" if earlier is None else partition_text(earlier)
                raise Violation(f"decided wrongly: {problem}: {tp}: {partition_text(decided)}; before: {before_text}")

    def _check_leaving(self, now: MetadataImage) -> None:
        for (tp, replica), epoch in list(self._leaving.items()):
            registration, partition = now.brokers.get(replica), now.partition(*tp)
            if registration is None or registration.epoch != epoch or partition is None:
                del self._leaving[tp, replica]
            elif replica in partition.isr:
                text = f"broker {replica} has left ISR and ELR, and is back as the same incarnation"
                raise Violation(f"decided wrongly: {text}: {tp}: {partition_text(partition)}")

    def min_isr(self, image: MetadataImage, topic: str) -> int:
        return int(self._value(image, topic, _MIN_ISR, "1"))

    def allows_unclean(self, image: MetadataImage, topic: str) -> bool:
        return self._value(image, topic, _UNCLEAN, "false") == "true"

    def _value(self, image: MetadataImage, topic: str, key: str, default: str) -> str:
        for layer in (image.topic_config(topic), image.config_of(BROKER_RESOURCE, ""), self._defaults):
            if key in layer:
                return layer[key]
        return default


def _state_problem(image: MetadataImage | None, decided: PartitionImage, min_isr: int) -> str:
    replicas, isr, elr = set(decided.replicas), set(decided.isr), set(decided.elr)
    if not (isr <= replicas and elr <= replicas) or isr & elr:
        return "ISR and ELR are not parts of the replicas"
    if decided.leader != NO_LEADER and decided.leader not in isr:
        return "the leader is not in the ISR"
    if image is not None and any(replica not in image.brokers or image.brokers[replica].fenced for replica in isr):
        return "a fenced broker is in the ISR"
    if elr and len(isr) >= min_isr:
        return "an ELR although the ISR is large enough"
    return ""


def _step_problem(earlier: PartitionImage, decided: PartitionImage, *, may_be_unclean: bool) -> str:
    if decided.partition_epoch <= earlier.partition_epoch or decided.leader_epoch < earlier.leader_epoch:
        return "an epoch does not go forward"
    if decided.leader != earlier.leader and decided.leader_epoch == earlier.leader_epoch:
        return "another leader in the same epoch"
    is_unclean = decided.leader_recovery_state == RECOVERING != earlier.leader_recovery_state
    is_one_step = decided.partition_epoch == earlier.partition_epoch + 1
    is_last_known = not earlier.isr and (decided.leader,) == earlier.last_known_elr
    if is_unclean and is_one_step and not may_be_unclean and not is_last_known:
        return "an unclean election that was not allowed"
    return ""


def _departed(
    before: MetadataImage, now: MetadataImage, earlier: PartitionImage, decided: PartitionImage, min_isr: int
) -> list[int]:
    """Returns the brokers that leave ISR and ELR as the incarnation that they were; none without ELRs or after an
    unclean election."""
    if not now.elr_enabled or RECOVERING in (earlier.leader_recovery_state, decided.leader_recovery_state):
        return []
    if len(decided.isr) >= min_isr or decided.partition_epoch != earlier.partition_epoch + 1:
        return []
    gone = {*earlier.isr, *earlier.elr} - {*decided.isr, *decided.elr}
    known = [each for each in sorted(gone & set(decided.replicas)) if each in before.brokers and each in now.brokers]
    return [each for each in known if before.brokers[each].epoch == now.brokers[each].epoch]
