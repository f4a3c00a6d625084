"""The users of SCRAM that do not exist, for all listeners of a node. Their shapes follow the metadata."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from barnabas.common.host import Timers
from barnabas.common.portions import Portions, whole
from barnabas.coordinators.steps import in_steps
from barnabas.metadata.security import Credentials
from barnabas.protocol.sasl.imitated_users import DEFAULT_SHAPES, Form, Shape, form_of, imitation, secret_of, shapes_of
from barnabas.protocol.sasl.scram_server import Credential

#: The number of credentials that are counted in one turn of the loop, in about 3 ms.
_COUNTED_AT_ONCE: Final = 5_000


class ImitatedUsers:
    """Imitates credentials. `secret_key` is that of delegation tokens, empty if there is none.

    Changed credentials are counted again at the next log-in, in portions: until the last one, imitations are those of
    the credentials before. The first count is made at once, because without it there is no secret.
    """

    def __init__(self, secret_key: bytes, cluster_id: str, timers: Timers) -> None:
        self._secret_key = secret_key
        self._cluster_id = cluster_id
        self._timers = timers
        #: The credentials that the following values were computed from.
        self._seen: Credentials | None = None
        self._secret = b""
        self._shapes: dict[int, Mapping[Shape, int]] = {}
        self._is_counting = False

    def imitate(self, credentials: Credentials, mechanism: int, hash_name: str, name: str) -> Credential:
        if self._seen is None:
            whole(self._count(credentials))
        elif self._seen is not credentials and not self._is_counting:
            self._is_counting = True
            in_steps(self._timers, self._count(credentials))
        return imitation(hash_name, self._secret, name, self._shapes.get(mechanism, DEFAULT_SHAPES))

    def _count(self, credentials: Credentials) -> Portions[None]:
        forms: defaultdict[int, Counter[Form]] = defaultdict(Counter)
        first = None
        for number, (place, each) in enumerate(credentials.items(), 1):
            forms[place[0]][form_of(each.salt, each.iterations)] += 1
            if first is None or place < first:
                first = place
            if number % _COUNTED_AT_ONCE == 0:
                yield
        server_key = b"" if first is None else credentials[first].server_key
        self._secret = secret_of(self._cluster_id, self._secret_key, server_key)
        self._shapes = {mechanism: shapes_of(found) for mechanism, found in forms.items()}
        self._seen = credentials
        self._is_counting = False
