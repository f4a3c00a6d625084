"""The side work of each feature, and its addition to the work of a run."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.simulation.abandoned_transactions import AbandonedWork
from barnabas.simulation.bulk_work import BulkWork
from barnabas.simulation.compacted_work import CompactedWork
from barnabas.simulation.offset_registers import RegistersWork
from barnabas.simulation.replica_readers import ReadersWork
from barnabas.simulation.shrinking_work import ShrinkingWork
from barnabas.simulation.side_work import SideWork, WideWork
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.static_members import StaticWork
from barnabas.simulation.work import Work
from barnabas.simulation.work_features import WorkFeature


def with_features(cluster: Cluster, auditor: Client, base: Work, features: Collection[WorkFeature]) -> Work:
    """Returns the work of a run, extended by the side work of these features."""
    sides = [side for feature in WorkFeature if feature in features for side in _made(cluster, feature, features)]
    return WideWork(cluster, auditor, base, sides) if sides else base


def _made(cluster: Cluster, feature: WorkFeature, features: Collection[WorkFeature]) -> list[SideWork]:
    match feature:
        case WorkFeature.BULK:
            return [BulkWork(cluster)]
        case WorkFeature.COMPACTED:
            return [CompactedWork(cluster)]
        case WorkFeature.SHRINKING:
            return [ShrinkingWork(cluster)]
        case WorkFeature.READERS:
            return [ReadersWork(cluster)]
        case WorkFeature.REGISTERS:
            return [RegistersWork(cluster, can_expire=WorkFeature.IDLE in features)]
        case WorkFeature.STATIC:
            return [StaticWork(cluster)]
        case WorkFeature.ABANDONED:
            return [AbandonedWork(cluster)]
        case WorkFeature.IDLE:
            return []
