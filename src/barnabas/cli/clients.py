"""Kafka clients for the commands: configured in one place, silent on stderr, their errors told in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from barnabas.cli.options import key_values
from barnabas.cli.probe import probe
from barnabas.common.types import EVENTS_TOPIC
from barnabas.embedded.failures import Failure

T = TypeVar("T")
TIMEOUT_S = 15.0
_WITHOUT_TLS = frozenset({"plaintext", "sasl_plaintext"})


def admin_client(bootstrap: str, properties: Iterable[str] | None = None) -> AdminClient:
    return _configured(lambda: AdminClient(_config(bootstrap, properties, {})))


def producer(bootstrap: str, properties: Iterable[str] | None, defaults: Mapping[str, Any]) -> Producer:
    return _configured(lambda: Producer(_config(bootstrap, properties, defaults)))


def consumer(bootstrap: str, properties: Iterable[str] | None, defaults: Mapping[str, Any]) -> Consumer:
    return _configured(lambda: Consumer(_config(bootstrap, properties, defaults)))


def result(future: Future[T], what: str) -> T:
    """The value of an admin call, or a Failure that begins with `what` was tried."""
    try:
        return future.result(timeout=TIMEOUT_S + 5.0)
    except KafkaException as error:
        raise failure(error, what) from error
    except TimeoutError as error:
        raise Failure(f"{what}: no answer within {TIMEOUT_S:.0f} s") from error


def failure(error: KafkaException, what: str) -> Failure:
    """A client's exception as a Failure."""
    cause = error.args[0] if error.args else None
    if not isinstance(cause, KafkaError):
        return Failure(f"{what}: {error}")
    return Failure(f"{what}: {reason(cause)}")


def reason(error: KafkaError) -> str:
    """The broker's own words with the code's name; a text of librdkafka's as it stands."""
    text = error.str().removeprefix("Broker: ").removeprefix("Local: ")
    return f"{text} ({error.name()})" if error.name() else text


def has_journal(client: AdminClient | Consumer) -> bool:
    """Whether the cluster keeps one, or has had anything to write into it yet."""
    return EVENTS_TOPIC in client.list_topics(timeout=TIMEOUT_S).topics


def check_reachable(bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
    """Raises Failure within some seconds where a client would try until its timeout: no address is reached, or none
    of them is a Kafka broker. Over TLS, as the client's `properties` say, only the connection is tried."""
    plaintext = (properties or {}).get("security.protocol", "plaintext").lower() in _WITHOUT_TLS
    addresses = [address(each.strip()) for each in bootstrap.split(",")]
    failed = probe(addresses, ask=plaintext)
    if not failed:
        return
    what = "; ".join(f"{host}:{port} ({failed[host, port]})" for host, port in addresses)
    raise Failure(
        f"no broker reached at {what}",
        "start one with `barnabas up --detach`, or name yours with --bootstrap HOST:PORT",
    )


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, as --bootstrap has it."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise Failure(f"--bootstrap {text}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def _configured(make: Callable[[], T]) -> T:
    try:
        return make()
    except KafkaException as error:
        raise failure(error, "wrong client configuration") from error


def _config(bootstrap: str, properties: Iterable[str] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    given = key_values(properties or [], "--property")
    check_reachable(bootstrap, given)
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "barnabas",
        # Errors come as exceptions; its own lines on stderr would come twice.
        "log_level": 0,
        **defaults,
    }
    config.update(given)
    return config
