"""The wire protocol of ZooKeeper 3.8: codes, records, operations, and the frames that carry them.

Begin with `operations`, which maps each operation to its request and response. Imports `zookeeper.jute` and `common`.
"""
