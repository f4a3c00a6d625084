"""GSSAPI on one listener: the keys of its service, and the rules that map principals to users."""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.common.kerberos import KerberosError, KerberosUnavailable
from barnabas.common.kerberos_names import LocalNames
from barnabas.common.kerberos_settings import KerberosKeys, rules_of
from barnabas.common.log_in_settings import GSSAPI, ListenerSettings, jaas_key
from barnabas.common.reports import LimitedReports
from barnabas.protocol.sasl.gssapi import GssapiServer

_CAUSE_LETTERS_MAX: Final = 300


class KerberosLogIn:
    """The exchanges of one listener."""

    def __init__(self, host: Host, config: ListenerSettings, listener: str) -> None:
        """Reads the keys. Raises ConfigError if the library or the keys are missing."""
        keys = KerberosKeys.of(config, listener)
        try:
            self._acceptor = host.kerberos.acceptor(keys.keytab, keys.principal)
            self._names = LocalNames(rules_of(config, listener), host.kerberos.default_realm())
        except KerberosUnavailable as error:
            raise ConfigError(f"listener {listener} offers {GSSAPI}: {error}") from error
        except KerberosError as error:
            raise ConfigError(f"{jaas_key(listener, GSSAPI)}: {error}") from error
        self._reports = LimitedReports(host.faults, host.clock)
        self._listener = listener

    def begin(self) -> GssapiServer:
        return GssapiServer(self._acceptor.accept(), self._names.of, self._report)

    def _report(self, cause: str) -> None:
        # The cause can contain names that an unauthenticated peer chose.
        text = f"listener {self._listener}: a login by {GSSAPI} failed: {cause[:_CAUSE_LETTERS_MAX]!r}"
        self._reports.inform(GSSAPI, text)
