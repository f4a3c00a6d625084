"""Consumer groups: the protocol of KIP-848 with assignment by the broker, also for their classic members (migration).

Imports the modules of `coordinators`, and `groups.classic` for the migration. Begin with `group.py` and `member.py`,
then `heartbeat.py` and `planning.py`.
"""
