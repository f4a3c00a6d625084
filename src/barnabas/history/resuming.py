"""The first moment of a recording: all of the table, or how it differs from the last state in the file.

Nothing was recorded between the two, which is a gap. The differences are written as events of one moment, so that
states after it are rebuilt in the same way as all others.
"""

from __future__ import annotations

import numpy as np

from barnabas.history.id_columns import ABSENT
from barnabas.history.rebuilding import Nodes, nodes_at, rebuilt
from barnabas.history.schema import CHANGED, COLUMNS, REMOVED
from barnabas.history.writer import BEGIN, FIRST_SEQ, RESUMED, Writer
from barnabas.monitor.change_set import BrokerChange
from barnabas.monitor.columns import IntArray
from barnabas.monitor.delta import NO_TOPIC_ID, TopicName
from barnabas.monitor.table import ClusterTable


def write_first_moment(writer: Writer, table: ClusterTable, time_ms: int) -> None:
    """Writes the present state of the table as the next moment."""
    is_new = writer.seq == 0
    nodes = Nodes({}, table.controller)
    known: dict[tuple[int, int], int] = {}
    if not is_new:
        nodes = nodes_at(writer.connection, writer.seq)
        known = _load(writer)
    writer.begin_moment(time_ms)
    if not is_new:
        controller = None if nodes.controller == table.controller else table.controller
        writer.write_nodes(_broker_changes(nodes, table), controller)
    present = {topic.name: topic.identity for topic in table.topics}
    for name, (_, topic) in list(writer.topics.items()):
        if name not in present or not _is_same(topic, present[name]):
            writer.delete_topic(topic)
    for name, topic in present.items():
        if name not in writer.topics:
            writer.add_topic(topic)
    _write_partitions(writer, table, known)
    writer.end_moment(BEGIN if is_new else RESUMED)


def _load(writer: Writer) -> dict[tuple[int, int], int]:
    """Reads the last state. Returns the numbers of its partitions by topic and partition."""
    connection = writer.connection
    writer.mirror = rebuilt(connection, writer.seq).columns
    for number, name, topic_id in connection.execute("SELECT id, name, topic_id FROM topics WHERE deleted_seq IS NULL"):
        writer.topics[name] = number, TopicName(name, topic_id)
    present = set(writer.mirror.present().tolist())
    rows = connection.execute("SELECT topic, partition, id FROM partitions").fetchall()
    return {(topic, partition): number for topic, partition, number in rows if number in present}


def _broker_changes(nodes: Nodes, table: ClusterTable) -> list[BrokerChange]:
    numbers = sorted(nodes.brokers.keys() | table.brokers.keys())
    pairs = [(number, nodes.brokers.get(number), table.brokers.get(number)) for number in numbers]
    return [BrokerChange(*each) for each in pairs if each[1] is None or each[2] is None or each[1][:5] != each[2][:5]]


def _write_partitions(writer: Writer, table: ClusterTable, known: dict[tuple[int, int], int]) -> None:
    rows = table.in_order()
    states = table.states.take(rows)
    topics = {number: topic.identity for number, topic in table.topics.by_number.items()}
    by_number = {number: writer.topics[topic.name][0] for number, topic in topics.items()}
    keys = zip((by_number[each] for each in states.topic.tolist()), states.partition.tolist(), strict=True)
    numbers = np.array([known.pop(key, ABSENT) for key in keys], np.int32)
    gone = np.array(sorted(known.values()), np.int32)
    writer.write_events(gone, np.full((len(gone), len(COLUMNS)), ABSENT, np.int32), REMOVED)
    is_known = numbers != ABSENT
    old, values = numbers[is_known], writer.values_of(states.take(is_known))
    is_changed = (values != writer.mirror.data[:, old].T).any(axis=1)
    writer.assign(rows[is_known], old)
    writer.write_events(old[is_changed], values[is_changed], CHANGED)
    new: IntArray = np.flatnonzero(~is_known).astype(np.int32)
    if not len(new):
        return
    if writer.seq == FIRST_SEQ:
        # The checkpoint after the first moment has the states.
        writer.mirror.put(writer.name(rows[new], states.take(new), topics), writer.values_of(states.take(new)))
    else:
        writer.create(rows[new], states.take(new), topics)


def _is_same(one: TopicName, other: TopicName) -> bool:
    return NO_TOPIC_ID in (one.topic_id, other.topic_id) or one.topic_id == other.topic_id
