"""The one form of each address in which limits and quotas count it."""

from __future__ import annotations

import pytest

from barnabas.common.addresses import canonical, peer_address


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("0:0:0:0:0:ffff:10.0.0.1", "10.0.0.1"),
        ("::10.0.0.1", "::a00:1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_an_address_is_counted_in_one_form(peer: str, counted: str) -> None:
    """Guard S17: a client that connects over IPv4 and over IPv6 that wraps it has one count, and one quota."""
    assert peer_address(peer) == counted
    assert canonical(f"[{peer}]" if ":" in peer else peer) == counted


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0", "10.0.0.1.2", "::g", "10.0.0.1/8"])
def test_a_text_that_is_no_address_has_no_form(text: str) -> None:
    assert canonical(text) is None
