"""The transaction coordinator's part of the broker configuration."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.common.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings of the transaction coordinator; the defaults are Kafka's."""

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000
    #: A request whose record is not committed within this time is answered as if this broker were not the coordinator.
    write_timeout_ms: int = 5_000

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> TransactionConfig:
        return cls(
            timeout_max_ms=config.int_of("transaction.max.timeout.ms"),
            id_expiration_ms=config.int_of("transactional.id.expiration.ms"),
            abort_interval_ms=config.int_of("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_interval_ms=config.int_of("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
