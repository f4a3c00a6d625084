"""A stand-in for pyOpenSSL: kazoo's harness makes certificates for a TLS port, which our server does not have."""

from unittest.mock import MagicMock

crypto = MagicMock()
