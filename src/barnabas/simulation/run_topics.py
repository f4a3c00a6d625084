"""The topics of a run, and the changes that an operator can make to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.simulation.history import Place, TopicIncarnation


class Topic:
    """A topic. `choices`: config -> values that an operator can set.

    With `is_replaced`, it is deleted and created again, and only its present incarnation must keep records.
    """

    def __init__(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        choices: Mapping[str, Sequence[str]] | None = None,
        is_replaced: bool = False,
    ) -> None:
        self.name = name
        #: The number of partitions that certainly exist.
        self.partitions = partitions
        self.configs = dict(configs)
        self.choices = dict(choices or {})
        self.is_replaced = is_replaced
        self.incarnation = TopicIncarnation()

    @property
    def is_synced(self) -> bool:
        return self.configs.get("flush.messages") == "1"

    @property
    def places(self) -> list[Place]:
        return [(self.name, index) for index in range(self.partitions)]


def topics_of_a_run(min_in_sync: int) -> list[Topic]:
    """Returns the topics of a run of records.

    `orders`: every append is synced, so that not even unclean elections of last known leaders lose acked records.
    `clicks`: Kafka's default, the page cache of enough replicas; its settings change, and it may elect unclean leaders.
    `visits`: is deleted and created again.
    """
    enough = {"min.insync.replicas": str(min_in_sync)}
    choices = {
        "min.insync.replicas": sorted({"1", str(min_in_sync)}),
        "unclean.leader.election.enable": ("true", "false"),
        "flush.messages": ("1", "9223372036854775807"),
        "segment.bytes": ("1048576", "1073741824"),
    }
    return [
        Topic("orders", 3, {"flush.messages": "1", **enough}),
        Topic("clicks", 2, enough, choices=choices),
        Topic("visits", 1, enough, is_replaced=True),
    ]
