"""A client of ZooKeeper without I/O: sessions across reconnects, requests that are answered once, watches that survive.

store              the port that users of znodes program against
zookeeper_client   the client: the port on the three modules that follow
session            connections, pings, timeouts; a table of states
requests           numbers, window, answers, losses
watches            what is set again after a reconnect
hosts              the connect string: servers and chroot

Imports `zookeeper.wire`, `zookeeper.jute`, `zookeeper.znode_paths` and `common`. Begin with `store.py`.
"""
