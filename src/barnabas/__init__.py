"""Barnabas: a replicated, partitioned log broker cluster that Kafka clients use as if it were Apache Kafka."""

__version__ = "0.1.0"

#: Why a process of `python -O` ends, in one line; None in an ordinary process.
REFUSED_PYTHON = (
    None
    if __debug__
    else "python -O (or PYTHONOPTIMIZE) is refused: it removes assertions, and Barnabas relies on them to stop before "
    "it writes or acknowledges wrong data"
)
