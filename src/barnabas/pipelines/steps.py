"""The moments between which a driver may die: a name for each, so that the tests can kill it at every one.

computed    the tasks' files are staged, nothing else is known of them
recorded    the commit is in the log: from here on the batch counts
moved       one file is in its place
published   one Delta table has its commit
finished    everything is in place, the staged files are gone; Spark does not know yet
"""

from __future__ import annotations

STEPS = ("computed", "recorded", "moved", "published", "finished")


def reached(step: str) -> None:
    """Does nothing; a test puts its own function here."""
    assert step in STEPS
