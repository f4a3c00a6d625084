"""The replica monitor: each partition's leader, replicas, ISR and lag, live, of any Kafka cluster.

    cluster --looks--> Snapshot --diff--> Change --pending (the journal)--> a line

`snapshot`, `changes`, `causes` and `lines` are plain values and functions; `connection` and `cluster` ask the brokers,
`watch` goes on doing so. It is an ordinary client of the wire protocol: of a broker it knows what any client may ask.
"""
