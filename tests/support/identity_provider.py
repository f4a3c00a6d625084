"""A small identity provider: a token endpoint, and the key set that verifies its tokens.

POST /token        client credentials (RFC 6749), or an assertion that the key of a client has signed (RFC 7523)
GET /token         the identity of a machine, as Azure's metadata service tells it
POST /malformed    something that is no token
POST /expired      a token whose time is over
GET /keys          the key set
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from joserfc import jws
from joserfc.errors import JoseError
from tests.support.tokens import AUDIENCE, ISSUER, key, key_set, public, signed

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
#: The parameters by which a machine gets a token of its identity.
_MACHINE: Final = ("api-version", "resource", "client_id")


class IdentityProvider(ThreadingHTTPServer):
    """A provider that serves from its creation until `close`. Tokens name the client that asked for them; those for an
    assertion, its subject, which the key `asserting` must have signed. The scope `invalid_scope` is refused.
    """

    daemon_threads = True

    def __init__(self, clients: dict[str, str], lifetime_s: int = 600) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.clients = clients
        self.lifetime_s = lifetime_s
        self.private = key("RS256")
        self.asserting = key("RS256", "asserting")
        #: The paths of all requests.
        self.asked: list[str] = []
        #: The claims of all accepted assertions.
        self.assertions: list[Mapping[str, Any]] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    @property
    def keys_url(self) -> str:
        return self.url("keys")

    @property
    def token_url(self) -> str:
        return self.url("token")

    def token(self, name: str, **changes: Any) -> str:
        """Returns a new token. A change to None removes a claim."""
        now_s = int(time.time())
        found = {"sub": name, "client_id": name, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s}
        found |= {"exp": now_s + self.lifetime_s, **changes}
        return signed({claim: value for claim, value in found.items() if value is not None}, "RS256", self.private)

    def subject(self, assertion: str) -> str | None:
        """Returns the subject of an assertion; None if it is not acceptable."""
        try:
            found = jws.deserialize_compact(assertion, self.asserting, algorithms=["RS256"])
            claims = json.loads(found.payload)
            if not claims["nbf" if "nbf" in claims else "iat"] <= time.time() < claims["exp"]:
                return None
        except (JoseError, ValueError, KeyError, TypeError):
            return None
        self.assertions.append(claims)
        return str(claims["sub"]) if "sub" in claims else None

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: IdentityProvider

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        asked = urlsplit(self.path)
        if self.path == "/keys":
            self._answer(200, key_set(public(self.server.private)))
        elif asked.path == "/token":
            found = parse_qs(asked.query)
            is_complete = self.headers.get("Metadata") == "true" and all(found.get(name) for name in _MACHINE)
            self._answer_for("machine" if is_complete else None)
        else:
            self._answer(404, b"{}")

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        name = self.server.subject(form["assertion"][0]) if form["grant_type"] == [JWT_BEARER] else self._client(form)
        if form.get("scope") == ["invalid_scope"]:
            self._answer(400, b'{"error":"invalid_scope"}')
        elif self.path == "/malformed":
            self._answer(200, b'{"access_token":"malformed"}')
        else:
            self._answer_for(name, **({"exp": int(time.time()) - 60} if self.path == "/expired" else {}))

    def _client(self, form: Mapping[str, list[str]]) -> str | None:
        """Returns the client whose credentials are right; None for others."""
        kind, _, credentials = self.headers.get("Authorization", "").partition(" ")
        name, _, secret = base64.b64decode(credentials).decode().partition(":")
        is_known = kind == "Basic" and self.server.clients.get(name) == secret
        return name if is_known and form["grant_type"] == ["client_credentials"] else None

    def _answer_for(self, name: str | None, **changes: Any) -> None:
        if name is None:
            self._answer(401, b'{"error":"invalid_client"}')
            return
        token = self.server.token(name, **changes)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.server.lifetime_s}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing."""
