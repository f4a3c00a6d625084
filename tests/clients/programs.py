"""Builders of the client programs that are not Python: each version of their sources is built once, in the cache
folder.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.clients.drivers import ProcessClient, Traits

import kafka_jars

HERE = Path(__file__).resolve().parent
_jvms: list[ProcessClient] = []


def java(bootstrap: str) -> ProcessClient:
    """Returns a client in the one JVM for all clusters of this process: it takes seconds to start, and a while to
    become fast.
    """
    if not _jvms or not _jvms[-1].is_running:
        jvm = (*kafka_jars.LIGHT_JVM, "-Xmx512m")
        command = kafka_jars.java_command("Driver", jvm=jvm, extra_classpath=str(_java_classes()))
        _jvms.append(ProcessClient("java", command, bootstrap, Traits()))
        atexit.register(end_java)
    return _jvms[-1].at(bootstrap)


def end_java() -> None:
    """Ends the JVM and all its clients."""
    while _jvms:
        _jvms.pop().close()


def java_program(main: str) -> list[str]:
    """Returns the command of java/MAIN.java, without its arguments."""
    jvm = (*kafka_jars.LIGHT_JVM, "-Xmx256m")
    return kafka_jars.java_command(main, jvm=jvm, extra_classpath=str(_java_classes()))


def member(client: str) -> list[str]:
    """Returns the command of a member of a group, without its arguments; `client` is library and kind, for example
    java-range.
    """
    make, _, kind = client.partition("-")
    if make == "java":
        return [*java_program("Member"), kind]
    if make == "kafkajs":
        return ["node", str(_node() / "member.js")]
    if make in ("franz", "sarama"):
        return [_go(), make, kind]
    return [sys.executable, str(HERE / "group_member.py"), client]


def chain_link(client: str) -> list[str]:
    """Returns the command of a link of a chain, without its arguments; `client` is library and kind, for example
    java-classic.
    """
    make, _, kind = client.partition("-")
    if make == "java":
        return [*java_program("Chain"), kind]
    return [sys.executable, str(HERE / "chain.py"), client]


def _java_classes() -> Path:
    _require("javac", "java")

    def build(source: Path, target: Path) -> None:
        sources = [str(path) for path in sorted(source.glob("*.java"))]
        _run(["javac", "-cp", kafka_jars.classpath(), "-d", str(target), *sources])

    return _built("java", build, extra=kafka_jars.jars().name)


def franz_go(bootstrap: str) -> ProcessClient:
    # The program takes one address; its client learns the others from that broker.
    seed = bootstrap.partition(",")[0]
    return ProcessClient("franz-go", [_go()], seed, Traits())


def _go() -> str:
    _require("go")

    def build(source: Path, target: Path) -> None:
        _run(["go", "build", "-o", str(target / "driver"), "."], cwd=source)

    return str(_built("go", build) / "driver")


def monitor_go() -> str:
    """Returns the path of a program that watches a state in ZooKeeper. Its argument is the address."""
    _require("go")

    def build(source: Path, target: Path) -> None:
        _run(["go", "build", "-o", str(target / "monitor"), "."], cwd=source)

    return str(_built("monitor_go", build) / "monitor")


def kazoo_go() -> str:
    """Returns the path of a program that prints what kazoo-go reads. Its first argument is the connect string."""
    _require("go")

    def build(source: Path, target: Path) -> None:
        _run(["go", "build", "-o", str(target / "kazoo"), "."], cwd=source)

    return str(_built("kazoo_go", build) / "kazoo")


def kafkajs(bootstrap: str) -> ProcessClient:
    # kafkajs keeps headers in an object, which has each name once, and refuses null in it.
    traits = Traits(null_headers=False, repeated_headers=False)
    environment = {"KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    command = ["env", *(f"{key}={value}" for key, value in environment.items()), "node"]
    seed = bootstrap.partition(",")[0]
    return ProcessClient("kafkajs", [*command, str(_node() / "driver.js")], seed, traits)


def _node() -> Path:
    _require("node", "npm")

    def build(source: Path, target: Path) -> None:
        for name in ("package.json", "package-lock.json", "driver.js", "member.js"):
            shutil.copy(source / name, target)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=target)

    return _built("node", build)


def _built(name: str, build: Callable[[Path, Path], None], *, extra: str = "") -> Path:
    source = HERE / name
    digest = hashlib.sha256(extra.encode())
    for path in sorted(source.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    folder = kafka_jars.cache_dir() / f"client-{name}-{digest.hexdigest()[:12]}"
    with kafka_jars.cache_lock(f"client-{name}"):
        if not folder.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f"client-{name}-", dir=kafka_jars.cache_dir()))
            build(source, partial)
            os.rename(partial, folder)
    return folder


def _require(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not found: run tools/install_system_deps.sh")


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
