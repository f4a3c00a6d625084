"""A stand-in for pyjks: kazoo's harness writes key stores for a TLS port, which our server does not have."""

from unittest.mock import MagicMock

KeyStore = MagicMock()
PrivateKeyEntry = MagicMock()
TrustedCertEntry = MagicMock()
