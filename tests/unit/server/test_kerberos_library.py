"""The system's Kerberos library without a KDC: what is missing is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.kerberos import KerberosError, KerberosUnavailable
from barnabas.server import kerberos
from barnabas.server.kerberos import KerberosLibrary


def test_a_machine_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kerberos, "_GSSAPI", "libgssapi_that_is_not_there.so.2")
    with pytest.raises(KerberosUnavailable, match=r"is missing: install libgssapi-krb5-2"):
        KerberosLibrary()


def test_a_keytab_that_is_missing_or_empty(tmp_path: Path) -> None:
    library = KerberosLibrary()
    principal = "kafka/localhost@TEST.BARNABAS"
    with pytest.raises(KerberosError, match="not found") as refused:
        library.acceptor(str(tmp_path / "keytab"), principal)
    assert "\n" not in str(refused.value)
    (tmp_path / "keytab").write_bytes(b"\x05\x02")
    with pytest.raises(KerberosError, match="No key table entry found for kafka/localhost"):
        library.acceptor(str(tmp_path / "keytab"), principal)


def test_names_are_checked_by_the_library() -> None:
    with pytest.raises(KerberosError):
        KerberosLibrary().acceptor(None, "a@b@c")
    assert isinstance(KerberosLibrary().default_realm(), str)
