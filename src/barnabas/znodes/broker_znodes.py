"""/brokers/ids/N: the registration of a broker."""

from __future__ import annotations

import re
from functools import partial
from typing import Final, NamedTuple

from barnabas.common.endpoints import SECURITY_PROTOCOLS
from barnabas.common.host import Buffer
from barnabas.metadata.registrations import Endpoint, FeatureRange
from barnabas.znodes.jvm_order import hash_map_order, immutable_order, mutable_order
from barnabas.znodes.znode_json import JsonObject, json_bytes, read_object, reordered

#: 2 added endpoints, 3 the rack, 4 names of listeners, 5 features.
REGISTRATION_VERSION: Final = 5

_PLAINTEXT: Final = 0
_ENDPOINT: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,10})", re.ASCII)
_PORT_MAX: Final = 65535


class BrokerRegistration(NamedTuple):
    """The content of /brokers/ids/N. The broker's epoch is the znode's czxid; `jmx_port` is -1 without JMX."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    #: The time of the registration, in milliseconds since 1970; -1 if the znode does not contain it.
    timestamp_ms: int = -1
    features: tuple[FeatureRange, ...] = ()


def encode_registration(registration: BrokerRegistration) -> bytes:
    """Returns the content in version 5. `host` and `port` are those of the first PLAINTEXT listener, for older
    clients.
    """
    endpoints = registration.endpoints
    plaintext = next((endpoint for endpoint in endpoints if endpoint.security_protocol == _PLAINTEXT), None)
    protocols = {endpoint.name: SECURITY_PROTOCOLS[endpoint.security_protocol] for endpoint in endpoints}
    features = {f.name: {"min_version": f.min_version, "max_version": f.max_version} for f in registration.features}
    content: dict[str, object] = {
        "version": REGISTRATION_VERSION,
        "host": plaintext.host if plaintext is not None else None,
        "port": plaintext.port if plaintext is not None else -1,
        "endpoints": [_endpoint_text(endpoint) for endpoint in endpoints],
        "jmx_port": registration.jmx_port,
        "timestamp": str(registration.timestamp_ms),
        "listener_security_protocol_map": reordered(protocols, immutable_order),
        "features": reordered(features, hash_map_order),
    }
    if registration.rack is not None:
        content["rack"] = registration.rack
    return json_bytes(reordered(content, partial(mutable_order, built_with=6)))


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def decode_registration(path: str, data: Buffer | None) -> BrokerRegistration:
    """Returns the registration from versions 1 to 5. Raises ZnodeError for any other, and for invalid endpoints.

    As in Kafka, versions above 5 are read like 5, so that brokers of a later release are known.
    """
    content = read_object(path, data)
    version = content.int32("version")
    if version < 1:
        raise content.wrong("version", f"is {version}, expected at least 1")
    if version == 1:
        endpoints: tuple[Endpoint, ...] = (
            Endpoint("PLAINTEXT", content.text("host"), _port(content, "port", content.int32("port")), _PLAINTEXT),
        )
    else:
        protocols = _protocols(content)
        endpoints = tuple(_endpoint(content, text, protocols) for text in content.texts("endpoints"))
    timestamp = content.int64_text("timestamp") if content.has("timestamp") else -1
    return BrokerRegistration(
        endpoints, content.optional_text("rack"), content.int32("jmx_port"), timestamp, _features(content)
    )


def _protocols(content: JsonObject) -> dict[str, int]:
    """Returns listener -> security protocol; without a map each listener is named as its protocol."""
    if not content.has("listener_security_protocol_map"):
        return {name: number for number, name in enumerate(SECURITY_PROTOCOLS)}
    named = content.nested("listener_security_protocol_map")
    found = {}
    for listener in named:
        protocol = named.text(listener).upper()
        if protocol not in SECURITY_PROTOCOLS:
            raise named.wrong(listener, f"is {protocol!r}, which is not a security protocol")
        found[listener] = SECURITY_PROTOCOLS.index(protocol)
    return found


def _endpoint(content: JsonObject, text: str, protocols: dict[str, int]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise content.wrong("endpoints", f"holds {text!r}, which is not NAME://HOST:PORT")
    name = match[1].upper()
    if name not in protocols:
        raise content.wrong("endpoints", f"holds {text!r}, whose listener is not in listener_security_protocol_map")
    return Endpoint(name, match[2], _port(content, "endpoints", int(match[3])), protocols[name])


def _port(content: JsonObject, key: str, port: int) -> int:
    if not -1 <= port <= _PORT_MAX:
        raise content.wrong(key, f"holds the port {port}")
    return port


def _features(content: JsonObject) -> tuple[FeatureRange, ...]:
    if not content.has("features"):
        return ()
    named = content.nested("features")
    ranges = ((name, named.nested(name)) for name in named)
    return tuple(FeatureRange(name, item.int32("min_version"), item.int32("max_version")) for name, item in ranges)
