"""A Spark session for the pipelines: on this machine, on a cluster, or on a Spark Connect server."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.failures import causes
from barnabas.pipelines.java import find_java
from barnabas.spark.workers import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The Spark master: all cores; a task whose Python worker crashes is tried again, as on a cluster.
LOCAL_MASTER = "local[*,4]"
_LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"
#: Java's C2 compiler costs more than it gains in the first minutes on one machine: without it a session and its first
#: batch take half the CPU time (18 s instead of 36 s), a batch of 4,000 orders 1.7 s instead of 3.
_QUICK_START = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    # On a busy machine a Python worker can take longer than the usual 15 s to start.
    "spark.python.authenticate.socketTimeout": "120s",
}


@contextlib.contextmanager
def spark_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, log_file: Path | None = None
) -> Iterator[SparkSession]:
    """Provides a session, which is stopped at the end. `log_file` is the file for the stderr of Java and its workers.

    Raises:
        PipelineError: PySpark or Java is missing, or the master does not answer.
    """
    # The warning concerns pandas 3, which the pipelines do not use.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    # A crash of Java is reported in one line; Py4J would log a traceback for each call to it.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="barnabas-spark-") as directory:
        # Other machines have no such script; there the environment of the cluster determines the Python.
        is_local = (master or LOCAL_MASTER).startswith("local")
        ours = worker_python(directory)
        os.environ["PYSPARK_PYTHON"] = ours if is_local else sys.executable
        # The driver starts the source's own process, which has 10 s to start.
        given = os.environ.get("PYSPARK_DRIVER_PYTHON")
        os.environ["PYSPARK_DRIVER_PYTHON"] = given or ours
        try:
            with _started(master, settings, log_file) as session:
                yield session
        finally:
            if given is None:
                del os.environ["PYSPARK_DRIVER_PYTHON"]


@contextlib.contextmanager
def _started(master: str | None, settings: Mapping[str, str] | None, log_file: Path | None) -> Iterator[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise PipelineError("the pipelines need PySpark", "pip install 'barnabas[pipeline]'") from error
    if (master or "").startswith("sc://"):
        session = _connect(master or "")
    else:
        os.environ["JAVA_HOME"] = str(find_java().home)
        chosen = _SETTINGS | _local_settings(master) | dict(settings or {})
        builder = SparkSession.builder.appName("barnabas").master(master or LOCAL_MASTER)
        for key, value in chosen.items():
            builder = builder.config(key, value)
        with _stderr_to(log_file):
            try:
                session = builder.getOrCreate()
            except causes() as error:
                raise _not_started(master, error, log_file) from error
    try:
        yield session
    finally:
        with contextlib.suppress(*causes()):
            session.stop()


def _local_settings(master: str | None) -> dict[str, str]:
    options = f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS}"
    found: dict[str, str] = {}
    if master is None or master.startswith("local"):
        options += _QUICK_START
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        found["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
    found["spark.driver.extraJavaOptions"] = options
    return found


def _connect(address: str) -> SparkSession:
    try:
        from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise PipelineError(f"Spark Connect lacks a package: {error}", "pip install 'pyspark[connect]'") from error
    try:
        session: Any = RemoteSession.builder.remote(address).getOrCreate()
        session.conf.set("spark.sql.session.timeZone", "UTC")
    except causes() as error:
        raise PipelineError(f"no Spark Connect server answers at {address}: {_first_line(error)}") from error
    connected: SparkSession = session
    return connected


def _not_started(master: str | None, error: BaseException, log_file: Path | None) -> PipelineError:
    where = f"; see {log_file}" if log_file else ""
    return PipelineError(f"Spark did not start with master {master or LOCAL_MASTER}: {_first_line(error)}{where}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def _stderr_to(log_file: Path | None) -> Iterator[None]:
    """Redirects stderr to the file during the block. Processes started in this time keep writing to it."""
    if log_file is None:
        yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    before = os.dup(2)
    target = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        os.close(target)
