"""A small identity provider: a token endpoint for client credentials, and the key set that verifies its tokens."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from tests.support.tokens import AUDIENCE, ISSUER, key, key_set, public, signed


class IdentityProvider(ThreadingHTTPServer):
    """A provider that serves from its creation until `close`. Tokens name the client that asked for them."""

    daemon_threads = True

    def __init__(self, clients: dict[str, str], lifetime_s: int = 600) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.clients = clients
        self.lifetime_s = lifetime_s
        self.private = key("RS256")
        #: The paths of all requests.
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def keys_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/keys"

    @property
    def token_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def token(self, name: str, **changes: Any) -> str:
        """Returns a new token. A change to None removes a claim."""
        now_s = int(time.time())
        found = {"sub": name, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + self.lifetime_s, **changes}
        return signed({claim: value for claim, value in found.items() if value is not None}, "RS256", self.private)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: IdentityProvider

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path == "/keys":
            self._answer(200, key_set(public(self.server.private)))
        else:
            self._answer(404, b"{}")

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        kind, _, credentials = self.headers.get("Authorization", "").partition(" ")
        name, _, secret = base64.b64decode(credentials).decode().partition(":")
        if kind != "Basic" or self.server.clients.get(name) != secret or form["grant_type"] != ["client_credentials"]:
            self._answer(401, b'{"error":"invalid_client"}')
            return
        answer = {"access_token": self.server.token(name), "token_type": "Bearer", "expires_in": self.server.lifetime_s}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing."""
