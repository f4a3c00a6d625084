"""The controller: decides on topics, partitions, leaders, ISRs, brokers, configurations and features.

May import the packages up to `raft` and `metadata`, not `coordinators`, `journal` or `broker`. Begin with
`kraft/controller.py`; `decisions.py` elects leaders and places replicas.
"""
