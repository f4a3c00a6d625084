"""toxiproxy: proxies that tests of other projects cut and slow down, built from its module of Go."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.clients.foreign_suites import cached, go_sources, run_or_raise
from tests.support.process_nodes import until

TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2@v2.12.0"


class Toxiproxy:
    """A process that serves from its creation until `close`. `port`: where it is told what to do."""

    def __init__(self, folder: Path, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        with (folder / "toxiproxy.log").open("wb") as log:
            command = [str(_server()), "-host", "127.0.0.1", "-port", str(port)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("toxiproxy", lambda: urllib.request.urlopen(f"{self._url}/version", timeout=2).read(), 30)

    def add(self, name: str, port: int, target: int, *, latency_ms: int = 0) -> None:
        """Adds a proxy from a port of this machine to another one."""
        proxy = {"name": name, "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{target}", "enabled": True}
        self._post("/proxies", proxy)
        if latency_ms:
            self._post(f"/proxies/{name}/toxics", {"type": "latency", "attributes": {"latency": latency_ms}})

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _post(self, path: str, content: Mapping[str, Any]) -> None:
        request = urllib.request.Request(self._url + path, json.dumps(content).encode())
        urllib.request.urlopen(request, timeout=10).close()


def _server() -> Path:
    def build(target: Path) -> None:
        go_sources(TOXIPROXY, target / "toxiproxy")
        run_or_raise(["go", "build", "-o", str(target / "server"), "./cmd/server"], target / "toxiproxy")

    return cached("toxiproxy", TOXIPROXY.encode(), build) / "server"
