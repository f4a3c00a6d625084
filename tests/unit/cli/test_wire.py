"""Connections of the command line: to any broker that is reachable."""

from __future__ import annotations

import socket

import pytest

from barnabas.cli.raw_requests import Wire
from barnabas.embedded.failures import Failure


def test_one_that_is_gone_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        dead = gone.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        alive = listening.getsockname()
        with Wire.to_any([dead, alive]), listening.accept()[0] as accepted:
            assert accepted.getsockname() == alive
    with pytest.raises(Failure, match=f"no connection to 127.0.0.1:{dead[1]}"):
        Wire.to_any([alive, dead])
    with pytest.raises(Failure, match="no broker"):
        Wire.to_any([])
