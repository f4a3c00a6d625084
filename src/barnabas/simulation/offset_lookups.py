"""Look-ups of offsets by time, and the check of each against the log.

The answer to a time is the first record that is not older, among those that are committed. The answer to "the latest
time" is a record with the largest timestamp. Records are not deleted in the topic, so the log as it is read at the end
has all that was committed earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.simulation.bare_client import BareClient
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.history import History, Place, Problem, spot_text
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.side_work import ReadRecords
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US

LATEST, EARLIEST, YOUNGEST, EARLIEST_LOCAL = -1, -2, -3, -4
_TIMEOUT_MS: Final = 5_000
_PAUSE_S: Final = 0.2
_GAP_S: Final = 0.7
_BACK_MS_MAX: Final = 90_000
#: The first version with a single offset, and the first one with the youngest record and the local log start.
_SINGLE_OFFSET, _YOUNGEST_SINCE = 1, 8
_VERSION_MAX: Final = 10


class Lookup(NamedTuple):
    """A look-up and its answer. The answer must take into account every record that was acknowledged before the known
    time.
    """

    place: Place
    asked: int
    known_us: int
    offset: int
    timestamp: int


class LookupClient:
    """A client that looks up offsets of random partitions."""

    def __init__(self, cluster: Cluster, client: Client, topic: Topic) -> None:
        self._world = cluster.world
        self._cluster = cluster
        self.client = client
        self._topic = topic
        self._decided = DecidedMetadata(cluster)
        self._random = cluster.world.stream(f"workload/{client.name}")
        self.lookups: list[Lookup] = []
        self.stopping = False
        self.acked = 0

    async def run(self) -> None:
        bare = BareClient(self._cluster, self.client)
        while not self.stopping:
            place = self._random.choice(self._topic.places)
            if not await self._look_up(bare, place, self._time()):
                bare.forget()
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(self._random.expovariate(1 / _GAP_S))

    def _time(self) -> int:
        if self._random.random() < 0.4:
            return self._random.choice((LATEST, EARLIEST, YOUNGEST, EARLIEST_LOCAL))
        wall_ms = (EPOCH_WALL_US + self._world.now_us) // MILLISECOND_US
        return wall_ms - self._random.randint(-_BACK_MS_MAX // 2, _BACK_MS_MAX)

    async def _look_up(self, bare: BareClient, place: Place, asked: int) -> bool:
        row = ListOffsetsRequest.ListOffsetsPartition(partition_index=place[1], timestamp=asked)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=place[0], partitions=[row])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=_TIMEOUT_MS)
        least = _YOUNGEST_SINCE if asked < EARLIEST else _SINGLE_OFFSET
        node = await bare.leader(*place)
        requested_us = self._world.now_us
        version = self._random.randint(least, _VERSION_MAX)
        answer = await bare.call(node, request, ListOffsetsResponse, version_max=version)
        if answer is None or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return False
        found = answer.topics[0].partitions[0]
        # A broker that does not know yet that it was deposed answers from its own log.
        known_us = requested_us if self._decided.leads(node, *place) else 0
        self.lookups.append(Lookup(place, asked, known_us, found.offset, found.timestamp))
        self.acked += 1
        return True

    def problems(self, found: ReadRecords, history: History) -> list[Problem]:
        """Returns wrong answers. `found` is the log at the end."""
        return [
            Problem(f"a wrong look-up: {spot_text((each.place, each.asked))} is {each.offset}: {wrong}")
            for each in self.lookups
            for wrong in _wrong(each, found[each.place], list(_acked_before(each, history)))
        ]


def _acked_before(lookup: Lookup, history: History) -> Iterator[int]:
    """Yields the offsets that were acknowledged before the known time."""
    for value, (place, offset) in history.acked.items():
        if place == lookup.place and history.acked_us[value] < lookup.known_us:
            yield offset


def _wrong(lookup: Lookup, records: Sequence[Any], acked: Sequence[int]) -> Iterator[str]:
    """Yields what is wrong with an answer: `acked` offsets were committed when it was asked for."""
    times = {record.offset: record.timestamp for record in records}
    end = max(acked, default=-1) + 1
    if lookup.asked == LATEST:
        if not end <= lookup.offset <= len(records):
            yield f"the end of the log is between {end} and {len(records)}"
    elif lookup.asked in (EARLIEST, EARLIEST_LOCAL):
        if lookup.offset != 0:
            yield "nothing was deleted"
    elif lookup.offset == -1:
        if lookup.asked != YOUNGEST and any(times[offset] >= lookup.asked for offset in acked if offset in times):
            yield "an acknowledged record is not older"
    elif times.get(lookup.offset) != lookup.timestamp:
        yield f"the record there is from {times.get(lookup.offset)}, not from {lookup.timestamp}"
    elif lookup.asked == YOUNGEST:
        if any(times[offset] > lookup.timestamp for offset in acked if offset in times):
            yield "an acknowledged record is younger"
    elif lookup.timestamp < lookup.asked:
        yield f"it is from {lookup.timestamp}"
    elif any(time >= lookup.asked for offset, time in times.items() if offset < lookup.offset):
        yield "an earlier record is not older"
