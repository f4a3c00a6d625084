"""Commits a query's progress to a consumer group, so that lag tools see it. Nobody reads it back for the query.

The commits come from outside the group's protocol (generation -1, no member), which a broker takes while the group has
no members, as it does from the tools that reset offsets.
"""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.spark.checkpoint import Progress
from barnabas.spark.cluster import Cluster
from barnabas.spark.faults import ClusterUnreachable, RequestRefused

#: Later versions name topics by ids only.
_COMMIT_VERSION_MAX = 9
#: Later versions ask for several coordinators at once.
_FIND_VERSION_MAX = 3


class GroupCommits:
    """Keeps the coordinator's address. One try is made per commit and one more at a new coordinator: the next
    micro-batch commits again."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._coordinator: tuple[str, int] | None = None

    def commit(self, progress: Progress) -> None:
        """OSError, ClusterUnreachable, RequestRefused."""
        for is_last in (False, True):
            try:
                code = self._try(progress)
            except OSError:
                self._coordinator = None
                if is_last:
                    raise
                continue
            if code == ErrorCode.NONE:
                return
            self._coordinator = None
            if is_last or not code.retriable:
                raise RequestRefused(f"group {self._group_id}: {code.name}")

    def _try(self, progress: Progress) -> ErrorCode:
        if self._coordinator is None:
            self._coordinator = self._find()
        topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for partition, position in progress.positions.items():
            topics.setdefault(partition.topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.epoch,
                    committed_metadata="",
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        response = self._cluster.ask_at(
            self._coordinator, request, OffsetCommitResponse, version_max=_COMMIT_VERSION_MAX
        )
        codes = {each.error_code for topic in response.topics for each in topic.partitions} - {ErrorCode.NONE}
        return ErrorCode(min(codes)) if codes else ErrorCode.NONE

    def _find(self) -> tuple[str, int]:
        request = FindCoordinatorRequest(key=self._group_id, key_type=0)
        deadline = self._cluster.deadline()
        while True:
            response = self._cluster.ask_any(request, FindCoordinatorResponse, version_max=_FIND_VERSION_MAX)
            if response.error_code == ErrorCode.NONE:
                return response.host, response.port
            code = ErrorCode(response.error_code)
            if not code.retriable:
                raise RequestRefused(f"group {self._group_id}: {code.name}")
            if deadline.passed:
                raise ClusterUnreachable(f"group {self._group_id} has no coordinator: {code.name}")
            deadline.pause()
