"""The steps between which a driver can crash: each has a name, so that the tests can kill it at every one.

computed    the tasks' files are staged, and no commit lists them
recorded    the commit is in the log: from here on the batch counts
moved       one file is at its final path
published   one Delta table has its commit
finished    every file is at its final path, the staged files are gone; Spark does not know yet
"""

from __future__ import annotations

STEPS = ("computed", "recorded", "moved", "published", "finished")


def reached(step: str) -> None:
    """Does nothing; a test replaces this function by its own."""
    assert step in STEPS
