"""Tools of others that read and write Kafka's znodes, unmodified: each is installed once, in the cache folder.

    kafka-utils 4.1.0    Yelp's: kafka-check, kafka-cluster-manager
    kafka-tools 0.1.9    LinkedIn's: kafka-assigner, which starts Kafka's own tools (2.8.2)
    kazoo-go             a Go library, here as a program (`kazoo_go/main.go`)

The first two share the package name `kafka`, so each has a virtual environment of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.clients import programs

import kafka28_jars
import kafka_jars

TIMEOUT_S: Final = 120.0
#: kafka-tools does not name `six`, which it imports.
_REQUIREMENTS: Final = {"kafka-utils": ("kafka-utils==4.1.0",), "kafka-tools": ("kafka-tools==0.1.9", "six==1.17.0")}
_TOOLS: Final = {
    "kafka-reassign-partitions.sh": "kafka.admin.ReassignPartitionsCommand",
    "kafka-preferred-replica-election.sh": "kafka.admin.PreferredReplicaLeaderElectionCommand",
}


def _bin(name: str) -> Path:
    """Returns the folder of the programs of a Python project."""
    requirements = _REQUIREMENTS[name]
    label = requirements[0].replace("==", "-")
    folder = kafka_jars.cache_dir() / f"{label}-py{sys.version_info[0]}{sys.version_info[1]}"
    with kafka_jars.cache_lock(name):
        if not (folder / "complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *requirements)
            (folder / "complete").touch()
    return folder / "bin"


def _run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, env=env
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done


def kafka_utils(folder: Path, zookeeper: str, bootstrap: str, program: str, *args: str) -> tuple[int, str]:
    """Runs a program of kafka-utils on a cluster. Returns its exit code and its standard output."""
    brokers = "".join(f'        - "{address}"\n' for address in bootstrap.split(","))
    (folder / "kafka.yaml").write_text(
        f"clusters:\n  here:\n    broker_list:\n{brokers}    zookeeper: {zookeeper}\nlocal_config:\n  cluster: here\n"
    )
    where = ("--cluster-type", "kafka", "--cluster-name", "here", "--discovery-base-path", str(folder))
    command = [str(_bin("kafka-utils") / program), *where, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def kafka_assigner(zookeeper: str, *args: str) -> str:
    """Runs LinkedIn's kafka-assigner with Kafka's tools of 2.8.2. Returns its output."""
    java = shutil.which("java")
    assert java is not None
    with tempfile.TemporaryDirectory() as tools:
        for name, main in _TOOLS.items():
            script = Path(tools) / name
            script.write_text(f'#!/bin/sh\nexec {" ".join(kafka28_jars.java_command(main))} "$@"\n')
            script.chmod(0o755)
        home = str(Path(java).resolve().parent.parent)
        command = [str(_bin("kafka-tools") / "kafka-assigner"), "--zookeeper", zookeeper, "--tools-path", tools, *args]
        done = _run(*command, env={**os.environ, "JAVA_HOME": home})
    return done.stdout + done.stderr


def kazoo_go(zookeeper: str, *args: str) -> Any:
    """Returns what kazoo-go reads; None after a change (`create`, `delete`)."""
    done = _run(programs.kazoo_go(), zookeeper, *args)
    return None if args else json.loads(done.stdout)
