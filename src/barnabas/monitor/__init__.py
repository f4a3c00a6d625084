"""The replica monitor: each partition's leader, replicas, ISR and lag, live, of any Kafka cluster.

    polls, journal --Delta--> ClusterTable --ChangeSet--> Change --pending (the journal)--> a line

`table` is the state: columns over all partitions, with one change set for each version. `look_feed` and `journal_feed`
write to it, `cluster_feeds` runs them for one cluster, and `watch` turns its versions into changes with causes. The
monitor is an ordinary client: it sends only requests that any client can send. Imports `common`, `protocol`, `records`
and `tls`. Begin with `table.py`, then `cluster_feeds.py`.
"""
