"""The certificate of a client in all forms that test 0097 of librdkafka expects, named by variables as trivup does."""

from __future__ import annotations

from pathlib import Path

from tests.support.tls_stores import PASSWORD, Stores, run


def settings(stores: Stores, name: str, folder: Path) -> dict[str, str]:
    """Returns the settings of librdkafka with an issued certificate, whose key is in a file of its own."""
    certificate, key = folder / "client.pem", folder / "client.key"
    source = stores.authority.directory / f"{name}.pem"
    run("openssl", "x509", "-in", source, "-out", certificate)
    run("openssl", "pkey", "-in", source, "-aes256", "-passout", f"pass:{PASSWORD}", "-out", key)
    return {
        **stores.librdkafka(),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": PASSWORD,
    }


def variables(stores: Stores, folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Returns the variables with the client's files in other forms. `files`: the result of `settings`."""
    certificate, key = Path(files["ssl.certificate.location"]), Path(files["ssl.key.location"])
    secret = ("-passin", f"pass:{PASSWORD}")
    store, public, private = folder / "client.p12", folder / "client.der", folder / "client-key.der"
    authority, authorities = folder / "authority.der", folder / "authorities.pem"
    chain = ("-certfile", stores.trusted, "-passout", f"pass:{PASSWORD}")
    run("openssl", "pkcs12", "-export", "-in", certificate, "-inkey", key, *secret, *chain, "-out", store)
    run("openssl", "x509", "-in", certificate, "-outform", "DER", "-out", public)
    run("openssl", "pkey", "-in", key, *secret, "-outform", "DER", "-out", private)
    run("openssl", "x509", "-in", stores.trusted, "-outform", "DER", "-out", authority)
    other = Stores(folder / "other").trusted
    authorities.write_text(other.read_text() + stores.trusted.read_text())
    return {
        "SSL_pkcs": str(store),
        "SSL_pub_der": str(public),
        "SSL_pub_pem": str(certificate),
        "SSL_priv_der": str(private),
        "SSL_priv_pem": str(key),
        "SSL_ca_der": str(authority),
        "SSL_all_cas_pem": str(authorities),
        "SSL_password": PASSWORD,
    }
