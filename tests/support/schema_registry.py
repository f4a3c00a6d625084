"""A schema registry in a thread of the test, with the routes by which readers get schemas.

with SchemaRegistryServer() as registry:
    schema_id = registry.add("orders-value", AVRO_TEXT)
    registry.url, registry.asked      its address, and the paths that were asked for
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit


class Stored(NamedTuple):
    kind: str
    text: str
    references: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"schema": self.text}
        # As the original does: Avro is not named.
        if self.kind != "AVRO":
            shown["schemaType"] = self.kind
        return shown | ({"references": list(self.references)} if self.references else {})


class SchemaRegistryServer:
    """`login` is the expected header of Basic authentication; `answers` are bodies or delays by path, for faults."""

    def __init__(self, *, login: str | None = None) -> None:
        self.login = login
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.delay_s = 0.0
        self._schemas: list[Stored] = []
        self._subjects: dict[tuple[str, int], int] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> SchemaRegistryServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def add(self, subject: str, text: str, kind: str = "AVRO", references: tuple[dict[str, Any], ...] = ()) -> int:
        """Adds the next version of a subject. Returns the id of the schema."""
        self._schemas.append(Stored(kind, text, references))
        version = 1 + sum(known == subject for known, _ in self._subjects)
        self._subjects[subject, version] = len(self._schemas)
        return len(self._schemas)

    def _found(self, path: str) -> tuple[int, bytes]:
        if path in self.answers:
            return self.answers[path]
        place = urlsplit(path).path
        by_id = re.fullmatch(r"/schemas/ids/(\d+)", place)
        by_subject = re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", place)
        number = 0
        if by_id is not None:
            number = int(by_id[1])
        elif by_subject is not None:
            number = self._subjects.get((unquote(by_subject[1]), int(by_subject[2])), 0)
        if not 0 < number <= len(self._schemas):
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps(self._schemas[number - 1].to_json()).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                time.sleep(registry.delay_s)
                status, body = registry._found(self.path)
                if registry.login is not None and self.headers.get("authorization") != registry.login:
                    status, body = 401, b"{}"
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # The reader has closed its connection before the answer.

            def log_message(self, format: str, *args: Any) -> None:
                """Prints nothing."""

        return Handler
