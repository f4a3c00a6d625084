"""Settings of clients for protected listeners, in the words of each client library."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import kafka.net.sasl.oauth
from aiokafka.abc import AbstractTokenProvider

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_LOGIN_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
OAUTHBEARER: Final = "OAUTHBEARER"


@dataclass(frozen=True)
class Protection:
    """TLS with a log-in by a mechanism, or with a certificate of the client. Files are PEM."""

    authority: Path
    #: The mechanism of the log-in; None if the client has a certificate.
    mechanism: str | None
    username: str = ""
    password: str = ""
    #: The file of the client's key and certificate.
    certificate: Path | None = None
    #: The file with a token of OAUTHBEARER, and where librdkafka gets one.
    token: Path | None = None
    token_url: str = ""

    @property
    def protocol(self) -> str:
        return "SSL" if self.mechanism is None else "SASL_SSL"

    def token_text(self) -> str:
        assert self.token is not None
        return self.token.read_text()

    def librdkafka(self) -> dict[str, Any]:
        found: dict[str, Any] = {"security.protocol": self.protocol, "ssl.ca.location": str(self.authority)}
        if self.certificate is not None:
            found |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.certificate)}
        if self.mechanism == OAUTHBEARER:
            found |= {
                "sasl.mechanism": OAUTHBEARER,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.username,
                "sasl.oauthbearer.client.secret": self.password,
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
            }
        elif self.mechanism is not None:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        return found

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=self.authority)
        if self.certificate is not None:
            made.load_cert_chain(self.certificate)
        return made

    def _sasl_of_python(self) -> dict[str, Any]:
        if self.mechanism is None or self.mechanism == OAUTHBEARER:
            return {} if self.mechanism is None else {"sasl_mechanism": OAUTHBEARER}
        names = {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        return {"sasl_mechanism": self.mechanism, **names}

    def aiokafka(self) -> dict[str, Any]:
        found = {"security_protocol": self.protocol, "ssl_context": self.context(), **self._sasl_of_python()}
        if self.mechanism == OAUTHBEARER:
            found["sasl_oauth_token_provider"] = _AioTokens(self)
        return found

    def kafka_python(self) -> dict[str, Any]:
        found = {"security_protocol": self.protocol, "ssl_cafile": str(self.authority), **self._sasl_of_python()}
        if self.certificate is not None:
            found |= {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.certificate)}
        if self.mechanism == OAUTHBEARER:
            found["sasl_oauth_token_provider"] = _Tokens(self)
        return found

    def java(self) -> dict[str, str]:
        found = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }
        if self.certificate is not None:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        if self.mechanism == OAUTHBEARER:
            found |= {
                "sasl.mechanism": OAUTHBEARER,
                "sasl.jaas.config": f"{_OAUTH} required;",
                "sasl.login.callback.handler.class": _LOGIN_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": f"file://{self.token}",
            }
        elif self.mechanism is not None:
            module = _PLAIN if self.mechanism == "PLAIN" else _SCRAM
            entry = f'{module} required username="{self.username}" password="{self.password}";'
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": entry}
        return found

    def json(self) -> dict[str, Any]:
        """Returns the field `security` of a command to the drivers in Go and JavaScript."""
        found = {"authority": str(self.authority), "mechanism": self.mechanism or ""}
        if self.certificate is not None:
            found["certificate"] = str(self.certificate)
        if self.mechanism == OAUTHBEARER:
            found["token"] = self.token_text()
        else:
            found |= {"username": self.username, "password": self.password}
        return found


class _Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    """The token provider of kafka-python."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    def token(self) -> str:
        return self._protection.token_text()


class _AioTokens(AbstractTokenProvider):  # type: ignore[misc]
    """The token provider of aiokafka."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    async def token(self) -> str:
        return self._protection.token_text()
