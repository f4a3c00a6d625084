"""The replica monitor: each partition's leader, replicas, ISR and lag, live, of any Kafka cluster.

    cluster --looks--> Snapshot --diff--> Change --pending (the journal)--> a line

`snapshot`, `changes`, `event_matching` and `lines` are plain values and functions; `connection` and `cluster_reader`
query the brokers, `watch` does so repeatedly. The monitor is an ordinary client: it sends only requests that any client
can send.
"""
