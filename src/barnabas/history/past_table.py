"""The state of a cluster at one moment of the past: a `ClusterTable` that nothing writes to."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from barnabas.history.gaps import Gap
from barnabas.history.pages import table_html
from barnabas.monitor.columns import Volumes
from barnabas.monitor.severity import STATES, Severity
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import at
from barnabas.monitor.topics import Topic, Topics

if TYPE_CHECKING:
    import pandas


class PastTable(ClusterTable):
    """A table that all views of a live table can show; `version` is the number of the moment, `time_ms` its time."""

    def __init__(self) -> None:
        super().__init__()
        #: The requested time; `time_ms` is the time of the last change before it.
        self.asked_ms = 0
        #: The gap in which that time lies: the state is that at its beginning. None if it lies in none.
        self.gap: Gap | None = None
        #: The time of the sizes and offsets; None if none were recorded before the moment.
        self.volumes_ms: int | None = None

    def only(self, topic: str) -> PastTable:
        """Returns the state of one topic alone, at the same moment."""
        found = PastTable()
        found.__dict__.update(self.__dict__)
        rows = self.topics.by_name[topic].rows if topic in self.topics.by_name else np.zeros(0, np.int32)
        states = self.states.take(rows)
        volumes = Volumes(*(getattr(self.volumes, each.name)[rows] for each in fields(Volumes)))
        one = Topics()
        if len(rows):
            kept = Topic(self.topics.by_name[topic].number, self.topics.by_name[topic].identity)
            for row, partition in enumerate(states.partition.tolist()):
                kept.put(partition, row)
            one.fill([kept])
        found.fill(states, volumes, one)
        return found

    def dataframe(self) -> pandas.DataFrame:
        """Returns the partitions as a pandas DataFrame. Raises ModuleNotFoundError without pandas."""
        import pandas

        states = list(self.values())
        return pandas.DataFrame(
            {
                "topic": [state.topic for state in states],
                "partition": [state.partition for state in states],
                "state": pandas.Categorical(
                    [state.state for state in states],
                    categories=[*(STATES[each] for each in Severity), "leader silent"],
                ),
                "leader": [state.leader for state in states],
                "leader_epoch": [state.leader_epoch for state in states],
                "replicas": [list(state.replicas) for state in states],
                "isr": [list(state.isr) for state in states],
                "out_of_sync": [list(state.out_of_sync) for state in states],
                "min_isr": pandas.array([state.min_isr for state in states], dtype="Int64"),
                "size_bytes": pandas.array([state.size_bytes for state in states], dtype="Int64"),
            }
        )

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {STATES[each]}" for each, count in self.counts().items() if count)
        gap = "" if self.gap is None else f"; in a gap ({self.gap})"
        return f"<PastTable at {at(self.asked_ms)}: {len(self)} partitions: {counts or 'none'}{gap}>"

    def _repr_html_(self) -> str:
        return table_html(self, self.asked_ms, self.gap)
