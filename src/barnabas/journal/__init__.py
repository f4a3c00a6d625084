"""The cluster's journal: every change of the metadata with its cause, in the topic `__cluster_events`.

Owns the events, their causes and the records of both. Imports `controller` and the packages below it, never `broker`.
Begin reading with `events.py`; `broker.journal_wiring` connects the journal to a node.
"""
