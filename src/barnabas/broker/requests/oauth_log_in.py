"""The log-in by OAUTHBEARER on one listener: the key set of the tokens' issuer, and the decision about a token.

No request waits for the key set to be fetched; a token is judged with the current set. If there is none, or a token
names a key that only a newer set can have, the connection is closed without an answer. The client takes that for a
failure of the network, and tries again with the set that arrived meanwhile.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.peers.documents import Document
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.common.oauth_settings import ListenerTokens
from barnabas.protocol.sasl.mechanism import LogInUndecided
from barnabas.protocol.sasl.oauth_server import OAuthBearerServer
from barnabas.protocol.sasl.signed_tokens import Jose, KeySet, UnknownKey, load_jose
from barnabas.protocol.sasl.tokens import TokenRefused, ValidToken
from barnabas.protocol.sasl.unsecured_tokens import validate_unsecured

#: Strangers choose key ids, so an unknown one leads to at most one fetch in this time.
LOOK_UP_INTERVAL_MS: Final = 5_000


class OAuthLogIn:
    """The log-in on one listener."""

    def __init__(self, host: Host, listener: str, settings: ListenerTokens) -> None:
        """Begins to fetch the key set. Raises ConfigError if its file cannot be used, or joserfc is missing."""
        self._host = host
        self._listener = listener
        self.settings = settings
        self._jose: Jose | None = None
        self._keys: KeySet | None = None
        self._document: Document | None = None
        if settings.key_set is None:
            host.faults.warn(
                f"listener {listener} accepts unsecured OAUTHBEARER tokens, because its JAAS entry allows them: "
                "anyone who can connect can act as any user"
            )
            return
        try:
            self._jose = load_jose()
        except ImportError:
            raise ConfigError(
                f"{settings.key_set.key} needs the package joserfc: pip install 'barnabas[oauth]'"
            ) from None
        self._document = Document(host, settings.key_set, f"the key set of listener {listener}", self._take)
        try:
            self._document.start()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{settings.key_set.key}: {settings.key_set.url} cannot be used: {error}") from None

    def close(self) -> None:
        if self._document is not None:
            self._document.close()

    def begin(self) -> OAuthBearerServer:
        """Begins an exchange."""
        return OAuthBearerServer(self._validate)

    def _take(self, content: bytes) -> int:
        assert self._jose is not None, "jose is loaded before a key set is fetched"
        self._keys = KeySet.parse(self._jose, content)
        return self.settings.refresh_ms

    def _validate(self, token: str) -> ValidToken:
        now_ms = self._host.clock.wall_ms()
        document = self._document
        if document is None:
            return validate_unsecured(token, self.settings.unsecured, now_ms)
        if self._keys is None:
            raise LogInUndecided(f"the key set of listener {self._listener} is not known yet")
        try:
            return self._keys.validate(token, self.settings.expected, now_ms)
        except UnknownKey:
            if self._is_fresh(document):
                raise TokenRefused("its key is not in the key set") from None
            if not document.has_failed:
                # After a failure the next fetch is due soon; tokens with unknown keys must not bring it forward.
                document.fetch()
            raise LogInUndecided("the token's key is not in the key set, which is fetched again") from None

    def _is_fresh(self, document: Document) -> bool:
        """Returns whether the key set is too new to be fetched again."""
        if document.is_fetching or document.fetched_ms is None:
            return False
        return self._host.clock.now_ms() - document.fetched_ms < LOOK_UP_INTERVAL_MS
