"""The `kafka.*` options that both the source and the sink's checks need, as `ClientSettings`."""

from __future__ import annotations

from barnabas.protocol.client_security import PREFIXES, ClientSecurity, client_security
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.option_values import OptionReader, addresses
from barnabas.spark.security import tls_context

BOOTSTRAP = "kafka.bootstrap.servers"
_DAY_MS = 86_400_000


def client_settings(options: OptionReader) -> ClientSettings:
    """Returns the settings of a client from the `kafka.*` options. Raises ConfigError."""
    bootstrap = addresses(BOOTSTRAP, options.required(BOOTSTRAP, "the brokers' addresses, host:port,host:port"))
    default = ClientSettings(bootstrap)
    api_timeout_ms = options.maybe_integer("kafka.default.api.timeout.ms", 1, _DAY_MS)
    return ClientSettings(
        bootstrap=bootstrap,
        client_id=options.text("kafka.client.id", default.client_id) or default.client_id,
        request_timeout_ms=options.integer("kafka.request.timeout.ms", default.request_timeout_ms, 1, _DAY_MS),
        api_timeout_ms=api_timeout_ms or default.api_timeout_ms,
        first_timeout_ms=api_timeout_ms or default.first_timeout_ms,
        connect_timeout_ms=options.integer(
            "kafka.socket.connection.setup.timeout.ms", default.connect_timeout_ms, 1, _DAY_MS
        ),
        backoff_ms=options.integer("kafka.retry.backoff.ms", default.backoff_ms, 1, _DAY_MS),
        security=security_of(options),
    )


def security_of(options: OptionReader) -> ClientSecurity:
    """Returns the security settings. Reads the certificate files, so that the driver raises ConfigError for a wrong
    one.
    """
    given = {
        f"{prefix}{key}": value for prefix in PREFIXES for key, value in options.with_prefix(f"kafka.{prefix}").items()
    }
    security = client_security(given, "kafka.")
    if security.tls is not None:
        tls_context(security.tls)
    return security
