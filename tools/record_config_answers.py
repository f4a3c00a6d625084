"""Sends the requests of tests/data/configs/4.1.0-answers.jsonl to an Apache Kafka broker and records its answers again.

python tools/record_config_answers.py            record
python tools/record_config_answers.py --check    only print what would change

The requests and their order do not change; a topic `orders` with one partition is created first.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypeVar

import kafka_jars
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ANSWERS = Path(__file__).resolve().parent.parent / "tests" / "data" / "configs" / "4.1.0-answers.jsonl"
#: Settings that give the recorded node its place on the machine and are not part of the recording.
PLACES = ("listeners", "controller.quorum.bootstrap.servers", "log.dirs")
#: Dynamic settings take effect a moment after they are answered.
_SETTLE_S = 2.0

M = TypeVar("M", bound=Message)


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._count = 0

    def call(self, request: Message, version: int, response: type[M]) -> M:
        """Sends a request and returns its answer. The version must be flexible: both headers end with an empty set of
        tags.
        """
        self._count += 1
        assert request.API_KEY is not None, "a request"
        body = struct.pack(">hhihB", request.API_KEY, version, self._count, -1, 0) + codec.encode(request, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._socket.recv(4, socket.MSG_WAITALL))
        answer, _ = codec.decode(response, version, self._socket.recv(size, socket.MSG_WAITALL), 5)
        return answer


def call(connection: Connection, probe: dict[str, Any]) -> Any:
    if probe["api"] == "DescribeConfigs":
        return _describe(connection, probe)
    if probe["api"] == "AlterConfigs":
        replacing = AlterConfigsRequest(validate_only=probe["validate_only"])
        for kind, name, entries in probe["resources"]:
            rows = [AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in entries]
            replacing.resources.append(
                AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
            )
        answered = connection.call(replacing, 2, AlterConfigsResponse).responses
        return [[row.error_code, row.error_message, row.resource_type, row.resource_name] for row in answered]
    request = IncrementalAlterConfigsRequest(validate_only=probe["validate_only"])
    for kind, name, entries in probe["resources"]:
        changes = [
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in entries
        ]
        request.resources.append(
            IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        )
    changed = connection.call(request, 1, IncrementalAlterConfigsResponse).responses
    return [[row.error_code, row.error_message, row.resource_type, row.resource_name] for row in changed]


def _describe(connection: Connection, probe: dict[str, Any]) -> dict[str, Any]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=probe["resource_type"],
                resource_name=probe["resource_name"],
                configuration_keys=probe["keys"],
            )
        ],
        include_synonyms=probe["synonyms"],
        include_documentation=probe["documentation"],
    )
    (result,) = connection.call(request, 4, DescribeConfigsResponse).results
    return {
        "error_code": result.error_code,
        "error_message": result.error_message,
        "type": result.resource_type,
        "name": result.resource_name,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "source": entry.config_source,
                "sensitive": entry.is_sensitive,
                "type": entry.config_type,
                "synonyms": [[synonym.name, synonym.value, synonym.source] for synonym in entry.synonyms],
            }
            for entry in sorted(result.configs, key=lambda entry: entry.name)
        ],
    }


def record() -> list[str]:
    """Returns the lines of the file with the answers of this machine's Kafka."""
    first, *rest = [json.loads(line) for line in ANSWERS.read_text("utf-8").splitlines()]
    properties = {key: value for key, value in first["static"].items() if key not in PLACES}
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        server = kafka_jars.KafkaServer(Path(directory), properties=properties)
        places = {server.properties[key]: first["static"][key] for key in PLACES}
        with server:
            connection = Connection(server.port)
            topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
            connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
            changed = False
            for probe in rest:
                if changed and probe["api"] == "DescribeConfigs":
                    time.sleep(_SETTLE_S)
                changed = not probe.get("validate_only", True)
                probe["answer"] = call(connection, probe)
                line = json.dumps(probe, separators=(",", ":"))
                for here, recorded in places.items():
                    line = line.replace(here, recorded)
                lines.append(line)
    return [json.dumps(first), *lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say what would change")
    check = parser.parse_args().check
    before = ANSWERS.read_text("utf-8").splitlines()
    after = record()
    different = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    for old, new in different if check else []:
        print(f"- {old[:300]}\n+ {new[:300]}")
    print(f"{len(after) - 1} answers, {len(different)} of them new")
    if not check:
        ANSWERS.write_text("\n".join(after) + "\n", "utf-8")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main())
