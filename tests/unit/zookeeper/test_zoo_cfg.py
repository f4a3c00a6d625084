"""Keys of `zoo.cfg`: those that are heeded, and what is refused with a line that says why."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ConfigError
from barnabas.zookeeper.zoo_cfg import load_zoo_cfg


def test_keys_have_apaches_names_with_and_without_the_prefix() -> None:
    text = "dataDir=/d\nclientPort=2182\ntickTime=500\nDigestAuthenticationProvider.digestAlg=SHA3-256\n"
    config = load_zoo_cfg(text, {"zookeeper.DigestAuthenticationProvider.enabled": "false"})
    assert (config.port, config.data_dir, config.log_dir) == (2182, "/d", "/d")
    assert config.server.tick_ms == 500
    assert config.server.digest_algorithm == "sha3_256"
    assert not config.server.digest_scheme
    assert config.warnings == ()


def test_digests_are_sha1_by_default() -> None:
    server = load_zoo_cfg("dataDir=/d", {}).server
    assert (server.digest_scheme, server.digest_algorithm) == (True, "sha1")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("DigestAuthenticationProvider.digestAlg=ROT13", "expected one of MD5, SHA1"),
        ("secureClientPort=2281", "this server has no TLS"),
        ("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider", "digest and ip are available"),
        ("server.1=a:2888:3888\nserver.2=b:2888:3888", "this server is standalone"),
        ("tickTime=0", "expected 1 to"),
    ],
)
def test_a_key_that_cannot_be_heeded_is_refused(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_zoo_cfg(f"dataDir=/d\n{line}\n", {})


def test_an_unknown_key_is_a_warning() -> None:
    assert load_zoo_cfg("dataDir=/d\nhorses=3", {}).warnings == (
        "horses is not known to this server and has no effect",
    )
