"""Kafka clients for the commands: configured in one place, silent on stderr, with readable errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from barnabas.cli.contexts import choice
from barnabas.cli.options import key_values
from barnabas.cli.probe import probe
from barnabas.cli.raw_requests import Wire
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
    """Returns the value of an admin call. Raises a Failure that begins with `what`."""
    try:
        return future.result(timeout=TIMEOUT_S + 5.0)
    except KafkaException as error:
        raise failure(error, what) from error
    except TimeoutError as error:
        raise Failure(f"{what}: no answer within {TIMEOUT_S:.0f} s") from error


def failure(error: KafkaException, what: str) -> Failure:
    """Returns a client's exception as a Failure."""
    cause = error.args[0] if error.args else None
    if not isinstance(cause, KafkaError):
        return Failure(f"{what}: {error}")
    return Failure(f"{what}: {reason(cause)}")


def reason(error: KafkaError) -> str:
    """Returns the broker's message with the name of the error code, or librdkafka's text unchanged."""
    text = error.str().removeprefix("Broker: ").removeprefix("Local: ")
    return f"{text} ({error.name()})" if error.name() else text


def has_journal(client: AdminClient | Consumer) -> bool:
    """Whether the cluster has a journal: it keeps one, and has written at least one event."""
    return EVENTS_TOPIC in client.list_topics(timeout=TIMEOUT_S).topics


def check_reachable(bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
    """Raises Failure within seconds if no address can be reached or none is a Kafka broker; a client would try until
    its timeout. With TLS in the client's `properties`, only the connection is tried.
    """
    plaintext = (properties or {}).get("security.protocol", "plaintext").lower() in _WITHOUT_TLS
    addresses = [address(each.strip()) for each in bootstrap.split(",")]
    failed = probe(addresses, with_request=plaintext)
    if not failed:
        return
    what = "; ".join(f"{host}:{port} ({failed[host, port]})" for host, port in addresses)
    raise Failure(f"cannot reach a broker at {what}", choice.unreachable_hint())


def wire(bootstrap: str) -> Wire:
    """Connects to one of these brokers, for requests that librdkafka does not have. Raises Failure."""
    return Wire.to_any([address(each.strip()) for each in bootstrap.split(",")])


def address(text: str) -> tuple[str, int]:
    """Parses HOST:PORT, the form of --bootstrap."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise Failure(f"--bootstrap {text}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def _configured(make: Callable[[], T]) -> T:
    try:
        return make()
    except KafkaException as error:
        raise failure(error, "invalid client configuration") from error


def _config(bootstrap: str, properties: Iterable[str] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    given = key_values(properties or [], "--property")
    check_reachable(bootstrap, given)
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "barnabas",
        # Errors are raised as exceptions; librdkafka's own lines on stderr would repeat them.
        "log_level": 0,
        **defaults,
    }
    config.update(given)
    return config
