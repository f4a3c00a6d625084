"""The screens of one cluster: what is computed from its table, kept until the table changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import orjson

from barnabas.console.cluster_view import ClusterView
from barnabas.console.rates import Rates
from barnabas.console.views.directories import DirectoryLooks
from barnabas.console.views.map_columns import MapColumns
from barnabas.console.views.moves import Progress
from barnabas.console.views.policies import PolicyRanks
from barnabas.console.views.topics import TopicsView
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.watch import Step

#: The number of computed screens that are cached.
_KEPT: Final = 64


class Screens:
    def __init__(self, cluster: ClusterView, rates: Rates | None = None) -> None:
        self.cluster = cluster
        self.rates = Rates(cluster.table) if rates is None else rates
        self.topics = TopicsView(cluster, self.rates.by_row)
        self.map = MapColumns(cluster)
        self._computed: OrderedDict[Hashable, tuple[object, Any]] = OrderedDict()

    def follow(self) -> None:
        """Takes over what changed in the cluster; only a part of a cluster has something to do."""

    async def policy_ranks(self) -> Mapping[str, int]:
        """Returns the ranks of topics by their policies; a history records none."""
        return {}

    def state_key(self) -> tuple[object, ...]:
        """Returns what changes whenever a screen can differ."""
        cluster = self.cluster
        return (
            cluster.table.version,
            cluster.occurrences.last_id,
            cluster.problem,
            cluster.is_filled,
            cluster.groups_ms,
            cluster.acknowledged.version,
        )

    def once(self, name: Hashable, compute: Callable[[], Any]) -> Any:
        """Returns the result of `compute`, once for each state of the cluster, and again every second because it shows
        ages.
        """
        key = (*self.state_key(), self.cluster.clock_ms() // 1_000)
        found = self._computed.get(name)
        if found is not None and found[0] == key:
            return found[1]
        result = compute()
        self._computed[name] = (key, result)
        self._computed.move_to_end(name)
        while len(self._computed) > _KEPT:
            self._computed.popitem(last=False)
        return result


class LiveScreens(Screens):
    """The screens of a cluster that is watched. `cluster` is the part of it that they show, with the rates of the
    whole; without it, everything.
    """

    def __init__(self, watched: WatchedCluster, cluster: ClusterView | None = None, rates: Rates | None = None) -> None:
        super().__init__(watched if cluster is None else cluster, rates)
        self.watched = watched
        self.progress = Progress()
        self.directories = DirectoryLooks()
        self._policy_ranks = PolicyRanks()
        if rates is None:
            watched.follow(self._sample)

    async def policy_ranks(self) -> Mapping[str, int]:
        return await self._policy_ranks.of(self.cluster, self.topics.names())

    def _sample(self, _step: Step) -> None:
        self.rates.sample(self.watched.clock_ms())
        self.rates.groups.sample(self.watched.groups_ms, self.watched.groups)


def to_json(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
