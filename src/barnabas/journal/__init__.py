"""The journal of the cluster: every change of the metadata with its cause, in the topic `__cluster_events`.

Owns events, causes and the records of both. Imports `controller` and what is below it, never `broker`. Begin with
`events.py`; `broker.journal_wiring` connects it to a node.
"""
