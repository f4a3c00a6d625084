"""The file: one SQLite database with the events, the checkpoints between which they lie, and the samples of sizes.

    moments      one row for each version of the table: its number `seq`, its time, and its last event
    events       the state of one partition after one moment; `kind` says whether it was created, changed or removed
    checkpoints  the states of all partitions, brokers and the controller after one moment
    nodes        a broker that changed, or the controller (`broker` is null)
    topics       each topic that existed; one that was deleted and created again under its name is another one
    partitions   each partition that existed, with its number in events, checkpoints and samples
    lists        each list of brokers once: 0 is the empty one
    samples      sizes and offsets, at intervals
    gaps         when nothing was recorded

The state after a moment is that of the last checkpoint up to it, and the events between the two. Times never go back
from one moment to the next: the changes that a clock dates back get the time of the moment before.
"""

from __future__ import annotations

from typing import Final

#: The mark of SQLite's header that makes a database a history: "Brnb".
APPLICATION_ID: Final = 0x42726E62
VERSION: Final = 1

CHANGED: Final = 0
CREATED: Final = 1
REMOVED: Final = 2

#: The columns of a partition's state in events and checkpoints. Lists are numbers of rows of `lists`.
NUMBERS: Final = ("leader", "leader_epoch", "partition_epoch", "min_isr")
LIST_COLUMNS: Final = ("replicas", "isr", "elr", "offline", "adding", "removing", "directories")
COLUMNS: Final = (*NUMBERS, *LIST_COLUMNS)

TABLES: Final = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE lists(id INTEGER PRIMARY KEY, numbers TEXT NOT NULL);
CREATE TABLE causes(id INTEGER PRIMARY KEY, code TEXT, text TEXT NOT NULL, last_seq INTEGER NOT NULL);
CREATE TABLE topics(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, topic_id BLOB NOT NULL, created_seq INTEGER NOT NULL, deleted_seq INTEGER,
  deleted_cause INTEGER
);
CREATE INDEX topics_by_name ON topics(name);
CREATE TABLE partitions(id INTEGER PRIMARY KEY, topic INTEGER NOT NULL, partition INTEGER NOT NULL);
CREATE INDEX partitions_by_topic ON partitions(topic, partition);
CREATE TABLE moments(
  seq INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, last_event INTEGER NOT NULL, source TEXT NOT NULL,
  merged INTEGER NOT NULL
);
CREATE INDEX moments_by_time ON moments(time_ms);
CREATE TABLE events(
  id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, partition INTEGER NOT NULL, kind INTEGER NOT NULL,
  {", ".join(f"{name} INTEGER NOT NULL" for name in COLUMNS)}, missed INTEGER NOT NULL, cause INTEGER
);
CREATE INDEX events_by_partition ON events(partition);
CREATE INDEX events_by_kind ON events(kind) WHERE kind != 0;
CREATE TABLE nodes(id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, broker INTEGER, state TEXT NOT NULL, cause INTEGER);
CREATE TABLE checkpoints(
  seq INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, last_event INTEGER NOT NULL, nodes TEXT NOT NULL,
  columns BLOB NOT NULL
);
CREATE TABLE samples(
  id INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, seq INTEGER NOT NULL, is_full INTEGER NOT NULL,
  columns BLOB NOT NULL
);
CREATE INDEX samples_by_time ON samples(time_ms);
CREATE TABLE gaps(id INTEGER PRIMARY KEY, begin_ms INTEGER NOT NULL, end_ms INTEGER, reason TEXT NOT NULL);
"""
