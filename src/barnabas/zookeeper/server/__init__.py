"""A standalone ZooKeeper server: sessions, watches, requests, connections and four-letter words, without I/O.

Imports `zookeeper.tree`, `zookeeper.txns`, `zookeeper.wire` and `common`; the files come through a port. Begin with
`ports.py`, which states what the host provides, then `zookeeper_server.py`.
"""
