"""The users of SCRAM that do not exist, for all listeners of a node. Their shapes follow the metadata."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.metadata.security import Credentials
from barnabas.protocol.sasl.imitated_users import Shape, imitation, secret_of, shapes_of
from barnabas.protocol.sasl.scram_server import Credential


class ImitatedUsers:
    """Imitates credentials. `secret_key` is that of delegation tokens, empty if there is none."""

    def __init__(self, secret_key: bytes, cluster_id: str) -> None:
        self._secret_key = secret_key
        self._cluster_id = cluster_id
        #: The credentials that the following values were computed from.
        self._seen: Credentials | None = None
        self._secret = b""
        self._shapes: dict[int, Mapping[Shape, int]] = {}

    def imitate(self, credentials: Credentials, mechanism: int, hash_name: str, name: str) -> Credential:
        if self._seen is not credentials:
            self._see(credentials)
        shapes = self._shapes.get(mechanism)
        if shapes is None:
            found = ((each.salt, each.iterations) for (number, _), each in credentials.items() if number == mechanism)
            shapes = self._shapes[mechanism] = shapes_of(found)
        return imitation(hash_name, self._secret, name, shapes)

    def _see(self, credentials: Credentials) -> None:
        first = b""
        if credentials and not self._secret_key:
            first = credentials[min(credentials)].server_key
        self._seen = credentials
        self._secret = secret_of(self._cluster_id, self._secret_key, first)
        self._shapes.clear()
