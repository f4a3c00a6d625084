"""The containers of other projects' tests: brokers of ours, which a stand-in of the command `docker` starts and stops.

docker compose stop|start kafka-3                   the broker of the service
docker compose logs --since TIME kafka-3            all that the broker has logged
docker compose exec -T SERVICE COMMAND ARGUMENT     a command on this machine, such as a tool of Kafka
docker exec ID COMMAND ARGUMENT                     the same
docker compose up|down|rm, docker ps                nothing
"""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.support.process_nodes import Node

import kafka_jars

COMMAND: Final = Path(__file__).resolve().parents[1] / "clients" / "docker_command"


def write_tool(script: Path, main: str, *options: str, dropped: str = "") -> None:
    """Writes a script that runs a tool of Kafka with further options, without the option `dropped` and its value."""
    drop = ""
    if dropped:
        drop = f'[ "$1" = {dropped} ] && shift 2\n'
    command = shlex.join(kafka_jars.java_command(main))
    script.write_text(f'#!/bin/sh\n{drop}exec {command} "$@" {shlex.join(options)}\n')
    script.chmod(0o755)


class DockerCommands(ThreadingHTTPServer):
    """The commands are served from the creation until `close`. `services`: the brokers by the names of their services;
    `words`: replacements in the commands of containers, such as addresses; `tools`: the folder of Kafka's scripts.
    """

    daemon_threads = True

    def __init__(self, services: Mapping[str, Node], words: Mapping[str, str], tools: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._services = dict(services)
        self.environment = {
            "PATH": os.pathsep.join([str(COMMAND), str(tools), os.environ.get("PATH", "")]),
            "BARNABAS_DOCKER_URL": f"http://127.0.0.1:{self.server_port}",
            "BARNABAS_DOCKER_WORDS": json.dumps(dict(words)),
        }
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def run(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Returns the code and the output of a command that is none of a container."""
        match list(arguments):
            case ["compose", "stop", service]:
                self._services[service].stop()
            case ["compose", "start", service]:
                if not self._services[service].is_running:
                    self._services[service].launch()
                    self._services[service].wait()
            case ["compose", "logs", "--since", _, service]:
                return 0, self._services[service].log
            case ["ps", *_]:
                return 0, "container\n"
            case ["compose", *words] if {"up", "down", "rm"} & set(words):
                pass
            case _:
                return 1, f"docker {shlex.join(arguments)} is not known\n"
        return 0, ""


class _Handler(BaseHTTPRequestHandler):
    server: DockerCommands

    def do_POST(self) -> None:
        found = self.server.run(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        content = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing."""
