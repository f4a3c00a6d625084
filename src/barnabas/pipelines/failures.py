"""The cause of a stream's failure, as one line and a hint on what to do.

Spark reports an exception of a task, of the source's process or of the batch function only as text in its own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from barnabas.pipelines.errors import PipelineError

STREAM_HINT = "start the pipeline again: it continues where it stopped"
#: The last line of a Python traceback whose exception is meant for the user.
_REPORTED = re.compile(r"^(?:barnabas\.)?[\w.]*\b(\w+): (.+)$", re.MULTILINE)
_OURS = {
    "PipelineError": None,
    "ClusterUnreachable": "start the pipeline again when the cluster is up: it continues where it stopped",
    "RequestRefused": STREAM_HINT,
    "DataLost": "the tables contain everything before the gap; failOnDataLoss=false continues after it",
    "ConfigError": None,
}
#: The text with which Spark begins its report of a failed query; the cause follows it.
_ENDED = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE: \w+)?\s*$", re.DOTALL)
_SLOW_START = "Python worker failed to connect back"
_FULL = ("No space left on device", "Errno 28", "Disk quota exceeded")


#: The modules in which the libraries define their exceptions; one that is not loaded has raised none.
_EXCEPTIONS = (
    ("pyspark.errors", "PySparkException"),
    ("py4j.protocol", "Py4JError"),
    ("grpc", "RpcError"),
    ("pyarrow", "ArrowException"),
    ("deltalake.exceptions", "DeltaError"),
    ("duckdb", "Error"),
)


def causes() -> tuple[type[BaseException], ...]:
    """Returns the exceptions of the libraries that a pipeline uses, and those of the system."""
    loaded = [(sys.modules[module], name) for module, name in _EXCEPTIONS if module in sys.modules]
    return (PipelineError, OSError, RuntimeError, ValueError, *(getattr(module, name) for module, name in loaded))


def is_slow_start(error: BaseException) -> bool:
    """Returns whether a stream failed only because its source process took longer than Spark's 10 s, which no setting
    changes, to import PySpark. Another start can succeed.
    """
    return _SLOW_START in str(error)


def pipeline_error(error: BaseException, tables: Path, hint: str | None = STREAM_HINT) -> PipelineError:
    """Returns the cause of the failure if the user can do something about it; otherwise the first line of Spark's own
    text.
    """
    if isinstance(error, PipelineError):
        return error
    text = str(error)
    if any(sign in text for sign in _FULL):
        return PipelineError(
            f"the disk is full under {tables} (or under Spark's own temporary directory)",
            "free some space and start the pipeline again: nothing is lost, and it continues where it stopped",
        )
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return PipelineError(f"Spark's Java process has ended; its output is in {tables}/_spark.log", hint)
    for name, words in _REPORTED.findall(text):
        if name in _OURS:
            return PipelineError(words.strip(), _OURS[name])
    if is_slow_start(error):
        return PipelineError("Python did not start within Spark's 10 s: the machine is too busy", STREAM_HINT)
    # Below this line Spark describes the query, not the failure.
    text = text.partition("=== Streaming Query ===")[0]
    if ended := _ENDED.search(text):
        text = ended[1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if _REPORTED.match(line)] or lines or [type(error).__name__]
    return PipelineError(f"the stream failed: {said[0][:400]}", "start it again: it continues where it stopped")
