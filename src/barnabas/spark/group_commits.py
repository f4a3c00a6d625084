"""Commits of a query's progress to a consumer group, so that lag tools see it. The query never reads it back.

The commits come from outside the group's protocol (generation -1, no member). A broker accepts this while the group has
no members, as it does from tools that reset offsets.
"""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.spark.checkpoint import Progress
from barnabas.spark.cluster_client import ClusterClient, RetryDeadline
from barnabas.spark.errors import RequestRefused

#: Later versions name topics by ids only.
_COMMIT_VERSION_MAX = 9
#: Later versions request several coordinators at the same time.
_FIND_VERSION_MAX = 3


#: The longest time that a micro-batch waits for its commit: the next one commits again.
_GIVE_UP_MS = 1_000


class GroupCommits:
    """A committer that keeps the coordinator's address, and finds it again if it moves or starts."""

    def __init__(self, cluster: ClusterClient, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._coordinator: tuple[str, int] | None = None

    def commit(self, progress: Progress) -> None:
        """Commits the offsets of all partitions.

        Raises:
            OSError, ClusterUnreachable, RequestRefused.
        """
        deadline = RetryDeadline(self._cluster.settings, _GIVE_UP_MS)
        while True:
            try:
                code = self._try(progress)
                if code == ErrorCode.NONE:
                    return
                if deadline.passed or not code.retriable:
                    raise RequestRefused(f"group {self._group_id}: {code.name}")
            except OSError:
                if deadline.passed:
                    raise
            self._coordinator = None
            deadline.pause()

    def _try(self, progress: Progress) -> ErrorCode:
        if self._coordinator is None and (code := self._find()) != ErrorCode.NONE:
            return code
        assert self._coordinator is not None
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
        response = self._cluster.send_to(
            self._coordinator, request, OffsetCommitResponse, version_max=_COMMIT_VERSION_MAX
        )
        codes = {each.error_code for topic in response.topics for each in topic.partitions} - {ErrorCode.NONE}
        return ErrorCode(min(codes)) if codes else ErrorCode.NONE

    def _find(self) -> ErrorCode:
        request = FindCoordinatorRequest(key=self._group_id, key_type=0)
        response = self._cluster.send_to_any(request, FindCoordinatorResponse, version_max=_FIND_VERSION_MAX)
        if response.error_code == ErrorCode.NONE:
            self._coordinator = (response.host, response.port)
        return ErrorCode(response.error_code)
