"""Committed offsets as registers: each client commits, reads and deletes offsets of a group of its own, one request at
a time, so that the answer to each read is known.

What was committed is read until it is deleted or expires, and what was deleted does not come back, whichever broker
coordinates the group, unless tombstones are kept for a shorter time than a broker is away. A request without an answer
can take effect later: then the client continues with another group.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.simulation.bare_client import GROUP_KEY, BareClient
from barnabas.simulation.history import Place, Problem
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.side_work import PlainSideWork, ReadRecords, side_topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.transactional_workers import committed_offsets
from barnabas.simulation.work import Verdicts

_GAP_S: Final = 0.4
_PAUSE_S: Final = 0.2
_NONE: Final = -1
_BY_NAME: Final = 9
#: The last version of OffsetCommit with a retention time, and the retention time that is sent.
_WITH_RETENTION: Final = 4
_RETENTION_MS: Final = 3_000
#: The longest time for which a broker is away in a run.
_AWAY_MS_MAX: Final = 3_600_000


class Register:
    """The offsets of one group, as its only client knows them."""

    def __init__(self, group: str, *, can_expire: bool, can_return: bool = False) -> None:
        """`can_return`: what was deleted can be read again, because a replica has missed the tombstone: it was away for
        longer than `delete.retention.ms`. Kafka loses such deletions, too.
        """
        self.group = group
        self._can_expire = can_expire
        self._can_return = can_return
        #: Every offset that was committed, by place.
        self._past: dict[Place, set[int]] = {}
        self.offsets: dict[Place, int] = {}
        #: The places whose offset can have expired.
        self._expiring: set[Place] = set()

    def committed(self, place: Place, offset: int, *, expires: bool) -> None:
        self.offsets[place] = offset
        self._past.setdefault(place, set()).add(offset)
        self._expiring.discard(place)
        if expires or self._can_expire:
            self._expiring.add(place)

    def deleted(self, place: Place) -> None:
        self.offsets.pop(place, None)

    def problem(self, place: Place, offset: int) -> Problem | None:
        """Returns the fault of an offset that was read, and records an expired one as absent."""
        known = self.offsets.get(place, _NONE)
        if offset == known:
            return None
        if offset == _NONE and place in self._expiring:
            self.deleted(place)
            return None
        if known == _NONE and self._can_return and offset in self._past.get(place, ()):
            self.offsets[place] = offset
            return None
        kind = "a deleted offset is back" if known == _NONE else "a committed offset is wrong"
        return Problem(f"{kind}: {place[0]}-{place[1]} of group {self.group} is at {offset}, not at {known}")


class RegisterClient:
    """A client that commits, reads and deletes."""

    def __init__(self, cluster: Cluster, client: Client, topic: Topic, *, can_expire: bool) -> None:
        self._cluster = cluster
        self.client = client
        self._topic = topic
        self._can_expire = can_expire
        self._random = cluster.world.stream(f"workload/{client.name}")
        self._groups = 0
        self._count = 0
        self.register = self._another()
        self.problems: list[Problem] = []
        self.stopping = False
        self.acked = 0
        #: Whether the client has ended without a request under way.
        self.is_sure = False

    def _another(self) -> Register:
        self._groups += 1
        group = f"{self.client.name}-{self._groups}"
        retention_ms = self._cluster.layout.properties.get("log.cleaner.delete.retention.ms")
        can_return = retention_ms is not None and int(retention_ms) < _AWAY_MS_MAX
        return Register(group, can_expire=self._can_expire, can_return=can_return)

    async def run(self) -> None:
        self._bare = BareClient(self._cluster, self.client)
        self.register = self._another()
        steps = [self._commit, self._commit, self._read, self._read, self._delete_offset, self._delete_group]
        while not self.stopping:
            step = self._random.choice(steps)
            self.is_sure = False
            done = await step()
            if done is None:
                self.register = self._another()
            self.is_sure = True
            if done:
                self.acked += 1
            else:
                self._bare.forget()
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(self._random.expovariate(1 / _GAP_S))

    # -- steps: each returns whether it was done, or None if that is unknown

    def _verdict(self, code: int) -> bool | None:
        """Returns whether the request had its effect; None if that is unknown: a resigning coordinator refuses a
        request that it has written, and the next coordinator can have the record.
        """
        if code == ErrorCode.NONE:
            return True
        return False if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else None

    async def _coordinator(self) -> str:
        return await self._bare.coordinator(self.register.group, GROUP_KEY)

    async def _commit(self) -> bool | None:
        self._count += 1
        place, expires = self._random.choice(self._topic.places), self._random.random() < 0.2
        row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=place[1], committed_offset=self._count)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=place[0], partitions=[row])
        request = OffsetCommitRequest(group_id=self.register.group, topics=[topic])
        if expires:
            request.retention_time_ms = _RETENTION_MS
        answer = await self._bare.call(
            await self._coordinator(),
            request,
            OffsetCommitResponse,
            version_max=_WITH_RETENTION if expires else _BY_NAME,
        )
        done = None if answer is None else self._verdict(answer.topics[0].partitions[0].error_code)
        if done:
            self.register.committed(place, self._count, expires=expires)
        return done

    async def _read(self) -> bool | None:
        rows = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=self._topic.name, partition_indexes=[index for _, index in self._topic.places]
            )
        ]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.register.group, topics=rows)
        request = OffsetFetchRequest(groups=[group], require_stable=self._random.random() < 0.5)
        answer = await self._bare.call(await self._coordinator(), request, OffsetFetchResponse, version_max=_BY_NAME)
        if answer is None or answer.groups[0].error_code:
            return False
        for row in answer.groups[0].topics[0].partitions:
            if row.error_code:
                return False
            self.saw((self._topic.name, row.partition_index), row.committed_offset)
        return True

    def saw(self, place: Place, offset: int) -> None:
        problem = self.register.problem(place, offset)
        if problem is not None:
            self.problems.append(problem)

    async def _delete_offset(self) -> bool | None:
        place = self._random.choice(self._topic.places)
        row = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=place[1])
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=place[0], partitions=[row])
        request = OffsetDeleteRequest(group_id=self.register.group, topics=[topic])
        answer = await self._bare.call(await self._coordinator(), request, OffsetDeleteResponse)
        if answer is not None and answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return self._group_is_gone()
        done = None if answer is None else self._verdict(answer.error_code)
        if answer is not None and done:
            done = self._verdict(answer.topics[0].partitions[0].error_code)
        if done:
            self.register.deleted(place)
        return done

    async def _delete_group(self) -> bool | None:
        if self._random.random() < 0.5:
            return True
        request = DeleteGroupsRequest(groups_names=[self.register.group])
        answer = await self._bare.call(await self._coordinator(), request, DeleteGroupsResponse)
        if answer is None:
            return None
        code = answer.results[0].error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            return self._group_is_gone()
        done = self._verdict(code)
        if done:
            for place in tuple(self.register.offsets):
                self.register.deleted(place)
        return done

    def _group_is_gone(self) -> bool:
        """Records that the group does not exist and hence has no offsets. Returns True: the request had its effect."""
        for place in tuple(self.register.offsets):
            self.saw(place, _NONE)
        return True


class RegistersWork(PlainSideWork):
    """Two clients with groups of their own."""

    def __init__(self, cluster: Cluster, *, can_expire: bool) -> None:
        super().__init__()
        self._cluster = cluster
        self._topic = side_topic(cluster, "shelves", 3, {})
        self.topics = [self._topic]
        self._registrars = [
            RegisterClient(cluster, cluster.add_client(f"registrar{number}"), self._topic, can_expire=can_expire)
            for number in (1, 2)
        ]
        self.workers = self.must_make_progress = self._registrars

    async def read(self, client: Client) -> None:
        for registrar in self._registrars:
            if registrar.is_sure:
                group = registrar.register.group
                for place, offset in (
                    await committed_offsets(self._cluster, client, group, self._topic.places)
                ).items():
                    registrar.saw(place, offset)

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        return [problem for registrar in self._registrars for problem in registrar.problems]
