"""A data directory that Barnabas and Apache Kafka use in turns, and Kafka's own verdict on the files in it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.drivers import ProcessClient
from tests.clients.servers import BarnabasServer, Server

import kafka_jars

COMPLAINT = re.compile(
    r"Exception|[Mm]ismatch|out of order|on-consecutive|isvalid: (?!true)"
    r"|nvalid bytes|Error|[Cc]orrupt|WARN|[Cc]ould not"
)
#: Lines about gaps in the offsets, which compaction leaves.
GAP = re.compile(r"Non-consecutive offsets in compacted[^/]*/")
#: A batch that compaction has left without records, for its producer's sequence number: the index has the timestamp of
#: its header (KIP-534), in Kafka's compacted logs, too, and the tool finds no record with it.
EMPTIED = re.compile(
    r"Found timestamp mismatch in :compacted.*\n(?: *Index timestamp: \d+, log timestamp: -1\n)+(?! *Index timestamp)"
)
ALARM = re.compile(r"\bERROR\b|\bFATAL\b|Traceback|WARN.*([Cc]orrupt|[Rr]ecover|[Rr]ebuil|[Ii]ndex|napshot|runcat)")
#: Lines that Kafka also logs as errors: a refused sequence number, partitions that are added to a topic, and requests
#: of its own (which it repeats) that arrive while its controller is still becoming active.
EXPECTED = re.compile(
    r"Error processing append operation on partition \S+:replayed-0"
    r"|Expected partition grown-\d with topic id \S+ to exist, but it was missing. Creating"
    r"|\[ControllerApis nodeId=1\] Unexpected error handling request .*\n.*\bNotControllerException: "
)


class SharedDirectory:
    """A directory that Barnabas and Apache Kafka use in turns, with the same node id, cluster, ports and properties."""

    def __init__(self, folder: Path, java: ProcessClient, properties: dict[str, str]) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self._java = java
        port, controller_port = kafka_jars.free_ports(2)
        self._port = port
        self._properties = {
            **properties,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        }

    def format(self) -> None:
        """Has Kafka format the directory, in the JVM that already runs."""
        server = self._kafka()
        server.directory.mkdir(parents=True, exist_ok=True)
        server.properties_path.write_text("".join(f"{key}={value}\n" for key, value in server.properties.items()))
        arguments = ("format", "-t", kafka_jars.CLUSTER_ID, "-c", str(server.properties_path), "--standalone")
        done = self._java.tool("kafka.tools.StorageTool", *arguments)
        assert done.code == 0, done.text

    @contextmanager
    def barnabas(self, end: str = "stop", tolerated: frozenset[str] = frozenset()) -> Iterator[Server]:
        """Runs Barnabas; afterwards Kafka's DumpLogSegments must find no fault except those tolerated."""
        server = BarnabasServer(self.folder, port=self._port, properties=self._properties)
        with self._running(server, end):
            yield server
        faults = sorted(self.faults() - tolerated)
        assert not faults, f"{len(faults)} faults in the files that Barnabas left:\n" + "\n".join(faults[:40])

    @contextmanager
    def kafka(self, end: str = "stop") -> Iterator[Server]:
        server = self._kafka()
        with self._running(server, end):
            yield server

    def faults(self) -> frozenset[str]:
        """Returns every complaint of Kafka's DumpLogSegments about the current files, each with its file."""
        files = sorted(
            path for path in self.data_dir.glob("*/*") if "." in path.name and not path.parent.name.endswith("-delete")
        )
        logs = [path for path in files if path.suffix in (".log", ".checkpoint")]
        indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
        others = [path for path in files if path.suffix in (".txnindex", ".snapshot")]
        found = self._complaints(logs, "--deep-iteration")
        found |= self._complaints(indexes, "--index-sanity-check", sane=True)
        found |= self._complaints(indexes, "--verify-index-only")
        found |= self._complaints(indexes)
        return frozenset(found | self._complaints(others))

    def _complaints(self, files: list[Path], *flags: str, sane: bool = False) -> set[str]:
        dumped = self._java.tool("kafka.tools.DumpLogSegments", *flags, "--files", ",".join(map(str, files)))
        text, errors = (each.replace(f"{self.data_dir}/", "") for each in (dumped.out, dumped.err))
        found = set() if dumped.code == 0 else {f"DumpLogSegments ended with code {dumped.code}"}
        found |= _with_files(text) | _with_files(errors)
        # An index gets its first entry after index.interval.bytes; until then the tool reports that it is empty.
        if (passed := len(re.findall(r"passed sanity check\.|is empty\.", text))) < len(files) * sane:
            found.add(f"only {passed} of {len(files)} indexes passed the sanity check")
        return found

    def _kafka(self) -> kafka_jars.KafkaServer:
        return kafka_jars.KafkaServer(self.folder, port=self._port, properties=self._properties)

    @contextmanager
    def _running(self, server: Server, end: str) -> Iterator[None]:
        before = server.log_path.stat().st_size if server.log_path.exists() else 0
        server.start()
        try:
            yield
            ending: dict[str, Callable[[], object]] = {"stop": server.stop, "kill": server.kill}
            ending[end]()
        finally:
            server.kill()
        said = server.log_path.read_bytes()[before:].decode(errors="replace")
        print(f"--- {server.log_path.name}, ended by {end}\n{said}")
        lines = [*said.splitlines(), ""]
        unexpected = [
            line
            for line, following in itertools.pairwise(lines)
            if ALARM.search(line) and not EXPECTED.search(f"{line}\n{following}")
        ]
        assert not unexpected, "\n".join(unexpected)


def _with_files(text: str) -> set[str]:
    """Returns the complaining lines, with the file that was being dumped."""
    found = set()
    file = ""
    for line in EMPTIED.sub("", f"{text}\n").splitlines():
        if line.startswith("Dumping "):
            file = line.removeprefix("Dumping ")
        elif COMPLAINT.search(line) and not GAP.match(line):
            # The summary at the end names the file itself.
            found.add(line if "/" in line or not file else f"{file}: {line.strip()}")
    return found
