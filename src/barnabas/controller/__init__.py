"""The controller: decides on topics, partitions, leaders, ISRs, brokers, configurations and features.

May import the packages up to `raft` and `metadata`, not `coordinators`, `journal` or `broker`. Begin with
`kraft/controller.py`, the controller of a metadata quorum; its decisions are in `requests`, and those about one
partition, such as the election of a leader, in the package `decisions`.
"""
