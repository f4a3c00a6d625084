"""Cipher suites by their IANA names, as Kafka's configuration has them.

OpenSSL has its own names but IANA's numbers, so suites are looked up by number.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.common.config_keys import invalid

_KEY: Final = "ssl.cipher.suites"
#: Suites of TLS 1.3. Python cannot choose among them.
TLS13: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
#: The entry by which Java's lists announce secure renegotiation; OpenSSL always sends it.
_MARK: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
#: Suites of TLS 1.2 that authenticate the server.
_TLS12: Final = {
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": 0x0033,
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": 0x0067,
    "TLS_DHE_RSA_WITH_AES_128_CCM": 0xC09E,
    "TLS_DHE_RSA_WITH_AES_128_CCM_8": 0xC0A2,
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": 0x009E,
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": 0x0039,
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": 0x006B,
    "TLS_DHE_RSA_WITH_AES_256_CCM": 0xC09F,
    "TLS_DHE_RSA_WITH_AES_256_CCM_8": 0xC0A3,
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": 0x009F,
    "TLS_DHE_RSA_WITH_ARIA_128_GCM_SHA256": 0xC052,
    "TLS_DHE_RSA_WITH_ARIA_256_GCM_SHA384": 0xC053,
    "TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA": 0x0045,
    "TLS_DHE_RSA_WITH_CAMELLIA_128_CBC_SHA256": 0x00BE,
    "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA": 0x0088,
    "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA256": 0x00C4,
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCAA,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": 0xC009,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": 0xC023,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM": 0xC0AC,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8": 0xC0AE,
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": 0xC02B,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": 0xC00A,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": 0xC024,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM": 0xC0AD,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8": 0xC0AF,
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": 0xC02C,
    "TLS_ECDHE_ECDSA_WITH_ARIA_128_GCM_SHA256": 0xC05C,
    "TLS_ECDHE_ECDSA_WITH_ARIA_256_GCM_SHA384": 0xC05D,
    "TLS_ECDHE_ECDSA_WITH_CAMELLIA_128_CBC_SHA256": 0xC072,
    "TLS_ECDHE_ECDSA_WITH_CAMELLIA_256_CBC_SHA384": 0xC073,
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA9,
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": 0xC013,
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": 0xC027,
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": 0xC02F,
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": 0xC014,
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": 0xC028,
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": 0xC030,
    "TLS_ECDHE_RSA_WITH_ARIA_128_GCM_SHA256": 0xC060,
    "TLS_ECDHE_RSA_WITH_ARIA_256_GCM_SHA384": 0xC061,
    "TLS_ECDHE_RSA_WITH_CAMELLIA_128_CBC_SHA256": 0xC076,
    "TLS_ECDHE_RSA_WITH_CAMELLIA_256_CBC_SHA384": 0xC077,
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA8,
    "TLS_RSA_WITH_AES_128_CBC_SHA": 0x002F,
    "TLS_RSA_WITH_AES_128_CBC_SHA256": 0x003C,
    "TLS_RSA_WITH_AES_128_CCM": 0xC09C,
    "TLS_RSA_WITH_AES_128_CCM_8": 0xC0A0,
    "TLS_RSA_WITH_AES_128_GCM_SHA256": 0x009C,
    "TLS_RSA_WITH_AES_256_CBC_SHA": 0x0035,
    "TLS_RSA_WITH_AES_256_CBC_SHA256": 0x003D,
    "TLS_RSA_WITH_AES_256_CCM": 0xC09D,
    "TLS_RSA_WITH_AES_256_CCM_8": 0xC0A1,
    "TLS_RSA_WITH_AES_256_GCM_SHA384": 0x009D,
    "TLS_RSA_WITH_ARIA_128_GCM_SHA256": 0xC050,
    "TLS_RSA_WITH_ARIA_256_GCM_SHA384": 0xC051,
    "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA": 0x0041,
    "TLS_RSA_WITH_CAMELLIA_128_CBC_SHA256": 0x00BA,
    "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA": 0x0084,
    "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA256": 0x00C0,
}


class Suites(NamedTuple):
    """A selection of suites: OpenSSL's list for TLS 1.2, and the TLS versions that it allows."""

    openssl_list: str
    allows_tls12: bool
    allows_tls13: bool


def choose(names: Sequence[str]) -> Suites | None:
    """Returns the selection of suites with these names; None if there are no names and OpenSSL decides. Raises
    ConfigError for an unknown suite, and for only some of the suites of TLS 1.3.
    """
    wanted = [name for name in names if name and name != _MARK]
    if not wanted:
        return None
    new = [name for name in TLS13 if name in wanted]
    if new and len(new) != len(TLS13):
        raise invalid(
            _KEY,
            ",".join(names),
            f"suites of TLS 1.3 cannot be chosen individually: list all of {', '.join(TLS13)}, or none for TLS 1.2",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL")
    there = {each["id"] & 0xFFFF: str(each["name"]) for each in context.get_ciphers()}
    chosen: list[str] = []
    for name in wanted:
        if name in TLS13:
            continue
        found = there.get(_TLS12.get(name, -1))
        if found is None:
            known = sorted(each for each, number in _TLS12.items() if number in there)
            raise invalid(_KEY, name, f"Unsupported CipherSuite; the names of IANA are allowed: {', '.join(known)}")
        chosen.append(found)
    return Suites(":".join(chosen), bool(chosen), bool(new))
