"""The controller of a metadata quorum (KRaft): proposes decisions to raft, and answers when they are committed.

Owns what only a quorum has: proposals, broker sessions by heartbeats, registrations, feature levels, log directories
(KIP-858), no-op records, metadata transactions. May import `controller.requests` and `raft`. Begin with
`controller.py`.
"""
