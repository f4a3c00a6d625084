"""Apache ZooKeeper 3.8's protocol, both ends, without I/O: the data tree, a standalone server, its files, and a client.

wire      the records of requests and responses, in jute
txns      the transactions that the log stores and the tree applies
tree      the data tree: nodes, their Stats, and `apply`
server    sessions, watches and requests, up to the bytes of a connection
files     Apache's formats of transaction logs and snapshots
client    sessions, requests and watches of a client

The package imports only `common`. The hosts on sockets and files are in `server/`. Begin with `wire/`, then `tree/`.
"""
