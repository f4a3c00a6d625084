"""The file of `--zk-tls-config-file`: what is read in it, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.zookeeper_tls import tls_context, tls_settings
from barnabas.common.zookeeper_security import TLS_NAME, tls_name
from barnabas.embedded.failures import Failure

_TLS = "zookeeper.ssl.client.enable=true\nzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "tls.properties"
    file.write_text(text)
    return file


def test_without_a_file_there_is_no_tls() -> None:
    assert tls_settings(None) is None
    assert tls_context(None) is None


def test_the_file_of_a_broker_can_be_used(tmp_path: Path) -> None:
    """The keys that have nothing to do with TLS are ignored, even if a broker would refuse them."""
    text = f"process.roles=nothing\nbroker.id=x\nzookeeper.connect=elsewhere:1\nzookeeper.set.acl=true\n{_TLS}"
    settings = tls_settings(written(tmp_path, f"{text}zookeeper.ssl.endpoint.identification.algorithm=\n"))
    assert settings is not None
    assert tls_name(settings) == TLS_NAME
    context = tls_context(tmp_path / "tls.properties")
    assert context is not None
    assert not context.check_hostname


@pytest.mark.parametrize(
    "text, refusal",
    [
        ("", "does not choose TLS"),
        ("zookeeper.ssl.client.enable=false\n", "does not choose TLS"),
        ("zookeeper.ssl.client.enable=true\n", "TLS needs zookeeper.clientCnxnSocket="),
        (f"{_TLS}zookeeper.ssl.crl.enable=true\n", "zookeeper.ssl.crl.enable"),
        (f"{_TLS}zookeeper.ssl.keystore.location=/no/such.jks\n", "zookeeper.ssl.keystore.location=/no/such.jks"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, refusal: str) -> None:
    with pytest.raises(Failure) as refused:
        tls_context(written(tmp_path, text))
    assert refusal in str(refused.value)
    assert "tls.properties" in str(refused.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="No such file"):
        tls_settings(tmp_path / "missing.properties")
    file = tmp_path / "binary.properties"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="not UTF-8"):
        tls_settings(file)
